"""The commands of `cats-jax`, one per file. Importing one loads neither JAX nor torch."""
