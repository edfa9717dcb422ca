"""Estimates on held-out data of what the bounds take: coverage, risk, and the scores' deviation."""

from __future__ import annotations

import numpy as np
from scipy import stats

from .. import _arguments as arguments
from .._arguments import Numbers
from .intervals import (
    CONFIDENCE,
    Estimate,
    bounded_mean,
    check_confidence,
    clopper_pearson,
    unit_codes,
    unit_interval,
)


def pass_at_k(num_correct: Numbers, num_samples: Numbers, k: Numbers) -> np.ndarray:
    """1 - C(n - c, k) / C(n, k): the unbiased estimate of coverage at N = k.

    Of n samples c are correct; this is the share of their k-subsets with a correct one (Chen et
    al. 2021, arXiv:2107.03374). The plug-in 1 - (1 - c/n)^k is biased. Broadcasts.

    Args:
        num_correct: c, integers in 0..n.
        num_samples: n, integers >= 1.
        k: integers in 1..n.

    Raises:
        ValueError: one of them is out of its range.
    """
    c, n, k = np.broadcast_arrays(
        arguments.floats("num_correct", num_correct),
        arguments.floats("num_samples", num_samples),
        arguments.floats("k", k),
    )
    if not ((c >= 0) & (c <= n) & (n >= 1) & (c % 1 == 0) & (n % 1 == 0)).all():
        raise ValueError("num_correct, num_samples: need whole numbers, 0 <= correct <= samples")
    if not ((k >= 1) & (k <= n) & (k % 1 == 0)).all():
        raise ValueError("k: must be whole and in 1..num_samples; there is no unbiased estimate")
    # C(n-c, k) / C(n, k) is symmetric in c and k: a product over the smaller of the two. Factorials
    # would cancel where n is large.
    fewer, more = np.minimum(c, k), np.maximum(c, k)
    log_misses = np.zeros(n.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in range(int(fewer.max(initial=0.0))):
            log_misses = log_misses + np.where(i < fewer, np.log1p(-more / (n - i)), 0.0)
    return np.where(n - c < k, 1.0, 0.0 - np.expm1(log_misses))


def best_at_k(scores: Numbers, correct: Numbers, k: int) -> np.ndarray:
    """Mean over all k-subsets of whether the sample with the highest score is correct.

    The unbiased estimate of best-of-k from n samples with scores. The first k samples alone are one
    subset, so their result varies more. The sample of rank r, from 0, is the best of a share
    C(n - 1 - r, k - 1) / C(n, k) of the subsets. Of equal scores the first sample ranks higher, as
    in a search. With k = 1 it is the share of correct samples.

    Args:
        scores: [..., n]; -inf for a sample without an answer.
        correct: [..., n]; 1 for a correct sample, 0 for another one.
        k: samples of a subset, 1 to n.

    Returns:
        f64[...]; in [0, 1], at most `pass_at_k`.

    Raises:
        ValueError: the shapes differ, a score is NaN, a value of `correct` is not 0 or 1, or k is
            out of its range.
    """
    values, right = arguments.floats("scores", scores), arguments.floats("correct", correct)
    if values.ndim == 0 or values.shape != right.shape:
        raise ValueError(
            f"scores has shape {values.shape}, correct {right.shape}: need the same, [..., n]"
        )
    if np.isnan(values).any() or not np.isin(right, (0.0, 1.0)).all():
        raise ValueError("scores must not be NaN, and correct must be 0 or 1")
    n = values.shape[-1]
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= n:
        raise ValueError(f"k={k!r}: must be an integer from 1 to n={n}")
    order = np.argsort(-values, axis=-1, kind="stable")
    rank = np.arange(n - 1)
    share = np.cumprod(np.concatenate([[k / n], np.maximum(n - k - rank, 0) / (n - 1 - rank)]))
    return np.take_along_axis(right, order, axis=-1) @ share


def estimate_coverage(num_correct: Numbers, num_samples: Numbers, num_candidates: int) -> Estimate:
    """Mean coverage p_N over questions, with an interval over questions (`bounded_mean`).

    Args:
        num_correct: right samples of each question, [Q].
        num_samples: samples of each question, [Q] or one number, each >= `num_candidates`.
    """
    correct = np.atleast_1d(np.asarray(num_correct))
    return bounded_mean(pass_at_k(correct, num_samples, num_candidates))


def estimate_risk(losses: Numbers, *, units: Numbers | None = None) -> Estimate:
    """L_D, the mean over units of a unit's mean loss, on data the model was not chosen on.

    Args:
        losses: f64[n] in [0, 1], such as |score - label|; for a cross-entropy see `mean_log_loss`.
        units: question of each loss; None: all independent.

    Raises:
        ValueError: a loss outside [0, 1].
    """
    array = unit_interval(losses, "losses (of the bounds, not a cross-entropy)")
    codes = unit_codes(units, array.size)
    return bounded_mean(np.minimum(np.bincount(codes, array) / np.bincount(codes), 1.0))


def estimate_epsilon(
    scores: Numbers,
    truths: Numbers,
    *,
    level: float = 1.0,
    units: Numbers | None = None,
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
    epsilon: float, scores: Numbers, truths: Numbers, *, units: Numbers | None = None
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


def _largest_deviations(scores: Numbers, truths: Numbers, units: Numbers | None) -> np.ndarray:
    score, truth = unit_interval(scores, "scores"), unit_interval(truths, "truths")
    if score.shape != truth.shape:
        raise ValueError(f"scores has {score.size} values, truths {truth.size}: need the same")
    codes = unit_codes(units, score.size)
    largest = np.zeros(codes.max() + 1)
    np.maximum.at(largest, codes, np.abs(score - truth))
    return largest
