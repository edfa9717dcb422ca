"""The fixed strategies: greedy, majority vote, best-of-N, beam search."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..aggregations import aggregation
from ..answers import answer_majority, answer_rule
from ..interface import (
    Sampling,
    Strategy,
    check_flag,
    keep_children,
    one_path,
    same_for_all,
    share_of_candidates,
)
from ..ranking import first_of_equal
from ..types import Paths, SearchState


@functools.cache
def greedy() -> Strategy:
    """One path at temperature 0; N is ignored and the PRM is not called."""
    sampling = Sampling(temperature=0.0)
    return Strategy(
        name="greedy",
        plan=same_for_all(_one_sample, sampling),
        sampling=(sampling,),
        width=one_path,
        answer=answer_majority,
        uses_scores=False,
        ignores_num_candidates=True,
    )


@functools.cache
def majority(*, sampling: Sampling = Sampling()) -> Strategy:
    """Self-consistency: N whole paths, the most frequent answer; the PRM is not called."""
    return Strategy(
        name="majority",
        plan=same_for_all(samples_then_one, sampling),
        sampling=(sampling,),
        answer=answer_majority,
        uses_scores=False,
        keeps_all_paths=True,
    )


@functools.cache
def best_of_n(
    *, path_score: str = "min", vote: str = "best", sampling: Sampling = Sampling()
) -> Strategy:
    """N whole paths; the best by path score, or (`vote="weighted"`) the vote weighted by it.

    Args:
        path_score: key of `search.aggregations.AGGREGATIONS`.
        vote: key of `search.answers.ANSWER_RULES`.
        sampling: sampling parameters of every step.

    Raises:
        ValueError: `path_score` or `vote` is unknown.
    """
    return Strategy(
        name="best_of_n" if vote == "best" else f"best_of_n_{vote}",
        plan=same_for_all(samples_then_one, sampling),
        sampling=(sampling,),
        aggregation=aggregation(path_score),
        answer=answer_rule(vote),
        needs_step_scores=path_score != "last",
        keeps_all_paths=True,
    )


def best_of_n_weighted(*, path_score: str = "min", sampling: Sampling = Sampling()) -> Strategy:
    """`best_of_n` whose answer has the largest sum of path scores."""
    return best_of_n(path_score=path_score, vote="weighted", sampling=sampling)


@functools.cache
def beam(
    *,
    expansion: int = 4,
    path_score: str = "min",
    vote: str = "best",
    sampling: Sampling = Sampling(),
    calibrated: bool = False,
    unique: bool = False,
) -> Strategy:
    """Beam search: N children at the root, then N // K of each of K = max(1, N // expansion) paths.

    Three things differ from huggingface/search-and-learn at 6f81cac. A finished path takes one of
    the K places, so that at most K paths can give the answer; there the unfinished paths share all
    N samples of a step, and the best of N finished paths is the answer. The path score is "last"
    there, and "min" here by default. Of equal scores the earlier path stays here.

    `calibrated` ranks paths by P(step right), best with `path_score` "product", see
    `search.calibration`. `unique` keeps only the first of the children of a path with equal texts,
    as its `filter_duplicates`. Here finished paths are compared, too, because they take places. A
    finished and an unfinished path are never equal. The dropped children count as candidates.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_flag("unique", unique)
    check_flag("calibrated", calibrated)
    return Strategy(
        name="beam",
        plan=same_for_all(samples_then_share, sampling),
        sampling=(sampling,),
        width=share_of_candidates(expansion),
        aggregation=aggregation(path_score),
        answer=answer_rule(vote),
        keep=keep_distinct if unique else keep_children,
        calibrated=calibrated,
        needs_calibration=calibrated,
    )


def samples_then_share(state: SearchState) -> Int[Array, ""]:
    """Numbers of samples: N at the root, then N // K per frontier node."""
    return jnp.where(state.step == 0, state.num_candidates, state.num_candidates // state.width)


def keep_distinct(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
    """The first valid child of each text below a path competes for a place."""
    return state.pool, first_of_equal(state.pool), state.memory


def samples_then_one(state: SearchState) -> Int[Array, ""]:
    """Numbers of samples: N at the root, then 1 per frontier node."""
    return jnp.where(state.step == 0, state.num_candidates, 1)


def _one_sample(state: SearchState) -> Int[Array, ""]:
    return jnp.int32(1)
