"""Path scores: from the scores of a path's steps to one number in [0, 1].

A product of many scores underflows float32 (forty scores of 0.1 are 1e-40). An aggregation
therefore has two functions: `value` for features and rewards, and `key` for comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .types import Paths

_SMALL_LOG = -60.0
"""Logarithm of a product beside which those that float32 rounds to 0 do not count."""


class Aggregation(NamedTuple):
    """A path score as two pure functions of `(step_scores[*B, T], depth[*B])`.

    Attributes:
        value: path score in [0, 1]; may underflow.
        key: number that increases with the exact path score; finite.
    """

    value: Callable[[jax.Array, jax.Array], jax.Array]
    key: Callable[[jax.Array, jax.Array], jax.Array]


def path_scores(paths: Paths, aggregation: Aggregation) -> Float[Array, " N"]:
    """Path score of every row, in [0, 1]; 1 for a path without steps."""
    return aggregation.value(paths.step_scores, paths.depth)


def path_keys(paths: Paths, aggregation: Aggregation) -> Float[Array, " N"]:
    """Comparison key of every row: larger is better."""
    return aggregation.key(paths.step_scores, paths.depth)


def relative_scores(
    paths: Paths, aggregation: Aggregation, among: Bool[Array, " N"]
) -> Float[Array, " N"]:
    """Path scores up to a factor that all rows share: the products of all rows may underflow.

    Args:
        among: rows that are compared.
    """
    scores, keys = path_scores(paths, aggregation), path_keys(paths, aggregation)
    # The key of a product with a factor 0 is finite.
    positive = among & (minimum(paths.step_scores, paths.depth) > 0.0)
    top = jnp.max(keys, initial=-jnp.inf, where=positive)
    underflows = (aggregation.key is log_product) & (top < _SMALL_LOG)
    return jnp.where(underflows, jnp.where(positive, jnp.exp(keys - top), 0.0), scores)


def last(step_scores: Float[Array, "*B T"], depth: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """Score of the newest step; 1 for a path without steps."""
    is_last = _positions(step_scores) == depth[..., None] - 1
    return jnp.where(depth > 0, jnp.sum(jnp.where(is_last, step_scores, 0.0), axis=-1), 1.0)


def minimum(step_scores: Float[Array, "*B T"], depth: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """Score of the worst step; 1 for a path without steps."""
    return jnp.min(jnp.where(_taken(step_scores, depth), step_scores, 1.0), axis=-1, initial=1.0)


def mean(step_scores: Float[Array, "*B T"], depth: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """Arithmetic mean of the step scores; 1 for a path without steps."""
    total = jnp.sum(jnp.where(_taken(step_scores, depth), step_scores, 0.0), axis=-1)
    count = jnp.maximum(depth, 1).astype(step_scores.dtype)
    return jnp.where(depth > 0, total / count, 1.0)


def product(step_scores: Float[Array, "*B T"], depth: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """Product of the step scores; 1 for a path without steps. Compare by `log_product`."""
    return jnp.prod(jnp.where(_taken(step_scores, depth), step_scores, 1.0), axis=-1)


def log_product(step_scores: Float[Array, "*B T"], depth: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """Sum of the logarithms of the step scores, nats: the key of `product`.

    A score below the smallest normal float counts as this float, so that the sum is finite.
    """
    smallest = jnp.finfo(step_scores.dtype).tiny
    # The guard is inside the logarithm: an outer one alone leaves NaN gradients at padding.
    guarded = jnp.where(_taken(step_scores, depth), jnp.maximum(step_scores, smallest), 1.0)
    return jnp.sum(jnp.log(guarded), axis=-1)


AGGREGATIONS: Mapping[str, Aggregation] = MappingProxyType(
    {
        "min": Aggregation(minimum, minimum),
        "last": Aggregation(last, last),
        "mean": Aggregation(mean, mean),
        "product": Aggregation(product, log_product),
    }
)
"""Name -> aggregation; "min" is the default of every strategy."""


def aggregation(name: str) -> Aggregation:
    """The aggregation of that name. Raises ValueError naming the known ones."""
    if name not in AGGREGATIONS:
        raise ValueError(f"unknown aggregation {name!r}: choose one of {', '.join(AGGREGATIONS)}")
    return AGGREGATIONS[name]


def _positions(step_scores: Float[Array, "*B T"]) -> Int[Array, "*B T"]:
    return lax.broadcasted_iota(jnp.int32, step_scores.shape, step_scores.ndim - 1)


def _taken(step_scores: Float[Array, "*B T"], depth: Int[Array, "*B"]) -> Bool[Array, "*B T"]:
    return _positions(step_scores) < depth[..., None]
