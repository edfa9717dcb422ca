"""Proportional resampling: the free places go to paths in proportion to their scores.

It differs from `particle_filtering` in three ways. A path's mass is its score, not the score's
odds. A finished path keeps its place. Finished paths vote with their masses.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..aggregations import aggregation, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, request
from ..resampling import resampling as scheme
from ..state import count
from ..types import Paths, Request, SearchState


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
        del params
        frontier = state.frontier
        scores = jnp.where(frontier.valid, path_scores(frontier, aggregated), 0.0)
        mass = jnp.where(jnp.sum(scores) > 0, scores, frontier.valid.astype(scores.dtype))
        # After the end of a search no path is left, and nothing is sampled.
        mass = jnp.where(jnp.any(frontier.valid), mass, 1.0)
        places = state.width - count(state.finished)
        return request(state, resample(key, mass, places), sampling), state.memory

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
        pool = state.pool
        # After resampling every path stands for the same mass, up to its newest score.
        weight = jnp.where(pool.valid, path_scores(pool, aggregated), 0.0)
        return pool.replace(weight=weight), pool.valid, state.memory

    return Strategy(
        name="proportional_resampling",
        plan=plan,
        sampling=(sampling,),
        aggregation=aggregated,
        keep=keep,
        weights_paths=True,
        answer=answer_rule(vote),
    )
