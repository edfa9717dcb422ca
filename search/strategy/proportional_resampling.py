"""Proportional resampling: the free places go to paths in proportion to their scores.

It differs from `particle_filtering` in three ways. A path's mass is its score, not the score's
odds. A finished path keeps its place. A finished path's vote is its path score.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from ..aggregations import aggregation, relative_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, request
from ..resampling import resampling as scheme
from ..state import count
from ..types import Request, SearchState


@functools.cache
def proportional_resampling(
    *,
    path_score: str = "last",
    resampling: str = "systematic",
    vote: str = "weighted",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N paths; the numbers of children are drawn in proportion to the path scores."""
    aggregated, resample = aggregation(path_score), scheme(resampling)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Any]:
        frontier = state.frontier
        scores = relative_scores(frontier, aggregated, frontier.valid)
        scores = jnp.where(frontier.valid, scores, 0.0)
        mass = jnp.where(jnp.sum(scores) > 0, scores, frontier.valid.astype(scores.dtype))
        # After the end of a search no path is left, and nothing is sampled.
        mass = jnp.where(jnp.any(frontier.valid), mass, 1.0)
        places = state.width - count(state.finished)
        return request(state, resample(key, mass, places), sampling), state.memory

    return Strategy(
        name="proportional_resampling",
        plan=plan,
        sampling=(sampling,),
        aggregation=aggregated,
        answer=answer_rule(vote),
    )
