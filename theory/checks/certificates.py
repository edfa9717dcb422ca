"""Certificates of a search's own answer when scores deviate by at most epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..certificates import is_best_certified, is_correct_certified
from .best_of_n import Outcomes, outcomes
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


def _biased_draws(seed: int) -> tuple[Outcomes, float, float]:
    """Outcomes, epsilon and threshold, with deviations by which the best paths fall together."""
    epsilon, threshold, trials = 0.05, 0.9, 100_000
    rng = np.random.default_rng(seed)
    rewards = rng.random((trials, 4))
    ahead = rewards >= np.sort(rewards, axis=1)[:, -2:].mean(axis=1, keepdims=True)
    # In half of the draws all deviations are as large as allowed.
    size = np.maximum(rng.random((trials, 1)), 0.5) * 2.0 - 1.0
    size[::2] = 1.0
    scores = rewards + epsilon * size * np.where(ahead, -1.0, 1.0)
    return outcomes(rewards, scores, threshold), epsilon, threshold


def _certificate(certified: np.ndarray, errors: np.ndarray, **texts: Any) -> CheckReport:
    count = int(certified.sum())
    return judge(
        source="here",
        measured=shares([errors.sum()], count),
        at_most=0.0,
        where=lambda i: f"{count} of {certified.size} draws certified; share of errors",
        **texts,
    )
