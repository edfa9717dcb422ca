"""Particle filtering: N particles grow one step each, and are then resampled by their weights.

Puri et al.: "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using
Particle-Based Monte Carlo Methods" (2025), arXiv:2502.01618, and the authors' its_hub at e4d00d1. A
particle's weight is (s / (1 - s))^(1 / T), with s its path score: that of its newest step. All N
particles are resampled, the finished ones too: one that is drawn twice stands twice, and one that
is not drawn is lost. The search ends when all are finished, and answers with the finished particle
of the largest weight, or with one drawn by weight.

Three things differ from its_hub. Particles are resampled before a step and not after it, so the
last step's are not resampled before the answer is chosen. Only particles with an answer are chosen.
Resampling may also be systematic or residual.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logit
from jaxtyping import Array, Bool, Float, Int

from ..aggregation import Aggregation, aggregation, path_scores
from ..answers import AnswerRule, answer_rule
from ..interface import Sampling, Strategy, request
from ..resampling import resampling as scheme
from ..selection import best
from ..state import take
from ..types import Context, Paths, Request, SearchState
from .types import Resampled

_CLIP = 1e-7
"""Distance of a score from 0 and 1, at least, as in its_hub."""

SAMPLED = "sampled"
"""The answer of a particle that is drawn by weight."""


@functools.cache
def particle_filtering(
    *,
    weight_temperature: float = 1.0,
    resampling: str = "multinomial",
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N particles, resampled before each step in proportion to (s / (1 - s))^(1 / T).

    Args:
        weight_temperature: T, > 0.
        resampling: "multinomial" (published), "systematic" or "residual", see `search.resampling`.
        path_score: the score s of a path.
        vote: "best" and "sampled" as published: the particle of the largest weight, or one drawn by
            weight. "majority" and "weighted": votes of the particles.
        sampling: of all steps.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if not weight_temperature > 0:
        raise ValueError(f"weight_temperature must be > 0, got {weight_temperature}")
    aggregated, resample = aggregation(path_score), scheme(resampling)
    is_drawn = vote == SAMPLED

    def log_weights(paths: Paths, aggregation: Aggregation = aggregated) -> Float[Array, " N"]:
        score = jnp.clip(path_scores(paths, aggregation), _CLIP, 1 - _CLIP)
        return jnp.where(paths.valid, logit(score) / weight_temperature, -jnp.inf)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Resampled]:
        del params
        draw, noise = jax.random.split(key)
        both = jnp.concatenate([log_weights(state.frontier), log_weights(state.finished)])
        # After the end of a search there may be no particle, and nothing is sampled.
        both = jnp.where(jnp.isfinite(jnp.max(both)), both, 0.0)
        copies = resample(draw, jax.nn.softmax(both), state.width)
        grows, stays = jnp.split(copies, [state.frontier.valid.shape[0]])
        memory = Resampled(stays, _gumbel(noise, state.memory.noise.shape[0]))
        return request(state, grows, sampling), memory

    def keep_finished(state: SearchState) -> Paths:
        copies = state.memory.copies
        rows = jnp.arange(copies.shape[0], dtype=jnp.int32)
        drawn = jnp.repeat(rows, copies, total_repeat_length=rows.shape[0])
        paths = take(state.finished, drawn).replace(valid=rows < jnp.sum(copies))
        weight = state.memory.noise[-rows.shape[0] :] if is_drawn else paths.weight
        return paths.replace(weight=weight)

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
        pool = state.pool
        weight = state.memory.noise[: pool.valid.shape[0]] if is_drawn else pool.weight
        return pool.replace(weight=weight), pool.valid, state.memory

    def answer_drawn(
        params: Any, finished: Paths, context: Context, aggregation: Aggregation
    ) -> Int[Array, ""]:
        del params, context
        # The largest of log-weights with Gumbel noise is a draw by weight.
        keys = log_weights(finished, aggregation) + finished.weight
        return best(keys, finished.answer, finished.valid)

    rule: AnswerRule = answer_drawn if is_drawn else answer_rule(vote)
    return Strategy(
        name="particle_filtering",
        plan=plan,
        sampling=(sampling,),
        aggregation=aggregated,
        keep=keep,
        keep_finished=keep_finished,
        weights_paths=True,
        answer=rule,
        init_memory=functools.partial(_nothing_drawn, noisy=is_drawn),
    )


def _nothing_drawn(state: SearchState, noisy: bool) -> Resampled:
    slots = state.finished.valid.shape[0]
    size = state.pool.valid.shape[0] + slots if noisy else 0
    return Resampled(jnp.zeros((slots,), jnp.int32), jnp.zeros((size,), jnp.float32))


def _gumbel(key: jax.Array, size: int) -> Float[Array, " N"]:
    """Independent numbers, of which the i-th follows from `key` and i alone."""
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(size, dtype=jnp.int32))
    return jax.vmap(lambda each: jax.random.gumbel(each, (), jnp.float32))(keys)
