"""Methods that write one path after the other and decide after each whether to write another.

The frontier holds one path. When it ends, `keep` returns the root again, and the next path begins.
N is the largest number of paths. A method with parameters decides in `plan`: to stop, it samples
nothing at the root, and the search ends with this step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import AGGREGATIONS, Aggregation, aggregation, path_scores
from ..answers import AnswerRule, answer_majority, answer_rule
from ..interface import Sampling, Strategy, check_flag, request
from ..state import compact, count, growing, join, question_of, select
from ..types import Paths, Request, SearchState
from .types import PathCount


@functools.cache
def adaptive_consistency(*, confidence: float = 0.95, sampling: Sampling = Sampling()) -> Strategy:
    """Majority vote over whole paths that stops once the leading answer is unlikely to change.

    After each path, with v1 and v2 votes for the two most frequent answers, the search stops if P(p
    < 1/2) > `confidence` for p ~ Beta(v2 + 1, v1 + 1), the share of the second answer among the
    two. Aggarwal et al.: "Let's Sample Step by Step: Adaptive-Consistency for Efficient Reasoning
    and Coding with LLMs" (2023), arXiv:2305.11860, and the authors' code,
    Pranjal2041/AdaptiveConsistency at 899ab56; their confidence is .95. Their code also stops if
    the probability equals `confidence`; here rounding decides. As in their evaluation, a path
    without an answer does not vote. The PRM is not called.

    Args:
        confidence: in (.5, 1); a larger one needs more paths.

    Raises:
        ValueError: `confidence` is out of range.
    """
    if not 0.5 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0.5, 1), got {confidence}")

    def stops(finished: Paths) -> Bool[Array, ""]:
        # Without an answer the probability is 1/2 up to rounding.
        answered = jnp.any(finished.valid & (finished.answer >= 0))
        return answered & (leader_stays(finished.answer, finished.valid) > confidence)

    return path_by_path(
        name="adaptive_consistency",
        stops=stops,
        samplings=(sampling, sampling),
        answer=answer_majority,
        uses_scores=False,
    )


@functools.cache
def sequential_best_of_n(
    *,
    stop: float = 0.9,
    abort: float = 0.0,
    greedy_first: bool = False,
    path_score: str = "min",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Best-of-N that stops at the first good path and drops bad ones early; not published.

    The search stops when a finished path with an answer has a path score of at least `stop`. A path
    whose score falls below `abort` is dropped, unless there is no answer and it is the last one,
    which is the N-th or the one that spends the budget.

    Args:
        stop: path score that ends the search; above 1 it never does.
        abort: path score below which a path is dropped; 0 drops none.
        greedy_first: whether the first path is sampled at temperature 0.
        path_score: name of the aggregation of step scores.
        vote: name of the answer rule among the finished paths.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_flag("greedy_first", greedy_first)
    for name, value in (("stop", stop), ("abort", abort)):
        if not value >= 0.0:
            raise ValueError(f"{name} must be a path score >= 0, got {value}")
    aggregated = aggregation(path_score)

    def stops(finished: Paths) -> Bool[Array, ""]:
        good = path_scores(finished, aggregated) >= stop
        return jnp.any(finished.valid & (finished.answer >= 0) & good)

    return path_by_path(
        name="sequential_best_of_n",
        stops=stops,
        abort=abort,
        samplings=(Sampling(temperature=0.0) if greedy_first else sampling, sampling),
        aggregated=aggregated,
        answer=answer_rule(vote),
        # At abort = 0 no unfinished path is dropped.
        needs_step_scores=path_score != "last" or abort > 0.0,
    )


def leader_stays(answer: Int[Array, " N"], valid: Bool[Array, " N"]) -> Float[Array, ""]:
    """P(the most frequent answer is more likely than the second), f32[] in [0, 1].

    With v1 and v2 votes it is the Beta(v2 + 1, v1 + 1) distribution function at 1/2, under a
    uniform prior: .5 without votes, 1 - 2^-(v + 1) when all v votes agree.
    """
    voter = valid & (answer >= 0)
    same = voter[None, :] & voter[:, None] & (answer[None, :] == answer[:, None])
    votes = jnp.sum(same, axis=1, dtype=jnp.int32)
    first = jnp.max(votes, initial=0)
    leads = voter & (answer == answer[jnp.argmax(votes)])
    second = jnp.max(jnp.where(leads, 0, votes), initial=0)
    v1, v2 = first.astype(jnp.float32), second.astype(jnp.float32)
    return jax.scipy.special.betainc(v2 + 1.0, v1 + 1.0, 0.5)


def path_by_path(
    *,
    name: str,
    stops: Callable[[Paths], Bool[Array, ""]] | None = None,
    decides: Callable[[Any, SearchState], Bool[Array, ""]] | None = None,
    samplings: tuple[Sampling, Sampling],
    answer: AnswerRule,
    abort: float = 0.0,
    aggregated: Aggregation = AGGREGATIONS["min"],
    uses_scores: bool = True,
    needs_step_scores: bool = True,
) -> Strategy:
    """A strategy with one path at a time.

    Args:
        stops: whether the finished paths are enough; None: never.
        decides: `(params, state) -> stop`, whether the search stops before it begins another path;
            `state.memory.begun` counts that path. None: never.
        samplings: sampling parameters of the first path and of the others.
        abort: path score below which a path is dropped.
        aggregated: aggregation of step scores, for methods that call the PRM.
        uses_scores: whether the PRM is called.
        needs_step_scores: whether scores of unfinished paths are read.
    """
    first, others = samplings

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, PathCount]:
        is_first = state.memory.begun == 1
        samples: Any = 1
        if decides is not None:
            begins = ~is_first & (state.frontier.depth == 0)
            samples = jnp.where(begins & decides(params, state), 0, 1)
        asked = select(is_first, request(state, samples, first), request(state, samples, others))
        return asked, state.memory

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " M"], PathCount]:
        pool, memory = state.pool, state.memory
        is_last = (memory.begun >= state.num_candidates) | (state.spent >= state.budget)
        has_answer = jnp.any(state.finished.valid & (state.finished.answer >= 0))
        bad = (path_scores(pool, aggregated) < abort) & (has_answer | ~is_last)
        grows, ends = growing(state) & ~bad, pool.valid & pool.done & ~bad
        finished = compact(pool, ends, state.finished)
        goes_on = ~jnp.any(grows) & ~is_last & (count(finished) < state.width)
        if stops is not None:
            goes_on &= ~stops(finished)
        stopped = state.used == 0
        # A root without a budget would count as a path that ended.
        begins = goes_on & ~stopped & (state.spent < state.budget)
        change = begins.astype(jnp.int32) - stopped.astype(jnp.int32)
        marked = jnp.concatenate([begins[None], grows | ends])
        return join(memory.root, pool), marked, memory.replace(begun=memory.begun + change)

    return Strategy(
        name=name,
        plan=plan,
        aggregation=aggregated,
        keep=keep,
        answer=answer,
        init_memory=_first_path,
        # The last step may be the one in which the search stops.
        num_steps=lambda num_candidates, max_depth: (
            num_candidates * max_depth + int(decides is not None)
        ),
        # Each earlier path took at most one child of a node.
        earlier_draws=lambda state: state.memory.begun - 1,
        sampling=tuple(dict.fromkeys(samplings)),
        uses_scores=uses_scores,
        needs_step_scores=needs_step_scores,
    )


def _first_path(state: SearchState) -> PathCount:
    return PathCount(root=question_of(state), begun=jnp.int32(1))
