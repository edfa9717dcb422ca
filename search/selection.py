"""Choices of one path: each function returns its row, or -1 if no valid row has an answer."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def best(
    keys: Float[Array, " N"], answer: Int[Array, " N"], valid: Bool[Array, " N"]
) -> Int[Array, ""]:
    """The path with the largest key among those with an answer (ties: lower row)."""
    return _first_of_largest(keys, valid & (answer >= 0))


def majority_vote(answer: Int[Array, " N"], valid: Bool[Array, " N"]) -> Int[Array, ""]:
    """The first path with the most frequent answer (ties: the answer that appears first)."""
    return weighted_vote(jnp.ones(answer.shape, jnp.float32), answer, valid)


def weighted_vote(
    weights: Float[Array, " N"], answer: Int[Array, " N"], valid: Bool[Array, " N"]
) -> Int[Array, ""]:
    """The first path with the answer of the largest sum of weights >= 0 (ties: first answer)."""
    voter = valid & (answer >= 0)
    same = voter[None, :] & (answer[None, :] == answer[:, None])
    votes = jnp.sum(jnp.where(same, weights[None, :], 0.0), axis=1)
    return _first_of_largest(votes, voter)


def _first_of_largest(values: Float[Array, " N"], valid: Bool[Array, " N"]) -> Int[Array, ""]:
    row = jnp.argmax(jnp.where(valid, values, -jnp.inf)).astype(jnp.int32)
    return jnp.where(jnp.any(valid), row, -1)
