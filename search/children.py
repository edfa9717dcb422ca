"""The rows of an expansion: whose children they are, and which the PRM is asked for."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .types import Request


def children_of(
    num_samples: Int[Array, " S"], capacity: int
) -> tuple[Int[Array, " N"], Bool[Array, " N"]]:
    """The parent slot of each row of an expansion, for any expand function.

    Each slot in turn has `num_samples` consecutive rows; padding follows.

    Args:
        num_samples: children granted to each frontier slot, >= 0; their sum is at most `capacity`.
        capacity: rows of the expansion, static.

    Returns:
        Parent slot of each row (0 at padding), and which rows were granted.
    """
    ends = jnp.cumsum(num_samples, dtype=jnp.int32)
    # One count per slot at the row where its children end, summed up: linear in slots and rows.
    # Row `capacity` catches the slots that end at the very last row; `drop` those beyond.
    steps = jnp.zeros((capacity + 1,), jnp.int32).at[ends].add(1, mode="drop")
    parent = jnp.cumsum(steps[:capacity], dtype=jnp.int32)
    granted = jnp.arange(capacity, dtype=jnp.int32) < ends[-1]
    return jnp.where(granted, parent, 0), granted


def asked_rows(
    request: Request, parent: Int[Array, " N"], done: Bool[Array, " N"]
) -> Bool[Array, " N"]:
    """The rows of an expansion that the PRM is asked for, if they are valid.

    Args:
        request: request that the expansion answers.
        parent: frontier slot of each row.
        done: rows that end their answers.
    """
    return request.scored[parent] | (request.score_ends[parent] & done)
