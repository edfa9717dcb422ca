"""Particle filtering: paths are resampled in proportion to their PRM score, then grow one step.

Puri et al.: "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using
Particle-Based Monte Carlo Methods" (2025). In the paper finished particles are resampled too; here
they keep their places, and the others are resampled among themselves.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregation import aggregation, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, request
from ..state import count
from ..types import Paths, Request, SearchState


@functools.cache
def particle_filtering(
    *, path_score: str = "last", vote: str = "weighted", sampling: Sampling = Sampling()
) -> Strategy:
    """N particles; a path's number of children is drawn by systematic resampling."""
    aggregated = aggregation(path_score)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Any]:
        del params
        places = state.width - count(state.finished)
        weights = jnp.where(state.frontier.valid, path_scores(state.frontier, aggregated), 0.0)
        multiplicity = systematic_resample(key, weights, state.frontier.valid, places)
        return request(state, multiplicity, sampling), state.memory

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
        pool = state.pool
        # After resampling every particle stands for the same mass, up to its newest score.
        weight = jnp.where(pool.valid, path_scores(pool, aggregated), 0.0)
        return pool.replace(weight=weight), pool.valid, state.memory

    return Strategy(
        name="particle_filtering",
        plan=plan,
        sampling=(sampling,),
        aggregation=aggregated,
        keep=keep,
        weights_paths=True,
        answer=answer_rule(vote),
    )


def systematic_resample(
    key: jax.Array,
    weights: Float[Array, " N"],
    valid: Bool[Array, " N"],
    total: Int[Array, ""],
) -> Int[Array, " N"]:
    """Numbers of copies, proportional to `weights` up to rounding, that sum to `total`.

    One uniform offset decides all roundings, so that a row's copies are the floor or the ceiling
    of its expected number. Where all weights are 0 the valid rows share equally.
    """
    mass = jnp.where(valid, weights, 0.0)
    mass = jnp.where(jnp.sum(mass) > 0, mass, valid.astype(weights.dtype))
    cumulative = jnp.cumsum(mass)
    shares = cumulative / jnp.maximum(cumulative[-1], jnp.finfo(weights.dtype).tiny)
    offset = jax.random.uniform(key, (), weights.dtype)
    bounds = jnp.floor(shares * total.astype(weights.dtype) + offset).astype(jnp.int32)
    # Rounding may leave the last valid row's bound one off; the sum must be exact.
    is_last = cumulative >= cumulative[-1]
    bounds = jnp.where(is_last, total, jnp.minimum(bounds, total))
    return jnp.diff(bounds, prepend=jnp.zeros((1,), jnp.int32))
