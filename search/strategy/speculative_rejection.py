"""Speculative rejection: best-of-N that drops its worst paths when memory is full.

Sun et al.: "Fast Best-of-N Decoding via Speculative Rejection" (2024), arXiv:2410.20290, and the
authors' code (Zanette-Labs/SpeculativeRejection). N whole paths begin. When the unfinished ones
have more tokens than the memory, all paths, finished ones included, are ranked by the scores of
their newest steps, and the worst share of them is dropped.

Six things differ from the code. Memory is a number of tokens and not that of a GPU, and N is given
and not the most that fit. Paths are checked after each step and not after each token. The PRM
scores every step, because the loop can't request a score of an earlier step; their reward model
reads each path from its beginning at every check. At least one path is kept: if round((1 - alpha)
n) is 0 for n ranked paths, the code keeps none and ends. Among equal scores the lower row comes
first; in the code those that had ended come first, and then the better rank at the last check. A
finished path that is dropped leaves the ranking and may still answer; the code also drops its
answer if it has just ended.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..aggregations import aggregation, path_keys
from ..answers import answer_rule
from ..interface import Sampling, Strategy, check_count, same_for_all
from ..ranking import prune, prune_all
from ..state import MAX_CANDIDATES, count, pack
from ..types import Paths, SearchState
from .fixed import samples_then_one
from .types import Rejection


@functools.cache
def speculative_rejection(
    *,
    rejection: float = 0.5,
    memory_tokens: int = 2048,
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N whole paths; the worst are dropped at the end of a step that exceeds the memory.

    Args:
        rejection: alpha, the share of the ranked paths that is dropped, in [0, 1).
        memory_tokens: most tokens of all unfinished paths together, without the question, >= 0.
        path_score: path score that ranks paths; the newest step's score as published.
        vote: how the finished paths give the answer; the best as published.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if not 0.0 <= rejection < 1.0:
        raise ValueError(f"rejection must be in [0, 1), got {rejection}")
    check_count("memory_tokens", memory_tokens, 0)
    aggregated = aggregation(path_score)
    numbers = [max(1, round((1.0 - rejection) * number)) for number in range(MAX_CANDIDATES + 1)]

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Rejection]:
        pool, finished, memory = state.pool, state.finished, state.memory
        length = memory.length[pool.parent] + pool.num_tokens
        live = pool.valid & ~pool.done
        is_full = jnp.sum(jnp.where(live, length, 0), dtype=jnp.int32) > memory_tokens
        kept_of = jnp.asarray(numbers, jnp.int32)
        kept = prune_all(state, aggregated, memory.ranked, lambda number: kept_of[number])
        old, new = (mask | ~is_full for mask in kept)
        # A recipe may set fewer places than N.
        places = state.width - count(finished)
        marked = prune(path_keys(pool, aggregated), pool.valid & (new | pool.done), places)
        slots = finished.valid.shape[0]
        source, grown = pack(marked & live, slots)
        ended, is_new = pack(marked & pool.done, slots, count(finished))
        memory = Rejection(
            length=jnp.where(grown, length[source], 0),
            ranked=jnp.where(is_new, new[ended], memory.ranked & old & finished.valid),
        )
        return pool, marked, memory

    return Strategy(
        name="speculative_rejection",
        plan=same_for_all(samples_then_one, sampling),
        sampling=(sampling,),
        aggregation=aggregated,
        keep=keep,
        answer=answer_rule(vote),
        init_memory=_empty_memory,
    )


def _empty_memory(state: SearchState) -> Rejection:
    slots = state.frontier.valid.shape
    return Rejection(length=jnp.zeros(slots, jnp.int32), ranked=jnp.zeros(slots, bool))
