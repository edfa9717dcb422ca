"""Tokens that one tick of a search costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from .children import asked_rows
from .loop import Tick
from .types import Unsolved


class TickTokens(NamedTuple):
    """Tokens of one tick of one search."""

    sampled: jax.Array  # i32[]; by the policy
    read: jax.Array  # i32[]; by the PRM, without the question


def tick_tokens(tick: Tick) -> TickTokens:
    """Tokens that the policy samples and the PRM reads in a tick.

    A greedy child with the text of a child from an earlier tick of the step, below the same node,
    is a copy and costs no policy tokens. The PRM reads each text below a node once, after the
    unread part of the node's path. Equal texts below different nodes count separately. PRM tokens
    are counted in tokens of the policy.
    """
    before, request, expansion = tick.before, tick.plan.request, tick.expansion
    pool, parent = before.pool, expansion.parent
    rows = jnp.arange(parent.shape[0], dtype=jnp.int32)
    granted = rows < jnp.sum(tick.output.num_samples, dtype=jnp.int32)
    earlier = _has_equal(tick, pool.valid)
    copies = granted & (request.temperature[parent] == 0.0) & earlier
    sampled = jnp.sum(jnp.where(granted & ~copies, expansion.num_tokens, 0), dtype=jnp.int32)

    scored = granted & expansion.valid & asked_rows(request, parent, expansion.done)
    was_read = pool.valid & (pool.unread == 0)
    slots = jnp.arange(before.frontier.valid.shape[0], dtype=jnp.int32)
    parent_, text_, scored_ = lax.optimization_barrier((parent, expansion.text, scored))
    same = (parent_[None, :] == parent_[:, None]) & (text_[None, :] == text_[:, None])
    repeats = jnp.any(same & scored_[None, :] & (rows[None, :] < rows[:, None]), axis=1)
    is_new = scored & ~repeats & ~_has_equal(tick, was_read)
    asks = jnp.zeros(slots.shape, bool).at[parent].max(scored)
    asked = jnp.zeros(slots.shape, bool).at[pool.parent].max(was_read)
    prefix = jnp.where(asks & ~asked, before.frontier.unread, 0)
    read = jnp.sum(jnp.where(is_new, expansion.num_tokens, 0), dtype=jnp.int32) + jnp.sum(
        prefix, dtype=jnp.int32
    )
    active = tick.output.active
    return TickTokens(jnp.where(active, sampled, 0), jnp.where(active, read, 0))


def unsolved(report: Any, index: Any = ()) -> Any:
    """Programs that a solver did not solve, by the `report` of a tick; 0 for any other report.

    `index` is the place of the search in a batch; () without a batch. Returns i32[] or an int.
    """
    return report.count[index] if isinstance(report, Unsolved) else 0


def _has_equal(tick: Tick, marked: Bool[Array, " N"]) -> Bool[Array, " M"]:
    """Whether each new row has a marked sibling of the same text in the pool before the tick."""
    pool, expansion = tick.before.pool, tick.expansion
    same = (pool.parent[None, :] == expansion.parent[:, None]) & (
        pool.text[None, :] == expansion.text[:, None]
    )
    return jnp.any(same & marked[None, :], axis=1)
