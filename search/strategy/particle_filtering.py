"""Particle filtering: N particles grow one step each, and are then resampled by their weights.

Puri et al.: "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using
Particle-Based Monte Carlo Methods" (2025), arXiv:2502.01618, and the authors' its_hub at e4d00d1. A
particle's weight is (s / (1 - s))^(1 / T), where s is its path score: that of its newest step. All
N particles are resampled, the finished ones too. The search ends when all are finished. The
finished particle of the largest weight, or one drawn by weight, gives the answer.

Three things differ from its_hub. Particles are resampled before a step, so not before the choice of
the answer. Only particles with an answer are chosen. Resampling may be systematic or residual.

`tempering` adds the entropic annealing of Giannone et al.: "Mitigating Premature Exploitation in
Particle-based Monte Carlo for Inference-Time Scaling" (2025), arXiv:2510.05825, as in its_hub.
While few particles have most of the mass early in a search, the log-weights are divided by a
temperature. its_hub then resamples systematically by default. Two things differ: invalid candidates
are not particles, and the entropy of two particles is normalised like that of more. The paper's
look-ahead modulation is left out, as in its_hub.

`weight_source="confidence"` is the weight of its_hub's later versions: s is the geometric mean of
the newest step's token probabilities, and the PRM is not called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logit
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import aggregation, path_scores
from ..answers import AnswerRule, answer_rule
from ..interface import Sampling, Strategy, keep_children, request
from ..resampling import drawn, or_equal
from ..resampling import resampling as scheme
from ..selection import best, weighted_vote
from ..types import Paths, Request, SearchState
from .types import Resampled

_CLIP = 1e-7
"""Smallest distance of a score from 0 and 1, as in its_hub."""

SAMPLED = "sampled"
"""The vote that draws a particle by weight."""

TEMPERINGS = ("none", "ess", "entropy", "base")
"""Temperatures of entropic annealing, see `tempered`."""

WEIGHT_SOURCES = ("prm", "confidence")
"""Where the score of a particle comes from."""


@functools.cache
def particle_filtering(
    *,
    weight_temperature: float = 1.0,
    weight_source: str = "prm",
    tempering: str = "none",
    ess_threshold: float = 0.5,
    early_phase: float = 0.5,
    resampling: str = "multinomial",
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N particles, resampled before each step in proportion to (s / (1 - s))^(1 / T).

    Args:
        weight_temperature: T, > 0.
        weight_source: "prm": s is the path score. "confidence": s is exp(mean log-probability of
            the newest step's tokens) under the policy, and the PRM is not called.
        tempering: entropic annealing: "none", "ess", "entropy" or "base", see `tempered`.
        ess_threshold: effective sample size, as a share of the particles in (0, 1], below which
            weights are tempered.
        early_phase: share of the depth, in (0, 1], before which weights are tempered.
        resampling: "multinomial" (published), "systematic" or "residual", see `search.resampling`.
        path_score: the score s of a path.
        vote: "best" and "sampled" as published: the particle of the largest weight, or one drawn by
            weight. "majority" and "weighted": votes of the particles.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if not weight_temperature > 0:
        raise ValueError(f"weight_temperature must be > 0, got {weight_temperature}")
    for name, value, known in (
        ("weight_source", weight_source, WEIGHT_SOURCES),
        ("tempering", tempering, TEMPERINGS),
    ):
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
    for name, share in (("ess_threshold", ess_threshold), ("early_phase", early_phase)):
        if not 0.0 < share <= 1.0:
            raise ValueError(f"{name} must be in (0, 1], got {share}")
    is_confident = weight_source == "confidence"
    aggregated, resample = aggregation(path_score), scheme(resampling)
    is_drawn = vote == SAMPLED

    def log_weights(paths: Paths) -> Float[Array, " N"]:
        score = confidence(paths) if is_confident else path_scores(paths, aggregated)
        return odds_of(score, paths.valid, weight_temperature)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Resampled]:
        draw, noise = jax.random.split(key)
        both = or_equal(jnp.concatenate([log_weights(state.frontier), log_weights(state.finished)]))
        if tempering != "none":
            progress = state.step.astype(jnp.float32) / state.max_depth.astype(jnp.float32)
            both = tempered(both, progress, tempering, ess_threshold, early_phase)
        copies = resample(draw, jax.nn.softmax(both), state.width)
        grows, stays = jnp.split(copies, [state.frontier.valid.shape[0]])
        memory = Resampled(stays, _gumbel(noise, state.memory.noise.shape[0]))
        return request(state, grows, sampling), memory

    return Strategy(
        name="particle_filtering",
        plan=plan,
        sampling=(sampling,),
        aggregation=aggregated,
        keep=_noisy_children if is_drawn else keep_children,
        keep_finished=_noisy_finished if is_drawn else _drawn_finished,
        weights_paths=True,
        uses_scores=not is_confident,
        needs_log_probs=is_confident,
        answer=_answer_of(vote, is_confident, log_weights),
        init_memory=functools.partial(_nothing_drawn, noisy=is_drawn),
    )


def _answer_of(
    vote: str, is_confident: bool, log_weights: Callable[[Paths], Float[Array, " N"]]
) -> AnswerRule:
    """The answer rule of a vote; `is_confident` replaces path scores by confidences."""

    def drawn_answer(
        params: Any, finished: Paths, context: Any, aggregation: Any
    ) -> Int[Array, ""]:
        # The largest of log-weights with Gumbel noise is a draw by weight.
        keys = log_weights(finished) + finished.weight
        return best(keys, finished.answer, finished.valid)

    def best_answer(params: Any, finished: Paths, context: Any, aggregation: Any) -> Int[Array, ""]:
        return best(log_weights(finished), finished.answer, finished.valid)

    def voted_answer(
        params: Any, finished: Paths, context: Any, aggregation: Any
    ) -> Int[Array, ""]:
        return weighted_vote(confidence(finished), finished.answer, finished.valid)

    if vote == SAMPLED:
        return drawn_answer
    rules = {"best": best_answer, "weighted": voted_answer} if is_confident else {}
    return rules.get(vote) or answer_rule(vote)


def confidence(paths: Paths) -> Float[Array, " N"]:
    """Geometric mean of the token probabilities of each path's newest step, in (0, 1]."""
    tokens = jnp.maximum(paths.num_tokens, 1).astype(paths.log_prob.dtype)
    return jnp.exp(jnp.minimum(paths.log_prob / tokens, 0.0))


def odds_of(
    score: Float[Array, " N"], valid: Bool[Array, " N"], temperature: float
) -> Float[Array, " N"]:
    """Logarithms of (s / (1 - s))^(1 / temperature); -inf at rows that are not valid."""
    log_odds = logit(jnp.clip(score, _CLIP, 1 - _CLIP))
    return jnp.where(valid, log_odds / temperature, -jnp.inf)


def tempered(
    log_weights: Float[Array, " N"],
    progress: Float[Array, ""],
    method: str,
    ess_threshold: float,
    early_phase: float,
) -> Float[Array, " N"]:
    """Log-weights divided by the temperature of entropic annealing.

    With shares p of n particles, ESS = 1 / sum(p^2) and r = ESS / n, and progress t in [0, 1]: the
    temperature is 1 unless r < `ess_threshold` and t < `early_phase`, and is never below 1.

    Args:
        log_weights: -inf at rows without a particle.
        progress: steps taken, as a share of the most steps of a path.
        method: "ess": (1 - t) / r. "entropy": 1 / (h + (1 - h) t), with h the entropy of p over
            log n. "base": 2 - t.
        ess_threshold: in (0, 1].
        early_phase: in (0, 1].
    """
    present = jnp.isfinite(log_weights)
    number = jnp.sum(present).astype(log_weights.dtype)
    share = jnp.clip(jax.nn.softmax(log_weights), _CLIP, 1 - _CLIP)
    ratio = 1.0 / jnp.sum(jnp.where(present, share * share, 0.0)) / number
    if method == "ess":
        temperature = (1.0 - progress) / ratio
    elif method == "entropy":
        nats = -jnp.sum(jnp.where(present, share * jnp.log(share), 0.0))
        entropy = nats / jnp.log(jnp.maximum(number, 2.0))
        temperature = 1.0 / (entropy + (1.0 - entropy) * progress)
    else:
        temperature = 2.0 - progress
    collapses = (ratio < ess_threshold) & (progress < early_phase) & (number > 1)
    return log_weights / jnp.where(collapses, jnp.maximum(temperature, 1.0), 1.0)


def _nothing_drawn(state: SearchState, noisy: bool) -> Resampled:
    slots = state.finished.valid.shape[0]
    size = state.pool.valid.shape[0] + slots if noisy else 0
    return Resampled(jnp.zeros((slots,), jnp.int32), jnp.zeros((size,), jnp.float32))


def _drawn_finished(state: SearchState) -> Paths:
    return drawn(state.finished, state.memory.copies)


def _noisy_finished(state: SearchState) -> Paths:
    paths = _drawn_finished(state)
    return paths.replace(weight=state.memory.noise[-paths.valid.shape[0] :])


def _noisy_children(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
    pool = state.pool
    return pool.replace(weight=state.memory.noise[: pool.valid.shape[0]]), pool.valid, state.memory


def _gumbel(key: jax.Array, size: int) -> Float[Array, " N"]:
    """Independent Gumbel numbers; the i-th depends only on `key` and i."""
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(size, dtype=jnp.int32))
    return jax.vmap(lambda each: jax.random.gumbel(each, (), jnp.float32))(keys)
