"""Rows of experience with weight, packed: what is padding costs nothing.

A batch of searches leaves arrays that are mostly padding. Everything that asks a network about
rows goes through them in blocks, in the order of `Rows`, and stops behind the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

BLOCK_ROWS = 512
"""Rows taken at once: enough for the matrix products to be fast, few enough that the last block
is not mostly padding."""


class Rows(NamedTuple):
    """Where among `M` rows the ones with weight are.

    Attributes:
        order: their indices, first to last; then M, which is out of bounds.
        num_rows: how many they are.
    """

    order: jax.Array  # i32[M]
    num_rows: jax.Array  # i32[]

    def take(self, values: Any, start: Int[Array, ""], size: int, stop: Int[Array, ""]) -> Any:
        """Places start..start+size-1 of a pytree of `[M, ...]`; zeros from place `stop` on.

        Padding is never read, whatever it holds.
        """
        place = start + jnp.arange(size, dtype=jnp.int32)
        capacity = self.order.shape[0]
        index = self.order.at[place].get(mode="fill", fill_value=capacity)
        index = jnp.where(place < stop, index, capacity)
        return jax.tree.map(lambda leaf: leaf.at[index].get(mode="fill", fill_value=0), values)


def pack(has_weight: Bool[Array, " M"]) -> Rows:
    """The marked rows, in order."""
    size = has_weight.shape[0]
    place = jnp.where(has_weight, jnp.cumsum(has_weight, dtype=jnp.int32) - 1, size)
    rows = jnp.arange(size, dtype=jnp.int32)
    return Rows(
        order=jnp.full((size,), size, jnp.int32).at[place].set(rows, mode="drop"),
        num_rows=jnp.sum(has_weight, dtype=jnp.int32),
    )


def shuffle(rows: Rows, key: jax.Array) -> Rows:
    """The same rows in a random order; consumes the key."""
    places = jnp.arange(rows.order.shape[0], dtype=jnp.int32)
    draw = jax.random.uniform(key, rows.order.shape)
    by_draw = jnp.argsort(jnp.where(places < rows.num_rows, draw, 2.0))  # draws are below 1
    return rows._replace(order=rows.order[by_draw])


def sum_blocks(
    function: Callable[[Any], Any],
    rows: Rows,
    values: Any,
    blank: Any,
    start: Int[Array, ""] | int = 0,
    stop: Int[Array, ""] | None = None,
) -> Any:
    """The sum of `function(block)` over blocks of places start..stop-1 (default: all).

    Args:
        function: of `BLOCK_ROWS` rows of `values`, the last ones zeros; additive in its rows.
        rows: says which.
        values: pytree of `[M, ...]`.
        blank: zeros of the function's result; what is returned if there are no rows.
        start: first place.
        stop: behind the last place.
    """
    stop = rows.num_rows if stop is None else stop
    start = jnp.asarray(start, jnp.int32)
    num_blocks = (stop - start + BLOCK_ROWS - 1) // BLOCK_ROWS

    def add_block(index: Int[Array, ""], sums: Any) -> Any:
        block = rows.take(values, start + index * BLOCK_ROWS, BLOCK_ROWS, stop)
        return jax.tree.map(jnp.add, sums, function(block))

    return lax.fori_loop(0, num_blocks, add_block, blank)


def map_blocks(
    function: Callable[[Any], Float[Array, " N"]], rows: Rows, values: Any
) -> Float[Array, " M"]:
    """`function(block)` for the rows with weight, 0 for the others; `[M]` by row."""
    num_blocks = (rows.num_rows + BLOCK_ROWS - 1) // BLOCK_ROWS
    capacity = rows.order.shape[0]

    def write_block(index: Int[Array, ""], result: Float[Array, " M"]) -> Float[Array, " M"]:
        block = rows.take(values, index * BLOCK_ROWS, BLOCK_ROWS, rows.num_rows)
        place = index * BLOCK_ROWS + jnp.arange(BLOCK_ROWS, dtype=jnp.int32)
        where = rows.order.at[place].get(mode="fill", fill_value=capacity)
        return result.at[where].set(function(block), mode="drop")

    return lax.fori_loop(0, num_blocks, write_block, jnp.zeros((capacity,), jnp.float32))
