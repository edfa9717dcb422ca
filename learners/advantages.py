"""Advantages of transitions: one-step TD errors, and their mean and deviation over a batch."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

import search

from .losses import td_error
from .networks import Network


def td_errors(critic: Network, params: Any, block: search.cats.Transition) -> Float[Array, " N"]:
    """The TD error of each transition; gradients flow into the first state's value only."""
    v_t = lax.stop_gradient(critic.apply(params, block.features_t))
    v_tm1 = critic.apply(params, block.features_tm1)
    return td_error(block.reward_t, block.discount_t, v_tm1, v_t)


def total_weight(weight: Float[Array, " M"]) -> Float[Array, ""]:
    """The sum of the positive weights; the smallest positive float32 if there are none."""
    return at_least_tiny(jnp.sum(jnp.where(weight > 0.0, weight, 0.0)))


def at_least_tiny(total: Float[Array, ""]) -> Float[Array, ""]:
    """The total, or the smallest positive float32 if that is larger, so that 0 / total is 0."""
    return jnp.maximum(total, jnp.finfo(jnp.float32).tiny)


def moments(
    values: Float[Array, " M"], weight: Float[Array, " M"], total: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Weighted mean and standard deviation; the latter is at least 1e-6.

    Args:
        values: finite numbers, also in rows of weight 0.
        total: `total_weight(weight)`.
    """
    share = jnp.where(weight > 0.0, weight, 0.0) / total
    mean = jnp.sum(share * values)
    variance = jnp.sum(share * jnp.square(values - mean))
    return mean, jnp.maximum(jnp.sqrt(variance), 1e-6)
