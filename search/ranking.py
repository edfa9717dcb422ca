"""Ranks within segments, and the marks of the paths that a search keeps."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from .aggregations import Aggregation, path_keys
from .types import Paths, SearchState

_FUSED = 32
"""Longest reduction that XLA's CPU compiler fuses with its input."""


def segment_ranks(
    scores: Float[Array, " N"], segments: Int[Array, " N"], valid: Bool[Array, " N"]
) -> Int[Array, " N"]:
    """Rank of each valid row among the valid rows of its segment: 0 is the best.

    Ties go to the lower row. Rows that are not valid get N. All pairs are compared: for N <= 256
    this is faster than a sort on a CPU, and needs no sort on a GPU.
    """
    # Without the barrier XLA computes a row's inputs anew for each of its pairs.
    scores, segments, valid = lax.optimization_barrier((scores, segments, valid))
    rows = jnp.arange(scores.shape[0], dtype=jnp.int32)
    better = scores[None, :] > scores[:, None]
    tie = (scores[None, :] == scores[:, None]) & (rows[None, :] < rows[:, None])
    rival = valid[None, :] & (segments[None, :] == segments[:, None])
    ranks = reduce_rows(jnp.sum, (better | tie) & rival)
    return jnp.where(valid, ranks, jnp.int32(scores.shape[0]))


def reduce_rows(reduce: Callable[..., jax.Array], matrix: Shaped[Array, "N M"]) -> Array:
    """`reduce(matrix, axis=1)`, for `jnp.sum` or `jnp.prod` of a matrix of pairs.

    XLA's CPU compiler fuses a reduction with its input only up to 32 numbers; otherwise it first
    writes the whole matrix. Longer rows are therefore reduced in two stages, with a barrier.
    """
    columns = matrix.shape[1]
    if columns <= _FUSED or columns % _FUSED:
        return reduce(matrix, axis=1)
    parts = reduce(matrix.reshape(-1, columns // _FUSED, _FUSED), axis=2)
    return reduce(lax.optimization_barrier(parts), axis=1)


def retain(
    scores: Float[Array, " N"],
    parent: Int[Array, " N"],
    valid: Bool[Array, " N"],
    num_retain: Int[Array, " S"],
) -> Bool[Array, " N"]:
    """Mark the best `num_retain[parent]` valid rows of each parent (ties: lower row)."""
    return valid & (segment_ranks(scores, parent, valid) < num_retain[parent])


def prune_all(
    state: SearchState,
    aggregation: Aggregation,
    takes_part: Bool[Array, " S"],
    num_kept: Callable[[Int[Array, ""]], Int[Array, ""]],
) -> tuple[Bool[Array, " S"], Bool[Array, " N"]]:
    """Mark the best among the children of a step and the finished paths that take part.

    Args:
        state: at the end of a step.
        aggregation: path score that ranks paths.
        takes_part: finished paths that are ranked.
        num_kept: from the number of ranked paths to the number of marked ones.

    Returns:
        The marks of the finished paths and of the children.
    """
    finished, pool = state.finished, state.pool
    ranked = jnp.concatenate([finished.valid & takes_part, pool.valid])
    keys = jnp.concatenate([path_keys(finished, aggregation), path_keys(pool, aggregation)])
    kept = prune(keys, ranked, num_kept(jnp.sum(ranked, dtype=jnp.int32)))
    old, new = jnp.split(kept, [finished.valid.shape[0]])
    return old, new


def prune(
    scores: Float[Array, " N"], keep: Bool[Array, " N"], width: Int[Array, ""]
) -> Bool[Array, " N"]:
    """Mark the best `width` of the rows marked in `keep` (ties: lower row)."""
    one_segment = jnp.zeros(scores.shape, jnp.int32)
    return keep & (segment_ranks(scores, one_segment, keep) < width)


def first_of_equal(pool: Paths) -> Bool[Array, " N"]:
    """Mark the first valid row among siblings with equal text and equal `done`."""
    columns = lax.optimization_barrier((pool.parent, pool.text, pool.done))
    rows = jnp.arange(pool.valid.shape[0], dtype=jnp.int32)
    earlier = pool.valid[None, :] & (rows[:, None] > rows[None, :])
    for column in columns:
        earlier &= column[None, :] == column[:, None]
    return pool.valid & ~jnp.any(earlier, axis=1)
