"""DeepConf online: a warm-up sets a bar, and paths of lower confidence are stopped as they grow.

Fu et al.: "Deep Think with Confidence" (2025), arXiv:2508.15260, and `wrapper.py` in the authors'
code, facebookresearch/deepconf at 675529d. The paths of the warm-up are written to their ends; the
bar is a percentile of their confidences. Each later path is stopped once a window of its tokens is
below the bar. All paths at or above the bar vote with their confidence. The confidence is the
smallest mean of `window_size` consecutive tokens.

What differs from the authors' code:

- A path is stopped at the end of a step and not at a token.
- N is their `total_budget`, which does not limit the warm-up there.
- Confidences are computed as in `certainty_votes`.
- A path that was cut at its limit does not count as finished, so it does not set the bar.
- If no path of the warm-up has ended, the search ends.
- If only paths below the bar have an answer, the first of them gives the answer; the authors' vote
  leaves such paths out.
- By default, their `deepthink` replaces the weighted vote by a majority vote of the same paths. The
  paper weights the votes.

The paper also stops sampling when most of the vote's weight is on one answer. Neither their code
nor this strategy does.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import AGGREGATIONS, path_keys
from ..answers import answer_by_weight
from ..certainty import Certainty
from ..interface import Sampling, Strategy, check_count, same_for_all
from ..ranking import prune
from ..state import count, growing, join, pack, question_of
from ..types import Paths, SearchState
from .certainty_votes import quantile
from .types import Warmup


@functools.cache
def deepconf_online(
    *,
    warmup_traces: int = 16,
    confidence_percentile: float = 90.0,
    window_size: int = 2048,
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N whole paths at most; after a warm-up, uncertain ones are stopped. The PRM is not called.

    Args:
        warmup_traces: paths of the warm-up, >= 1; N if that is less.
        confidence_percentile: eta, in [0, 100); the bar is the (100 - eta)-th percentile.
        window_size: tokens of a window, >= 1. A path of fewer tokens is not stopped.

    Raises:
        ValueError: an argument is out of range.
    """
    check_count("warmup_traces", warmup_traces, 1)
    check_count("window_size", window_size, 1)
    if not 0.0 <= confidence_percentile < 100.0:
        raise ValueError(f"confidence_percentile must be in [0, 100), got {confidence_percentile}")
    share = 1.0 - confidence_percentile / 100.0

    def num_children(state: SearchState) -> Int[Array, " N"]:
        first = jnp.minimum(warmup_traces, state.num_candidates)
        begins = jnp.where(state.memory.is_over, state.num_candidates - first, first)
        return jnp.where(state.frontier.depth == 0, begins, 1)

    def keep_finished(state: SearchState) -> Paths:
        return _weighed(state.finished, _bar_of(state, share)[0])

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " M"], Warmup]:
        memory, pool, taken = state.memory, state.pool, count(state.finished)
        bar, over = _bar_of(state, share)
        length = memory.length[pool.parent] + pool.num_tokens
        stopped = memory.is_over & (length >= window_size) & (pool.certainty < bar)
        grows, ends = growing(state) & ~stopped, pool.valid & pool.done & ~stopped
        ended = taken + jnp.sum(ends, dtype=jnp.int32)
        begins = over & ~memory.is_over & _has_room(state, ended, warmup_traces)
        paths = join(memory.root, _weighed(pool, bar))
        marked = jnp.concatenate([begins[None], grows | ends])
        # A recipe may set fewer places than N.
        marked = prune(path_keys(paths, AGGREGATIONS["min"]), marked, state.width - taken)
        source, is_grown = pack(marked & ~paths.done, state.frontier.valid.shape[0])
        lengths = jnp.concatenate([jnp.zeros((1,), jnp.int32), length])[source]
        lengths = jnp.where(is_grown, lengths, 0)
        return paths, marked, memory.replace(bar=bar, is_over=over, length=lengths)

    return Strategy(
        name="deepconf_online",
        plan=same_for_all(num_children, sampling),
        keep=keep,
        keep_finished=keep_finished,
        answer=answer_by_weight,
        init_memory=_no_warmup,
        num_steps=lambda num_candidates, max_depth: 2 * max_depth,
        # Each path of the warm-up took at most one child of a node.
        earlier_draws=lambda state: jnp.where(
            state.memory.is_over, jnp.minimum(warmup_traces, state.num_candidates), 0
        ),
        sampling=(sampling,),
        certainty=Certainty("top", "least", window_size),
        uses_scores=False,
        weights_paths=True,
    )


def _no_warmup(state: SearchState) -> Warmup:
    return Warmup(
        root=question_of(state),
        bar=jnp.float32(0.0),
        is_over=jnp.bool_(False),
        length=jnp.zeros(state.frontier.valid.shape, jnp.int32),
    )


def _has_room(state: SearchState, ended: Int[Array, ""], warmup_traces: int) -> Bool[Array, ""]:
    """Whether paths can follow a warm-up of which `ended` paths have ended."""
    # A root without a budget would count as a path that ended.
    return (
        (ended > 0)
        & (state.num_candidates > warmup_traces)
        & (ended < state.width)
        & (state.spent < state.budget)
    )


def _bar_of(state: SearchState, share: float) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The bar after this step, and whether the warm-up has ended."""
    finished, pool, memory = state.finished, state.pool, state.memory
    over = memory.is_over | ~jnp.any(growing(state))
    confidences = jnp.concatenate([finished.certainty, pool.certainty])
    here = jnp.concatenate([finished.valid, pool.valid & pool.done])
    is_new = over & ~memory.is_over & jnp.any(here)
    return jnp.where(is_new, quantile(confidences, here, share), memory.bar), over


def _weighed(paths: Paths, bar: Float[Array, ""]) -> Paths:
    """The paths with their votes: their confidence, or 0 below the bar."""
    return paths.replace(weight=jnp.where(paths.certainty >= bar, paths.certainty, 0.0))
