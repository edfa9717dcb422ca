"""Learners that remember their training labels: their gap is large."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .double import double


@double(static=("num_inputs", "num_samples", "trials"))
def memoriser_gaps(
    key: jax.Array, *, num_inputs: int, num_samples: int, trials: int
) -> Float[Array, " M"]:
    """Gap L_D - L_S of a learner that remembers labels of a fair coin and says 0 otherwise."""
    label_key, input_key = jax.random.split(key)
    labels = jax.random.bernoulli(label_key, 0.5, (trials, num_inputs))
    drawn = jax.random.randint(input_key, (trials, num_samples), 0, num_inputs, jnp.int32)
    seen = jax.vmap(lambda row: jnp.zeros(num_inputs, bool).at[row].set(True))(drawn)
    return jnp.mean(labels & ~seen, axis=1, dtype=jnp.float64)


@double(static=("num_weights", "num_samples", "trials"))
def stored_label_gaps(
    key: jax.Array, *, num_weights: int, num_samples: int, trials: int
) -> Float[Array, " M"]:
    """The same learner with its memory in the mantissas of float64 weights in [1, 2)."""
    bits = 52
    num_inputs = bits * num_weights
    label_key, input_key = jax.random.split(key)
    labels = jax.random.bernoulli(label_key, 0.5, (trials, num_inputs))
    drawn = jax.random.randint(input_key, (trials, num_samples), 0, num_inputs, jnp.int32)
    seen = jax.vmap(lambda row: jnp.zeros(num_inputs, bool).at[row].set(True))(drawn)
    place = jnp.arange(bits, dtype=jnp.uint64)

    memory = (labels & seen).reshape(trials, num_weights, bits).astype(jnp.uint64)
    mantissas = jnp.sum(memory << place[None, None, :], axis=2, dtype=jnp.uint64)
    one = jnp.uint64(1023) << jnp.uint64(bits)
    weights = lax.bitcast_convert_type(mantissas | one, jnp.float64)

    # The reward model: input i reads bit i % 52 of weight i // 52.
    stored = lax.bitcast_convert_type(weights, jnp.uint64)[:, :, None] >> place[None, None, :]
    rewards = (stored & jnp.uint64(1)).astype(bool).reshape(trials, num_inputs)
    wrong = rewards != labels
    empirical = jnp.take_along_axis(wrong, drawn, axis=1).mean(axis=1, dtype=jnp.float64)
    return wrong.mean(axis=1, dtype=jnp.float64) - empirical
