"""epsilon: the deviation of a PRM's scores from the true rewards, on held-out data."""

from __future__ import annotations

import numpy as np
from scipy import stats

from .intervals import (
    CONFIDENCE,
    Estimate,
    check_confidence,
    clopper_pearson,
    unit_codes,
    unit_interval,
)
from .types import Values


def estimate_epsilon(
    scores: Values,
    truths: Values,
    *,
    level: float = 1.0,
    units: Values | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The level-quantile of a unit's largest |score - truth|, with a distribution-free interval.

    With a question's paths as the unit, this epsilon holds on a share `level` of questions, and
    1 - level replaces the accuracy theorem's delta, which the paper defines for a fixed question.
    Order statistics bound a quantile of any law. Where even the largest one does not, `high` is 1,
    the largest possible deviation, as always at level 1: no finite sample bounds a supremum. See
    `exceedance` for the share of units that exceed a given epsilon.

    Args:
        scores: f64[n] in [0, 1].
        truths: f64[n] in [0, 1], such as labels or the share of right completions.
        level: in (0, 1].
        units: question of each score; None: each score is a unit.
        confidence: in (0, 1).

    Raises:
        ValueError: lengths differ, or a value is out of range.
    """
    check_confidence(confidence)
    if not 0.0 < level <= 1.0:
        raise ValueError(f"level={level}: must be in (0, 1]; 1 is the supremum")
    largest = np.sort(_largest_deviations(scores, truths, units))
    n = largest.size
    # .55 * 100 is above 55 in float64.
    value = float(largest[max(int(np.ceil(level * n * (1 - 1e-12))) - 1, 0)])
    if level == 1.0:
        return Estimate(value, value, 1.0)
    tail = (1.0 - confidence) / 2.0
    # The k-th smallest (from 1) is above the quantile iff at most k - 1 are at or below it, so
    # `high` needs Pr[Bin(n, level) <= k - 1] >= 1 - tail, and `low` the mirror image.
    below = stats.binom.cdf(np.arange(n + 1), n, level)
    above = int(np.searchsorted(below, 1.0 - tail)) + 1
    under = int(np.searchsorted(below, tail, side="right"))
    high = float(largest[above - 1]) if above <= n else 1.0
    low = float(largest[under - 1]) if under >= 1 else 0.0
    return Estimate(value, min(low, value), max(high, value))


def exceedance(
    epsilon: float, scores: Values, truths: Values, *, units: Values | None = None
) -> Estimate:
    """delta: the share of units with some |score - truth| > epsilon, with its exact interval.

    Choose epsilon on other data: no unit exceeds the largest deviation of its own sample.

    Args:
        epsilon: >= 0.
        scores, truths, units: as in `estimate_epsilon`.
    """
    if not epsilon >= 0.0:
        raise ValueError(f"epsilon={epsilon}: must be >= 0")
    largest = _largest_deviations(scores, truths, units)
    return clopper_pearson(int((largest > epsilon).sum()), largest.size)


def _largest_deviations(scores: Values, truths: Values, units: Values | None) -> np.ndarray:
    score, truth = unit_interval(scores, "scores"), unit_interval(truths, "truths")
    if score.shape != truth.shape:
        raise ValueError(f"scores has {score.size} values, truths {truth.size}: need the same")
    codes = unit_codes(units, score.size)
    largest = np.zeros(codes.max() + 1)
    np.maximum.at(largest, codes, np.abs(score - truth))
    return largest
