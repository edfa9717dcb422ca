"""Errors of trained models, exactly or by sampling, against a bound on their risk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from .report import CheckReport, exact, judge, shares

DELTAS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.01, 0.001)
"""The values of delta at which bounds are tested."""


def violations(
    bound: Callable[[np.ndarray, np.ndarray, float], Any], sizes: Sequence[int], **texts: Any
) -> CheckReport:
    """A bound on the risk, with the arguments (risk, n, delta), against every true risk."""
    ratios = [
        worst_violations(lambda risk, n, d=delta: bound(risk, n, d), sizes) / delta
        for delta in DELTAS
    ]
    return judge(
        measured=exact(np.concatenate(ratios)),
        at_most=1.0,
        where=lambda i: f"n={sizes[i % len(sizes)]}, delta={DELTAS[i // len(sizes)]:g}",
        **texts,
    )


def memorised(
    gaps: np.ndarray, limit: float, where: str, *, delta: float, **texts: Any
) -> CheckReport:
    """How often the gap of a learner that remembers its labels is beyond a bound, against delta."""
    return judge(
        measured=shares((gaps > limit).sum(), gaps.size),
        at_most=delta,
        where=lambda i: where + "; share of trainings beyond the bound",
        **texts,
    )


def worst_violations(
    risk_bound: Callable[[np.ndarray, np.ndarray], np.ndarray], sizes: Sequence[int]
) -> np.ndarray:
    """sup over risks of Pr[risk > bound] for one hypothesis with a 0/1 loss, one value per n.

    The number of errors k on n examples is binomial. A bound that grows with k is violated at risk
    mu iff k is at most some k0, so the worst risk is just above one of the bound's values: their
    enumeration is exact over all risks. By convexity, no other law of losses is worse.

    Args:
        risk_bound: from the empirical risk k / n, in which it does not decrease, and n.
        sizes: values of n.
    """
    n = np.repeat(np.array(sizes, np.float64), sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    k = np.arange(n.size, dtype=np.float64) - np.repeat(starts, sizes)
    values = risk_bound(k / n, n)
    # Pr[Bin(n, p) <= k] is an incomplete beta integral.
    tail = special.betainc(n - k, k + 1.0, 1.0 - np.clip(values, 0.0, 1.0))
    violated = np.where(values < 1.0, tail, 0.0)
    return np.maximum.reduceat(violated, starts)


_BITS = 52
"""Bits of a mantissa in float64."""


def memoriser_gaps(*, seed: int, num_inputs: int, num_samples: int, trials: int) -> np.ndarray:
    """Gap L_D - L_S of a learner that remembers labels of a fair coin and says 0 otherwise."""
    labels, _, seen = _trainings(seed, num_inputs, num_samples, trials)
    return (labels & ~seen).mean(axis=1)


def stored_label_gaps(*, seed: int, num_weights: int, num_samples: int, trials: int) -> np.ndarray:
    """The same learner with its memory in the mantissas of float64 weights in [1, 2)."""
    labels, drawn, seen = _trainings(seed, _BITS * num_weights, num_samples, trials)
    place = np.arange(_BITS, dtype=np.uint64)
    memory = (labels & seen).reshape(trials, num_weights, _BITS).astype(np.uint64)
    exponent_of_one = np.uint64(1023 << _BITS)
    weights = ((memory << place).sum(axis=2, dtype=np.uint64) | exponent_of_one).view(np.float64)

    # The reward model: input i reads bit i % 52 of weight i // 52.
    stored = weights.view(np.uint64)[:, :, None] >> place
    wrong = (stored & np.uint64(1)).astype(bool).reshape(labels.shape) != labels
    return wrong.mean(axis=1) - np.take_along_axis(wrong, drawn, axis=1).mean(axis=1)


def _trainings(
    seed: int, num_inputs: int, num_samples: int, trials: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of all inputs, inputs drawn, and whether each was drawn; a row for each training."""
    rng = np.random.default_rng(seed)
    labels = rng.random((trials, num_inputs)) < 0.5
    drawn = rng.integers(0, num_inputs, (trials, num_samples))
    seen = np.zeros(labels.shape, bool)
    np.put_along_axis(seen, drawn, True, axis=1)
    return labels, drawn, seen
