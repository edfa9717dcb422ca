"""Early-stopping self-consistency: windows of whole paths, until all answers of a window agree.

Li et al.: "Escape Sky-high Cost: Early-stopping Self-Consistency for Multi-step Reasoning" (2024),
arXiv:2401.10480, and the authors' code, Yiwei98/ESC at 799157a. The window that agrees gives the
answer, as in that code; without one, all N paths vote.

Three things differ from the code. A window agrees only if each of its paths has an answer; in the
code, paths without an answer agree with each other. If `window` does not divide N, the last paths
are fewer than a window; they only vote, and the code leaves them out. Windows are sampled in turn,
as in the paper; the code samples all paths beforehand.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..answers import answer_by_weight
from ..interface import Sampling, Strategy, check_count, same_for_all
from ..state import count, growing, join, question_of
from ..types import Paths, SearchState
from .types import WindowCount


@functools.cache
def early_stopping_consistency(*, window: int = 5, sampling: Sampling = Sampling()) -> Strategy:
    """Majority vote of at most N whole paths; stops at a window that agrees. The PRM is not called.

    Args:
        window: w, paths that are sampled together, >= 1; the authors take 5.

    Raises:
        ValueError: `window` is out of range.
    """
    check_count("window", window, 1)

    def num_children(state: SearchState) -> Int[Array, " N"]:
        return jnp.where(state.frontier.depth == 0, _size(state, window), 1)

    def keep_finished(state: SearchState) -> Paths:
        # Earlier windows have no vote once a window agrees.
        finished = state.finished
        rows = jnp.arange(finished.valid.shape[0], dtype=jnp.int32)
        silent = _agrees(state, window) & (rows < state.memory.before)
        return finished.replace(weight=jnp.where(silent, 0.0, finished.weight))

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " M"], WindowCount]:
        memory, pool = state.memory, state.pool
        grows, ends = growing(state), pool.valid & pool.done
        finished = count(state.finished) + jnp.sum(ends, dtype=jnp.int32)
        stops = (
            _agrees(state, window)
            | (memory.begun >= state.num_candidates)
            | (finished >= state.width)
        )
        # A root without a budget would count as a path that ended.
        begins = ~jnp.any(grows) & ~stops & (state.spent < state.budget)
        begun = jnp.minimum(memory.begun + window, state.num_candidates)
        memory = memory.replace(
            begun=jnp.where(begins, begun, memory.begun),
            before=jnp.where(begins, finished, memory.before),
        )
        marked = jnp.concatenate([begins[None], grows | ends])
        return join(memory.root, pool), marked, memory

    return Strategy(
        name="early_stopping_consistency",
        plan=same_for_all(num_children, sampling),
        keep=keep,
        keep_finished=keep_finished,
        answer=answer_by_weight,
        init_memory=functools.partial(_first_window, window=window),
        num_steps=lambda num_candidates, max_depth: -(-num_candidates // window) * max_depth,
        # Each path of an earlier window took at most one child of a node.
        earlier_draws=lambda state: state.memory.begun - _size(state, window),
        sampling=(sampling,),
        uses_scores=False,
        weights_paths=True,
    )


def _first_window(state: SearchState, window: int) -> WindowCount:
    return WindowCount(
        root=question_of(state),
        begun=jnp.minimum(window, state.num_candidates),
        before=jnp.int32(0),
    )


def _size(state: SearchState, window: int) -> Int[Array, ""]:
    """Paths of the window in progress."""
    return (state.memory.begun - 1) % window + 1


def _agrees(state: SearchState, window: int) -> Bool[Array, ""]:
    """Whether a full window has ended with equal answers of all its paths."""
    finished, pool = state.finished, state.pool
    rows = jnp.arange(finished.valid.shape[0], dtype=jnp.int32)
    earlier = rows < state.memory.before
    ours = jnp.concatenate([finished.valid & ~earlier, pool.valid & pool.done])
    answers = jnp.concatenate([finished.answer, pool.answer])
    lowest = jnp.min(answers, initial=jnp.iinfo(jnp.int32).max, where=ours)
    highest = jnp.max(answers, initial=-1, where=ours)
    # The last paths of a search may be fewer, and a single path always agrees with itself.
    whole = jnp.sum(ours, dtype=jnp.int32) == window
    return ~jnp.any(growing(state)) & whole & (lowest == highest) & (lowest >= 0)
