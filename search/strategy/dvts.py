"""Diverse verifier tree search: K independent subtrees, each keeping its best child.

Beeching, Tunstall, Rush: "Scaling test-time compute with open models" (2024).
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..aggregation import aggregation, path_keys
from ..ranking import retain as retain_best
from ..reward import RewardWeights
from ..types import Paths, Plan, SearchState
from .base import (
    Sampling,
    Strategy,
    answer_rule,
    fixed_sampling,
    no_memory,
    share_of_candidates,
)
from .fixed import samples_then_share


@functools.cache
def dvts(
    *,
    factor: int = 4,
    path_score: str = "min",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """K = max(1, N // factor) subtrees of one path each; a subtree never takes another's place."""
    aggregated = aggregation(path_score)

    def retain(state: SearchState, plan: Plan) -> tuple[Paths, Bool[Array, " N"], Any]:
        pool = state.pool
        one_each = jnp.ones(pool.valid.shape, jnp.int32)
        keep = retain_best(path_keys(pool, aggregated), pool.group, pool.valid, one_each)
        return pool, keep, plan.memory

    return Strategy(
        name="dvts",
        num_phases=1,
        uses_scores=True,
        width=share_of_candidates(factor),
        aggregation=aggregated,
        reward=RewardWeights(),
        init_memory=no_memory,
        decide=fixed_sampling(samples_then_share, sampling),
        retain=retain,
        answer=answer_rule(vote, aggregated),
    )
