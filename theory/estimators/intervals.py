"""Estimates with confidence intervals that hold for every sample size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from .. import _arguments as arguments
from .._arguments import Numbers
from ..bernoulli import kl_inverse

CONFIDENCE = 0.95
"""Default confidence of every interval."""


class Estimate(NamedTuple):
    """A value with its confidence interval, `low <= value <= high`."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, trials: int, *, confidence: float = CONFIDENCE) -> Estimate:
    """A share with its exact binomial interval (Clopper & Pearson 1934).

    Args:
        successes: 0..trials.
        trials: independent, >= 1.
        confidence: least chance that the interval contains the probability; in (0, 1).

    Raises:
        ValueError: no trials, more successes than trials, or a confidence outside (0, 1).
    """
    check_confidence(confidence)
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"successes={successes}, trials={trials}: need 0 <= successes <= trials and a trial"
        )
    bounds = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
    return Estimate(successes / trials, float(bounds.low), float(bounds.high))


def bounded_mean(values: Numbers, *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of independent values in [0, 1], with an interval by Chernoff's bound.

    The interval is all mu with n kl(mean || mu) <= ln(2 / (1 - confidence)): valid for every law
    on [0, 1] and every n, and never wider than Hoeffding's.

    Args:
        values: f64[n], in [0, 1], n >= 1.
        confidence: in (0, 1).

    Raises:
        ValueError: no values, or one outside [0, 1].
    """
    check_confidence(confidence)
    sample = unit_interval(values, "values")
    mean = min(float(sample.mean()), 1.0)
    rate = np.log(2.0 / (1.0 - confidence)) / sample.size
    # The lower end is 1 minus the upper end for 1 - values.
    above, below = (float(kl_inverse(q, rate)) for q in (mean, 1.0 - mean))
    return Estimate(mean, min(1.0 - below, mean), max(above, mean))


def unit_interval(values: Numbers, name: str) -> np.ndarray:
    """Values as f64[n], checked to be in [0, 1].

    Raises:
        ValueError: no numbers, no values, not one-dimensional, or one outside [0, 1], NaN included.
    """
    array = arguments.floats(name, values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}: need one dimension and at least one")
    outside = ~((array >= 0.0) & (array <= 1.0))
    if outside.any():
        raise ValueError(f"{name} holds {array[outside][0]}: every one must be in [0, 1]")
    return array


def unit_codes(units: Numbers | Sequence[str] | None, size: int) -> np.ndarray:
    """The unit of each value as 0..U-1, in order of the labels; None: each value its own.

    Raises:
        ValueError: not one label per value.
    """
    if units is None:
        return np.arange(size)
    labels = np.asarray(units)
    if labels.shape != (size,) or not size:
        raise ValueError(f"units has shape {labels.shape}: need one label for each of {size}")
    return np.unique(labels, return_inverse=True)[1]


def check_confidence(confidence: float) -> None:
    """Raise ValueError unless the confidence is in (0, 1)."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}: must be in (0, 1), such as 0.95")
