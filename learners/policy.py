"""The policy of a CATS search from an actor's logits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from search.cats import Observation, Policy

ILLEGAL_LOGIT = -1e9
"""Logit of illegal actions. It is finite, so that 0 times it is 0 in entropies and gradients."""


@functools.cache
def make_policy(apply: Callable[[Any, jax.Array], jax.Array], mode: str = "sample") -> Policy:
    """A policy `(params, key, observation) -> (action, log_prob)` for `search.cats`.

    Args:
        apply: `Network.apply` of an actor, see `make_actor`. The params are the actor's.
        mode: "sample" (training) draws the action, "argmax" (use) takes the likeliest one. In both
            modes `log_prob` is that of the action under the stochastic policy, in nats.

    Raises:
        ValueError: the mode is unknown.
    """
    if mode not in ("sample", "argmax"):
        raise ValueError(f"mode must be 'sample' or 'argmax', got {mode!r}")

    def policy(
        params: Any, key: jax.Array, observation: Observation
    ) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        logits = apply(params, observation.features)
        legal = jnp.broadcast_to(observation.legal[None, :], logits.shape)
        log_probs = legal_log_probs(logits, legal)
        action = _sample(key, log_probs) if mode == "sample" else _first_of_largest(log_probs)
        return action, log_prob_of(log_probs, action)

    return policy


def legal_log_probs(logits: Float[Array, "N A"], legal: Bool[Array, "N A"]) -> Float[Array, "N A"]:
    """Logarithms of the softmax over legal actions; about -1e9 for the others."""
    return jax.nn.log_softmax(jnp.where(legal, logits, ILLEGAL_LOGIT), axis=1)


def log_prob_of(log_probs: Float[Array, "N A"], action: Int[Array, " N"]) -> Float[Array, " N"]:
    """The log-probability of each row's action."""
    return jnp.take_along_axis(log_probs, action[:, None], axis=1)[:, 0]


def _first_of_largest(log_probs: Float[Array, "N A"]) -> Int[Array, " N"]:
    """`jnp.argmax(log_probs, axis=1)` as two reductions, which XLA vectorises on a CPU."""
    largest = jnp.max(log_probs, axis=1, keepdims=True)
    index = lax.broadcasted_iota(jnp.int32, log_probs.shape, 1)
    # Without the negation a row of NaNs would have no largest entry.
    return jnp.min(jnp.where(~(log_probs < largest), index, log_probs.shape[1]), axis=1)


def _sample(key: jax.Array, log_probs: Float[Array, "N A"]) -> Int[Array, " N"]:
    """Sample by inverse CDF: one random number per row; the Gumbel trick needs one per action."""
    cumulative = jnp.cumsum(jnp.exp(log_probs), axis=1)
    # uniform < 1 is a multiple of 2**-23, so the product is below the total after rounding too;
    # an illegal action adds exactly 0 and is never the first to exceed it.
    bound = jax.random.uniform(key, log_probs.shape[:1])[:, None] * cumulative[:, -1:]
    return jnp.sum(cumulative <= bound, axis=1, dtype=jnp.int32)
