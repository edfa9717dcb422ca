"""Studies with cats-jax: a part of the repository, not of the package that is installed."""
