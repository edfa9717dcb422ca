"""Blockwise evaluation of the rows with weight: a batch of searches is mostly padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

BLOCK_ROWS = 512
"""Rows in a block: enough for fast matrix products, and little padding in the last block."""


class Rows(NamedTuple):
    """The positions of the rows with weight among `M` rows.

    Attributes:
        order: indices of the rows with weight, then M, which is out of bounds.
    """

    order: jax.Array  # i32[M]
    num_rows: jax.Array  # i32[]

    def take(self, values: Any, start: Int[Array, ""], size: int, stop: Int[Array, ""]) -> Any:
        """Rows of `values` [M, ...] at places start..start+size-1 of `order`; zeros from `stop`."""
        place = start + jnp.arange(size, dtype=jnp.int32)
        capacity = self.order.shape[0]
        index = self.order.at[place].get(mode="fill", fill_value=capacity)
        index = jnp.where(place < stop, index, capacity)
        return jax.tree.map(lambda leaf: leaf.at[index].get(mode="fill", fill_value=0), values)


def pack(has_weight: Bool[Array, " M"]) -> Rows:
    """The `Rows` of the marked rows, in ascending order."""
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
    """The sum of `function(block)` over the blocks of places start..stop-1 (default: all places).

    Args:
        function: function of a block of `BLOCK_ROWS` rows of `values`, additive in its rows; zeros
            fill the last block.
        values: pytree with leaves `[M, ...]`.
        blank: zeros of the structure of the function's result.
        start: first place.
        stop: place after the last one.
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
    """Results of `function(block)` by row, f32[M]; 0 for rows without weight."""
    num_blocks = (rows.num_rows + BLOCK_ROWS - 1) // BLOCK_ROWS
    capacity = rows.order.shape[0]

    def write_block(index: Int[Array, ""], result: Float[Array, " M"]) -> Float[Array, " M"]:
        block = rows.take(values, index * BLOCK_ROWS, BLOCK_ROWS, rows.num_rows)
        place = index * BLOCK_ROWS + jnp.arange(BLOCK_ROWS, dtype=jnp.int32)
        where = rows.order.at[place].get(mode="fill", fill_value=capacity)
        return result.at[where].set(function(block), mode="drop")

    return lax.fori_loop(0, num_blocks, write_block, jnp.zeros((capacity,), jnp.float32))
