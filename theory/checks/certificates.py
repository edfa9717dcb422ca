"""Certificates of a search's own answer when scores deviate by at most epsilon."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..certificates import is_best_certified, is_correct_certified
from .best_of_n import Outcomes, outcomes
from .double import double
from .report import CheckReport, judge, shares


def check_certificate_best(*, seed: int, factor: float = 1.0) -> CheckReport:
    """Observed gap > 2 epsilon: the selected path is the best one, always."""
    found, epsilon, _ = _biased_draws(seed)
    certified = np.asarray(is_best_certified(found.observed_gap, epsilon * factor))
    return _certificate(
        certified,
        certified & ~found.best,
        claim="If the two highest scores differ by more than 2 epsilon, the selected path is the "
        "best (deviations biased and dependent, at most epsilon).",
        proof="the best path's score is at least R* - epsilon",
    )


def check_certificate_correct(*, seed: int, factor: float = 1.0) -> CheckReport:
    """Score >= tau + epsilon: the selected path is correct, always."""
    found, epsilon, threshold = _biased_draws(seed)
    certified = np.asarray(is_correct_certified(found.score, threshold, epsilon * factor))
    return _certificate(
        certified,
        certified & ~found.correct,
        claim="If the selected score is at least tau + epsilon, the selected path is correct.",
        proof="R* >= score - epsilon",
    )


@double(static=("num_candidates", "trials"))
def biased_draws(
    key: jax.Array, epsilon: Float[Array, ""], *, num_candidates: int, trials: int
) -> tuple[Float[Array, "M N"], Float[Array, "M N"]]:
    """(rewards, scores) with deviations that depend on the draw: the best paths fall together."""
    value_key, size_key = jax.random.split(key)
    shape = (trials, num_candidates)
    rewards = jax.random.uniform(value_key, shape)
    ahead = rewards >= jnp.mean(jnp.sort(rewards, axis=1)[:, -2:], axis=1, keepdims=True)
    # In half of the draws all deviations are as large as allowed.
    size = jnp.maximum(jax.random.uniform(size_key, (trials, 1)), 0.5) * 2.0 - 1.0
    size = jnp.where(jnp.arange(trials)[:, None] % 2 == 0, 1.0, size)
    return rewards, rewards + epsilon * size * jnp.where(ahead, -1.0, 1.0)


def _biased_draws(seed: int) -> tuple[Outcomes, float, float]:
    epsilon, threshold = 0.05, 0.9
    draws = biased_draws(epsilon, seed=seed, num_candidates=4, trials=100_000)
    return outcomes(*draws, threshold), epsilon, threshold


def _certificate(certified: np.ndarray, errors: np.ndarray, **texts: Any) -> CheckReport:
    count = int(certified.sum())
    return judge(
        source="here",
        measured=shares([errors.sum()], count),
        at_most=0.0,
        where=lambda i: f"{count} of {certified.size} draws certified; share of errors",
        **texts,
    )
