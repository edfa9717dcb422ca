"""The fixed strategies: greedy, majority vote, best-of-N, beam search."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from ..aggregation import AGGREGATIONS, aggregation
from ..reward import RewardWeights
from ..types import SearchState
from .base import (
    Sampling,
    Strategy,
    answer_rule,
    fixed_sampling,
    no_memory,
    retain_children,
    share_of_candidates,
)


@functools.cache
def greedy() -> Strategy:
    """One path at temperature 0; N is ignored and the PRM is not called."""
    path_score = AGGREGATIONS["min"]
    return Strategy(
        name="greedy",
        num_phases=1,
        uses_scores=False,
        width=_one_path,
        aggregation=path_score,
        reward=RewardWeights(),
        init_memory=no_memory,
        decide=fixed_sampling(_one_sample, Sampling(temperature=0.0)),
        retain=retain_children(path_score),
        answer=answer_rule("majority", path_score),
    )


@functools.cache
def majority(*, sampling: Sampling = Sampling()) -> Strategy:
    """Self-consistency: N whole paths, the most frequent answer; the PRM is not called."""
    path_score = AGGREGATIONS["min"]
    return Strategy(
        name="majority",
        num_phases=1,
        uses_scores=False,
        width=_all_candidates,
        aggregation=path_score,
        reward=RewardWeights(),
        init_memory=no_memory,
        decide=fixed_sampling(_samples_then_one, sampling),
        retain=retain_children(path_score),
        answer=answer_rule("majority", path_score),
    )


@functools.cache
def best_of_n(
    *, path_score: str = "min", vote: str = "best", sampling: Sampling = Sampling()
) -> Strategy:
    """N whole paths; the best by path score, or (`vote="weighted"`) the vote weighted by it."""
    aggregated = aggregation(path_score)
    return Strategy(
        name="best_of_n" if vote == "best" else f"best_of_n_{vote}",
        num_phases=1,
        uses_scores=True,
        width=_all_candidates,
        aggregation=aggregated,
        reward=RewardWeights(),
        init_memory=no_memory,
        decide=fixed_sampling(_samples_then_one, sampling),
        retain=retain_children(aggregated),
        answer=answer_rule(vote, aggregated),
    )


@functools.cache
def beam(
    *,
    factor: int = 4,
    path_score: str = "min",
    vote: str = "best",
    sampling: Sampling = Sampling(),
    calibrated: bool = False,
) -> Strategy:
    """Beam search of width K = max(1, N // factor): N children at the root, then N // K each.

    `calibrated` ranks by P(step right), see `search.calibration`; its `path_score` should then be
    "product".
    """
    aggregated = aggregation(path_score)
    return Strategy(
        name="beam",
        num_phases=1,
        uses_scores=True,
        width=share_of_candidates(factor),
        aggregation=aggregated,
        reward=RewardWeights(),
        init_memory=no_memory,
        decide=fixed_sampling(samples_then_share, sampling),
        retain=retain_children(aggregated),
        answer=answer_rule(vote, aggregated),
        calibrated=calibrated,
    )


def samples_then_share(state: SearchState) -> Int[Array, ""]:
    """N at the root, then N // K per frontier node."""
    return jnp.where(state.step == 0, state.num_candidates, state.num_candidates // state.width)


def _samples_then_one(state: SearchState) -> Int[Array, ""]:
    return jnp.where(state.step == 0, state.num_candidates, 1)


def _one_sample(state: SearchState) -> Int[Array, ""]:
    del state
    return jnp.int32(1)


def _one_path(num_candidates: Any) -> Any:
    return num_candidates // num_candidates


def _all_candidates(num_candidates: Any) -> Any:
    return num_candidates
