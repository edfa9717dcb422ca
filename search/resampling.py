"""Resampling: the number of copies of each particle, in proportion to its weight.

A scheme is `(key, mass, total) -> copies`. `mass` is f[M], >= 0, with a positive sum. `copies` is
i32[M], sums to `total`, and has the expected value `total * mass / sum(mass)`; a row of mass 0 gets
no copy. `total` is at most M, and traced. The i-th uniform number depends only on `key` and i.

Source: Douc, Cappé & Moulines, "Comparison of Resampling Schemes for Particle Filtering" (2005).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .state import take
from .types import Paths

Resampling = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""`(key, mass, total) -> copies`."""


def multinomial(
    key: jax.Array, mass: Float[Array, " M"], total: Int[Array, ""]
) -> Int[Array, " M"]:
    """Draw each of `total` copies independently."""
    draws = jnp.arange(mass.shape[0], dtype=jnp.int32)
    uniform = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i), (), mass.dtype))
    row = rows_at(uniform(draws), mass)
    return jnp.zeros(mass.shape, jnp.int32).at[row].add((draws < total).astype(jnp.int32))


def rows_at(uniform: Float[Array, "*B"], mass: Float[Array, " M"]) -> Int[Array, "*B"]:
    """For each number in [0, 1), the row whose share of the mass contains it; its mass is > 0."""
    cumulative = jnp.cumsum(mass)
    # "right": a mass of 0 has an empty share. A product that rounds up to the sum is the last mass.
    drawn = jnp.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    last = jnp.searchsorted(cumulative, cumulative[-1], side="left")
    return jnp.minimum(drawn, last).astype(jnp.int32)


def systematic(key: jax.Array, mass: Float[Array, " M"], total: Int[Array, ""]) -> Int[Array, " M"]:
    """Round each expected number down or up, with one uniform offset for all."""
    cumulative = jnp.cumsum(mass)
    shares = cumulative / cumulative[-1]
    offset = jax.random.uniform(key, (), mass.dtype)
    bounds = jnp.floor(shares * total.astype(mass.dtype) + offset).astype(jnp.int32)
    # Rounding may leave the last row's bound one off; the sum must be exact.
    is_last = cumulative >= cumulative[-1]
    bounds = jnp.where(is_last, total, jnp.minimum(bounds, total))
    return jnp.diff(bounds, prepend=jnp.zeros((1,), jnp.int32))


def residual(key: jax.Array, mass: Float[Array, " M"], total: Int[Array, ""]) -> Int[Array, " M"]:
    """The floors of the expected numbers, and a multinomial draw from the remainders."""
    expected = mass / jnp.sum(mass) * total.astype(mass.dtype)
    # Rounding may leave an expected whole number just below it. The tolerances add up to less than
    # one copy, so that the sum stays at most `total`.
    certain = jnp.floor(expected * (1.0 + 1e-5))
    copies = certain.astype(jnp.int32)
    left = total - jnp.sum(copies)
    rest = jnp.maximum(expected - certain, 0.0)
    # Without remainders nothing is drawn: any masses with a positive sum will do.
    rest = jnp.where(jnp.sum(rest) > 0, rest, mass)
    return copies + multinomial(key, rest, left)


def drawn(paths: Paths, copies: Int[Array, " S"]) -> Paths:
    """`copies` of each path, in the order of the rows; at most S in all."""
    rows = jnp.arange(copies.shape[0], dtype=jnp.int32)
    repeated = jnp.repeat(rows, copies, total_repeat_length=rows.shape[0])
    return take(paths, repeated).replace(valid=rows < jnp.sum(copies))


def or_equal(log_weights: Float[Array, " N"]) -> Float[Array, " N"]:
    """The log-weights; zeros if there is no particle, as after the end of a search."""
    return jnp.where(jnp.isfinite(jnp.max(log_weights)), log_weights, 0.0)


SCHEMES: Mapping[str, Resampling] = MappingProxyType(
    {"multinomial": multinomial, "systematic": systematic, "residual": residual}
)
"""Name -> scheme, as recipes name them."""


def resampling(name: str) -> Resampling:
    """The scheme of that name. Raises ValueError naming the known ones."""
    if name not in SCHEMES:
        raise ValueError(f"unknown resampling {name!r}: choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name]
