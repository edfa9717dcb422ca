"""The quality of a PRM's scores, from (score, label) pairs of single steps.

A score is the PRM's probability that the step is right, a label is 1 (right) or 0. The bootstrap
over questions uses the optional weights >= 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from .. import _arguments as arguments
from .._arguments import Numbers
from .intervals import CONFIDENCE, Estimate, clopper_pearson, unit_codes, unit_interval


class Reliability(NamedTuple):
    """One bin of scores: `low <= score < high`, the last bin with its end.

    Attributes:
        low, high: ends of the bin.
        num: number of pairs in the bin.
        mean_score: mean score of these pairs.
        share_right: share of right steps among these; the interval assumes independent pairs.
    """

    low: float
    high: float
    num: int
    mean_score: float
    share_right: Estimate


def negative_log_likelihood(scores: Numbers, labels: Numbers) -> np.ndarray:
    """-(y ln r + (1 - y) ln(1 - r)), elementwise, nats; the loss of a PRM.

    Eq. 2 of the paper, its "training objective" L_PRM, is minus the sum of this over steps, which
    training has to maximise. 0 ln 0 is 0; a certain and wrong score gives infinity.

    Args:
        scores: r in [0, 1].
        labels: y in [0, 1].

    Raises:
        ValueError: a value out of range.
    """
    r, y = np.broadcast_arrays(
        arguments.floats("scores", scores), arguments.floats("labels", labels)
    )
    for name, array in (("scores", r), ("labels", y)):
        if not ((array >= 0) & (array <= 1)).all():
            raise ValueError(f"{name}: every one must be in [0, 1]")
    return -(special.xlogy(y, r) + special.xlog1py(1.0 - y, -r)) + 0.0


def mean_log_loss(scores: Numbers, labels: Numbers, weights: Numbers | None = None) -> float:
    """Weighted mean of `negative_log_likelihood` over pairs, nats, >= 0."""
    r, y, w = _pairs(scores, labels, weights)
    # 0 times infinity would be NaN.
    used = w > 0
    return float(np.average(negative_log_likelihood(r[used], y[used]), weights=w[used]))


def expected_calibration_error(
    scores: Numbers, labels: Numbers, weights: Numbers | None = None, *, num_bins: int = 10
) -> float:
    """Mean over pairs of |mean score - share of right ones| of the pair's bin, in [0, 1].

    It depends on the number of bins, and is biased upwards for bins with few pairs.
    """
    r, y, w = _pairs(scores, labels, weights)
    difference = np.bincount(_bins(r, num_bins), w * (r - y), minlength=num_bins)
    return float(np.abs(difference).sum() / w.sum())


def reliability(scores: Numbers, labels: Numbers, *, num_bins: int = 10) -> list[Reliability]:
    """The reliability table: the share of right steps among steps of about the same score.

    Args:
        scores: f64[n] in [0, 1].
        labels: f64[n], 0 or 1.
        num_bins: equally wide bins; empty ones are left out.
    """
    r, y, _ = _pairs(scores, labels, None)
    bins = _bins(r, num_bins)
    return [
        Reliability(
            low=index / num_bins,
            high=(index + 1) / num_bins,
            num=int((bins == index).sum()),
            mean_score=float(r[bins == index].mean()),
            share_right=clopper_pearson(int(y[bins == index].sum()), int((bins == index).sum())),
        )
        for index in np.unique(bins).tolist()
    ]


def area_under_curve(scores: Numbers, labels: Numbers, weights: Numbers | None = None) -> float:
    """Chance that a right step scores above a wrong one, of any question; ties count one half.

    A PRM that knows only which questions are hard is far above one half: see `pair_accuracy`.

    Raises:
        ValueError: all labels are the same.
    """
    r, y, w = _pairs(scores, labels, weights)
    _, inverse = np.unique(r, return_inverse=True)
    right, wrong = np.bincount(inverse, w * y), np.bincount(inverse, w * (1.0 - y))
    if right.sum() == 0 or wrong.sum() == 0:
        raise ValueError("labels are all the same: no pair of a right and a wrong one to rank")
    below = np.cumsum(wrong) - wrong
    return float(right @ (below + wrong / 2) / (right.sum() * wrong.sum()))


def pair_accuracy(
    scores: Numbers, labels: Numbers, siblings: Numbers, weights: Numbers | None = None
) -> float:
    """Chance that a right child scores above a wrong child of the same parent.

    Ties count one half. Groups without both kinds have no pair. For `bootstrap` over parents or
    questions pass the square roots of its weights: a pair then counts as often as its parent was
    drawn. With the weights themselves it counts by their square, and intervals are too wide.

    Args:
        scores: f64[n] in [0, 1].
        labels: f64[n], 0 or 1.
        siblings: label of the parent, [n].
        weights: f64[n], of the members, at least 0; a pair counts by the product of its two.

    Raises:
        ValueError: no group has a right and a wrong child.
    """
    r, y, w = _pairs(scores, labels, weights)
    codes = unit_codes(siblings, r.size)
    order = np.lexsort((r, codes))
    r, y, w, codes = r[order], y[order], w[order], codes[order]
    # Runs of equal score within a group, numbered upwards.
    starts = np.r_[True, (np.diff(codes) > 0) | (np.diff(r) > 0)]
    run = np.cumsum(starts) - 1
    right, wrong = np.bincount(run, w * y), np.bincount(run, w * (1.0 - y))
    group = codes[starts]
    total = np.bincount(group, wrong)
    before_group = np.cumsum(total) - total
    below = np.cumsum(wrong) - wrong - before_group[group]
    pairs = float(np.bincount(group, right) @ total)
    if pairs == 0:
        raise ValueError("siblings: no group has a right and a wrong member, so there is no pair")
    return float(right @ (below + wrong / 2)) / pairs


def bootstrap(
    figures: Mapping[str, Callable[[np.ndarray], float]],
    units: Numbers,
    *,
    num_resamples: int = 400,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Figures of weighted values with 95 % percentile-bootstrap intervals over units.

    Args:
        figures: name -> function of weights f64[n], which count how often the unit of each value
            was drawn. Resamples in which it raises ValueError are left out. For weights of 1, which
            give the value, the error is passed on.
        units: unit of each value, [n]: a resample draws as many units as there are.

    Returns:
        The estimates by name; an interval contains its value, and may reach infinity.
    """
    labels = np.asarray(units)
    codes = unit_codes(labels, labels.size)
    num_units = int(codes.max()) + 1
    rng = np.random.default_rng(seed)
    draws: dict[str, list[float]] = {name: [] for name in figures}
    for _ in range(num_resamples):
        weights = np.bincount(rng.integers(num_units, size=num_units), minlength=num_units)[codes]
        for name, figure in figures.items():
            try:
                draws[name].append(figure(weights.astype(np.float64)))
            except ValueError:
                continue  # undefined for a resample without both kinds
    tail = (1.0 - CONFIDENCE) / 2.0
    found = {}
    for name, figure in figures.items():
        value = figure(np.ones(codes.size))
        low, high = value, value
        if draws[name]:
            # Between infinite values nothing can be interpolated.
            method = "linear" if np.isfinite(draws[name]).all() else "inverted_cdf"
            low, high = np.quantile(draws[name], [tail, 1.0 - tail], method=method)
        found[name] = Estimate(value, min(float(low), value), max(float(high), value))
    return found


def _pairs(
    scores: Numbers, labels: Numbers, weights: Numbers | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r, y = unit_interval(scores, "scores"), unit_interval(labels, "labels")
    w = np.ones_like(r) if weights is None else arguments.floats("weights", weights)
    if not r.shape == y.shape == w.shape:
        raise ValueError(f"scores {r.shape}, labels {y.shape}, weights {w.shape}: need one length")
    if not np.isin(y, (0.0, 1.0)).all():
        raise ValueError("labels: every one must be 0 (wrong) or 1 (right)")
    if not ((w >= 0) & np.isfinite(w)).all() or w.sum() == 0:
        raise ValueError("weights: must be finite and >= 0, and not all 0")
    return r, y, w


def _bins(scores: np.ndarray, num_bins: int) -> np.ndarray:
    if num_bins < 1:
        raise ValueError(f"num_bins={num_bins}: need at least one")
    edges = np.arange(num_bins + 1) / num_bins
    return np.minimum(np.searchsorted(edges, scores, side="right") - 1, num_bins - 1)
