"""Look-ahead search: beam search that ranks each candidate by the end of a short rollout.

Snell, Lee, Xu, Kumar: "Scaling LLM Test-Time Compute Optimally can be More Effective than Scaling
Model Parameters" (2024), arXiv:2408.03314; `lookahead` of huggingface/search-and-learn at 6f81cac.
Each candidate is continued by k steps at temperature 0, or until its answer ends. The PRM's score
at the end of this rollout replaces the candidate's score. The rollouts are not kept, but count as
candidates: C candidates cost up to C * (k + 1). Here N bounds this cost, as it bounds that of other
methods, so that a reasoning step samples C = max(1, N // (k + 1)) candidates.

The candidates wait in the strategy's memory while the frontier rolls them out. A step of the beam
therefore takes up to k + 1 steps of the loop, and the frontier holds up to C paths.

What differs from the publications:

- The PRM scores the candidate, too. A candidate keeps this score if it ends its answer, if it is at
  the largest depth, if its rollout is invalid, or if the budget has no rollout for it.
- Finished paths take places of the beam, as in `beam`.
- A single candidate (C = 1) needs no comparison, and gets no rollout.
- Only the DVTS of search-and-learn scores rollouts; its beam search samples and ignores them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..aggregations import aggregation, last, path_keys
from ..answers import answer_rule
from ..interface import Sampling, Strategy, check_count, request, share_of_candidates
from ..ranking import prune
from ..state import blank_like, count, pack, select, with_newest_scores
from ..types import Paths, Request, SearchState
from .fixed import beam
from .types import Waiting


@functools.cache
def lookahead(
    *,
    lookahead: int = 1,
    expansion: int = 4,
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Beam search of width W = max(1, C // expansion) that looks `lookahead` steps ahead.

    `Strategy.width` is C, the most candidates that are rolled out together. With a smaller width
    the best candidates by their own scores are rolled out, and the beam is smaller.

    Args:
        lookahead: k, steps of a rollout, at least 0; 0 is beam search.
        expansion: M, at least 1; C children at the root, then C // W per path.
        path_score: path score that ranks paths; its newest step score is that of the rollout.
        vote: how the finished paths give the answer.
        sampling: sampling parameters of the candidates; rollouts have temperature 0.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_count("lookahead", lookahead, 0)
    check_count("expansion", expansion, 1)
    if lookahead == 0:
        usual = beam(expansion=expansion, path_score=path_score, vote=vote, sampling=sampling)
        return dataclasses.replace(usual, name="lookahead")
    aggregated, greedy = aggregation(path_score), Sampling(temperature=0.0)
    share, sampled = share_of_candidates(expansion), share_of_candidates(lookahead + 1)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Waiting]:
        left, total = state.memory.steps_left, sampled(state.num_candidates)
        each = jnp.where(state.step == 0, total, total // share(total))
        at_end = state.frontier.depth >= state.max_depth - 1
        rolls = request(state, 1, greedy, scored=(left == 1) | at_end, score_ends=True)
        return select(left > 0, rolls, request(state, each, sampling)), state.memory

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Waiting]:
        pool, memory = state.pool, state.memory
        total = sampled(state.num_candidates)
        left, rolling = memory.steps_left, memory.steps_left > 0
        at_end = pool.done | (pool.depth >= state.max_depth)
        rows = jnp.arange(pool.valid.shape[0], dtype=jnp.int32)
        row = jnp.where(rolling, memory.row_of_slot[pool.parent], rows)
        is_scored = rolling & pool.valid & (at_end | (left == 1))
        candidates = select(rolling, _rescored(memory.candidates, pool, row, is_scored), pool)

        next_left = jnp.where(rolling, left - 1, jnp.where(total > 1, lookahead, 0))
        free = state.width - count(state.finished)
        rolls = prune(path_keys(pool, aggregated), pool.valid & ~at_end & (next_left > 0), free)
        decides = ~jnp.any(rolls) | (state.spent >= state.budget)
        places = jnp.minimum(share(total), state.width)
        places -= count(state.finished)
        lives = candidates.valid & (candidates.done | (candidates.depth < state.max_depth))
        best = prune(path_keys(candidates, aggregated), lives, places)
        slot_row, is_slot = pack(rolls, memory.row_of_slot.shape[0])
        goes_on = Waiting(candidates, jnp.where(is_slot, row[slot_row], 0), next_left)
        nothing = _nothing_waits(state)
        marked = jnp.where(decides, best, rolls)
        return select(decides, candidates, pool), marked, select(decides, nothing, goes_on)

    return Strategy(
        name="lookahead",
        plan=plan,
        width=sampled,
        sampling=tuple(dict.fromkeys((sampling, greedy))),
        aggregation=aggregated,
        keep=keep,
        answer=answer_rule(vote),
        init_memory=_nothing_waits,
        num_steps=lambda num_candidates, max_depth: max_depth * (lookahead + 1),
        weights_paths=path_score != "last",
    )


def _rescored(
    candidates: Paths, pool: Paths, row: Int[Array, " N"], is_scored: Bool[Array, " N"]
) -> Paths:
    """The candidates, with the scores of ended rollouts; `row` is the candidate of each child."""
    slots = candidates.valid.shape[0]
    # Only row numbers are scattered; what is out of bounds is dropped.
    target = jnp.where(is_scored, row, slots)
    child = (
        jnp.full((slots,), -1, jnp.int32)
        .at[target]
        .set(jnp.arange(slots, dtype=jnp.int32), mode="drop")
    )
    newest = last(pool.step_scores, pool.depth)[jnp.maximum(child, 0)]
    return with_newest_scores(candidates, child >= 0, newest)


def _nothing_waits(state: SearchState) -> Waiting:
    return Waiting(
        candidates=blank_like(state.pool),
        row_of_slot=jnp.zeros(state.frontier.valid.shape, jnp.int32),
        steps_left=jnp.int32(0),
    )
