"""A choice among configurations with a guarantee: exact tests, and corrections for many of them.

A configuration is certified if "its accuracy is at most the target" is refuted. With the
corrections, the probability that any certified configuration is wrong is at most delta
(Angelopoulos et al.: "Learn then Test", 2021, arXiv:2110.01052). Any rule may therefore choose
among the certified ones. The questions of the tests must be independent of one another, and must
not have trained or chosen anything that is tested: model, controller, calibration, grid or order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from . import _arguments as arguments
from ._arguments import Array, Floats, Numbers
from .bernoulli import kl_inverse
from .pac_bayes import holdout_bound

Order = Literal["holm", "descending", "fallback"]
"""The division of the level delta among the tests, see `reject`."""


@dataclass(frozen=True)
class Certified:
    """The certified configurations.

    Attributes:
        index: the first certified configuration; None without one.
        p_values: f64[G], before the correction.
        certified: bool[G].
    """

    index: int | None
    p_values: Array
    certified: npt.NDArray[np.bool_]


def certify(
    counts: Numbers, trials: Numbers, *, target: float, delta: float, order: Order = "holm"
) -> Certified:
    """The configurations whose accuracy is above a target, by exact binomial tests.

    The p value of c right answers to n questions is Pr[Bin(n, target) >= c].

    Args:
        counts: right answers of each configuration, i64[G], from the cheapest on.
        trials: n, questions of each, a number or i64[G].
        target: the accuracy to be exceeded, in (0, 1).
        delta: largest probability that a certified accuracy is not above the target, in (0, 1).
        order: see `reject`.

    Returns:
        The first certified index, the p values, and which are certified.

    Raises:
        ValueError: an argument outside its range, or no configuration.
    """
    right, total = arguments.successes("counts", counts, "trials", trials)
    if not right.size:
        raise ValueError("counts is empty: the grid needs one configuration or more")
    p_values = _at_least(np.atleast_1d(right), np.atleast_1d(total), target)
    certified = reject(p_values, delta=delta, order=order)
    return Certified(lowest(certified), p_values, certified)


def reject(p_values: Numbers, *, delta: float, order: Order = "holm") -> npt.NDArray[np.bool_]:
    """Which hypotheses are rejected, with probability at most delta of any false rejection.

    * `holm`: the smallest p value is tested at delta / G, the next one at delta / (G - 1), and so
      on up to the first that is not rejected (Holm 1979). It needs no order.
    * `descending`: from the last hypothesis to the first, each at delta, up to the first that is
      not rejected. Powerful where the last is the safest; certifies nothing where accuracy falls
      with cost.
    * `fallback`: from the last hypothesis to the first. Each is tested at delta / G, plus the level
      of the one before it if that was rejected (Wiens: "A fixed sequence Bonferroni procedure",
      2003).

    The order of the last two must be fixed before the data.

    Args:
        p_values: f64[G] in [0, 1], of any dependence on one another.
        delta: in (0, 1).
        order: one of the three.

    Returns:
        bool[G].

    Raises:
        ValueError: an argument outside its range, or no hypothesis.
    """
    p = arguments.sample("p_values", p_values)
    level = arguments.one_error_rate(delta)
    if order == "holm":
        ranks = np.argsort(p, kind="stable")
        levels = level / np.arange(p.size, 0, -1)
    elif order == "descending":
        ranks = np.arange(p.size)[::-1]
        levels = np.full(p.size, level)
    elif order == "fallback":
        return _fall_back(p, level)
    else:
        raise ValueError(f"order={order!r}: one of 'holm', 'descending', 'fallback' is needed")
    rejected = np.zeros(p.size, bool)
    rejected[ranks] = np.logical_and.accumulate(p[ranks] <= levels)
    return rejected


def lowest(certified: npt.NDArray[np.bool_]) -> int | None:
    """Index of the first one that is certified; None without any."""
    return int(np.argmax(certified)) if certified.any() else None


def binomial_lower(successes: Numbers, trials: Numbers, *, delta: Numbers) -> Floats:
    """Lower bound on a share of successes at a fixed number of trials (Clopper and Pearson 1934).

    Args:
        successes: whole, at least 0.
        trials: whole, at least 1 and at least `successes`; each question counts once.
        delta: in (0, 1).

    Returns:
        The bound in [0, 1]; 0, which is vacuous, without a success.

    Raises:
        ValueError: an argument outside its range.
    """
    hits, total = arguments.successes("successes", successes, "trials", trials)
    delta = arguments.error_rate(delta)
    some, wrong = np.where(hits > 0, hits, 1), total - hits
    quantile = special.betaincinv(some, wrong + 1, delta)
    # For delta below 1e-100 scipy's quantile may be NaN or too large. The bound of Chernoff is
    # lower than the quantile, and true.
    is_found = special.betainc(some, wrong + 1, quantile) <= delta * (1 + 1e-6)
    chernoff = 1.0 - kl_inverse(wrong / total, -np.log(delta) / total)
    return arguments.plain(np.where(hits > 0, np.where(is_found, quantile, chernoff), 0.0))


def binomial_upper(successes: Numbers, trials: Numbers, *, delta: Numbers) -> Floats:
    """Upper bound on a share of successes at a fixed number of trials; see `binomial_lower`.

    From questions that are right with all paths and wrong with fewer, it bounds lost accuracy.
    """
    hits, total = arguments.successes("successes", successes, "trials", trials)
    delta = arguments.error_rate(delta)
    return holdout_bound(hits / total, num_samples=total, delta=delta, method="clopper-pearson")


def selective_p(errors: Numbers, answered: Numbers, alpha: Numbers) -> Floats:
    """p value of "of the answered questions a share of alpha or more is wrong".

    Pr[Bin(k, alpha) <= e], given the number k of answered questions. The threshold must be fixed
    before the data, or be one of several that `reject` corrects for.

    Args:
        errors: e, wrong answers among the answered, whole.
        answered: k, whole, at least 1.
        alpha: largest share of wrong answers that is allowed, in (0, 1).

    Raises:
        ValueError: an argument outside its range.
    """
    wrong, total = arguments.successes("errors", errors, "answered", answered)
    alpha = arguments.inner_mean("alpha", alpha)
    rest = np.where(wrong < total, total - wrong, 1)
    return arguments.plain(np.where(wrong < total, special.betaincc(wrong + 1, rest, alpha), 1.0))


def _fall_back(p: Array, level: float) -> npt.NDArray[np.bool_]:
    """Rejections of the order `fallback`, see `reject`."""
    rejected, carried = np.zeros(p.size, bool), 0.0
    for place in range(p.size - 1, -1, -1):
        carried += level / p.size
        rejected[place] = p[place] <= carried
        if not rejected[place]:
            carried = 0.0
    return rejected


def _at_least(hits: Array, total: Array, target: float) -> Array:
    """Pr[Bin(total, target) >= hits]."""
    target = arguments.one_inner_mean("target", target)
    some = hits > 0
    tail = special.betainc(np.where(some, hits, 1), total - hits + 1, target)
    return np.where(some, tail, 1.0)
