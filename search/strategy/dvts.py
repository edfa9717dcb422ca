"""Diverse verifier tree search: K independent subtrees, each keeping its best child.

Beeching, Tunstall, Rush: "Scaling test-time compute with open models" (2024). Two things differ
from huggingface/search-and-learn. There the last iteration returns all completions of each subtree,
so that N paths vote; here each subtree has one path, so that K do. The path score is "last" there,
and "min" here by default.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..aggregations import aggregation, path_keys
from ..answers import answer_rule
from ..interface import Sampling, Strategy, same_for_all, share_of_candidates
from ..ranking import retain
from ..types import Paths, SearchState
from .fixed import samples_then_share


@functools.cache
def dvts(
    *,
    expansion: int = 4,
    path_score: str = "min",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Diverse verifier tree search with K = max(1, N // expansion) subtrees of one path each.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    aggregated = aggregation(path_score)

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
        pool = state.pool
        one_each = jnp.ones(pool.valid.shape, jnp.int32)
        marked = retain(path_keys(pool, aggregated), pool.group, pool.valid, one_each)
        return pool, marked, state.memory

    return Strategy(
        name="dvts",
        plan=same_for_all(samples_then_share, sampling),
        sampling=(sampling,),
        width=share_of_candidates(expansion),
        aggregation=aggregated,
        keep=keep,
        answer=answer_rule(vote),
    )
