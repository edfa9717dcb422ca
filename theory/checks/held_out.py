"""How often certificates from held-out questions are wrong, on laws that are hard for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..betting import log_wealth
from ..selective import certify_selective
from ..testing import certify
from .report import CheckReport, judge, shares

_DELTA = 0.1
_MANY, _WORLDS = 10_000, 250

_LAWS = (
    ("0 or 1, 3 % of them 1", 50, (0.0, 1.0), (0.97, 0.03)),
    ("0 or 1, 97 % of them 1", 50, (0.0, 1.0), (0.03, 0.97)),
    ("1 % at both ends and the rest at 1/2", 50, (0.0, 0.5, 1.0), (0.01, 0.98, 0.01)),
    (".9, and 0 in one of 200", 100, (0.9, 0.0), (0.995, 0.005)),
)
"""Name, number of values, support and weights: rare values move the mean most."""

_ACCURACIES = (
    ("all at the target", (0.6,) * 8),
    ("falling from the target", (0.6, 0.59, 0.5, 0.4, 0.2)),
)

_TARGET = 0.9
_SELECTIVE = (
    ("a useless score", ((0.0, 0.9),)),
    ("at the target from one score down", ((0.0, 0.9), (0.25, 0.7), (0.5, 1.0))),
)
"""Name and pieces: from each score to the next, the probability that an answer is right."""


def check_betting_bound(
    *, seed: int, wealth: Callable[..., np.float64 | np.ndarray] = log_wealth
) -> CheckReport:
    """The betting bound exceeds the mean iff the wealth against the mean reaches 1 / delta."""
    rng = np.random.default_rng(seed)
    violations = []
    for _, number, support, weights in _LAWS:
        mean = float(np.dot(support, weights))
        # The order of the values does not matter, and equal samples are evaluated once.
        samples, times = np.unique(
            rng.multinomial(number, weights, _MANY), axis=0, return_counts=True
        )
        against = np.array([wealth(np.repeat(support, row), mean) for row in samples])
        violations.append(times[against >= -np.log(_DELTA)].sum())
    return judge(
        claim="Of values in [0, 1] the betting lower bound is above the mean with probability "
        "delta at most.",
        source="Waudby-Smith & Ramdas 2024",
        measured=shares(violations, _MANY),
        at_most=_DELTA,
        where=lambda i: f"{_LAWS[i][0]}, n {_LAWS[i][1]}",
        proof="the wealth is a nonnegative supermartingale (Ville)",
    )


def check_certify_holm(
    *, seed: int, certified: Callable[..., np.ndarray] | None = None
) -> CheckReport:
    """No configuration is certified falsely in more than a share delta of worlds."""
    rng = np.random.default_rng(seed)
    number, target = 200, 0.6

    def by_holm(counts: np.ndarray) -> np.ndarray:
        return certify(counts, number, target=target, delta=_DELTA).certified

    test = by_holm if certified is None else certified
    # No accuracy is above the target, so that every certificate is false.
    violations = [
        int(sum(test(row).any() for row in rng.binomial(number, true, (_WORLDS, len(true)))))
        for _, true in _ACCURACIES
    ]
    return judge(
        claim="Some of several configurations is certified falsely with probability delta at most.",
        source="Holm 1979",
        measured=shares(violations, _WORLDS),
        at_most=_DELTA,
        where=lambda i: f"accuracies {_ACCURACIES[i][0]}, n {number}",
        proof="exact binomial tests, step-down levels",
    )


def check_selective_answers(
    *, seed: int, certified: Callable[..., np.ndarray] | None = None
) -> CheckReport:
    """No threshold is certified falsely in more than a share delta of worlds."""
    rng = np.random.default_rng(seed)
    number, thresholds = 300, np.arange(20) / 20

    def by_fallback(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
        return certify_selective(scores, right, thresholds, target=_TARGET, delta=_DELTA).certified

    test = by_fallback if certified is None else certified
    violations = []
    for _, pieces in _SELECTIVE:
        starts, chances = (np.array(each) for each in zip(*pieces, strict=True))
        ends = np.append(starts[1:], 1.0)
        reached = np.clip(ends[None] - np.maximum(starts[None], thresholds[:, None]), 0.0, None)
        false = reached @ chances / reached.sum(axis=1) <= _TARGET + 1e-12
        scores = rng.random((_WORLDS, number))
        chance = chances[np.searchsorted(starts, scores, side="right") - 1]
        right = (rng.random(scores.shape) < chance).astype(float)
        violations.append(
            int(sum((test(*pair) & false).any() for pair in zip(scores, right, strict=True)))
        )
    return judge(
        claim="Some threshold at which the answered questions are not right often enough is "
        "certified with probability delta at most.",
        source="Wiens 2003",
        measured=shares(violations, _WORLDS),
        at_most=_DELTA,
        where=lambda i: f"{_SELECTIVE[i][0]}, n {number}, target {_TARGET:g}",
        proof="errors are binomial given the number answered; thresholds fixed beforehand",
    )
