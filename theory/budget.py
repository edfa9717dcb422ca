"""The number of candidates for a target accuracy, by the paper's bound and by the repaired one.

The paper's bound (eq. 6), f(N) = p_N (1 - delta - (N - 1) c), c = exp(-gap**2 / (8 epsilon**2)),
rises up to N* and falls after it, because every further candidate may win by mistake. It therefore
certifies an interval of N, which is empty if f(N*) is below the target. The bound of
`accuracy_lower_bound_margin` never falls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import special

from . import _arguments as arguments
from ._arguments import Flags, Floats, Numbers
from .accuracy import any_of, never_misranked, win_probability
from .misranking import PAPER_DIVISOR, hoeffding_exponent

# A target that is met up to rounding counts as met: 1 - 0.9**2 should reach 0.19.
_ROUNDING = 1e-14


def required_coverage(
    target: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The coverage from which the paper's bound reaches a target (corollary 4.6, eq. 7).

    target / (1 - delta - (N - 1) c). The corollary says that coverage "must satisfy" this; its
    proof (appendix D) shows that it is *sufficient*, and less coverage can be enough. It holds only
    for a positive denominator, which the proof assumes and the statement omits.

    Args:
        target: required accuracy, in [0, 1].
        gap: difference of the true values of the best and the second-best path, at least 0.
        epsilon: largest deviation of a score, at least 0.
        num_candidates: N, at least 1.
        delta: probability that the deviations are larger, in [0, 1).

    Returns:
        The coverage; above 1 where this N can't be certified (`is_vacuous_upper` tells values
        from 1 on), inf where the denominator is not positive.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    target = arguments.probability("target", target)
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    bracket = never_misranked(hoeffding_exponent(gap, epsilon, PAPER_DIVISOR), n) - delta
    positive = bracket > 0
    return arguments.plain(np.where(positive, target / np.where(positive, bracket, 1.0), np.inf))


def optimal_num_candidates(
    p1: Numbers, gap: Numbers, epsilon: Numbers, *, delta: Numbers
) -> Floats:
    """N*, where the paper's bound is highest, as a real number.

    (B - W(exp(B))) / k with k = -ln(1 - p1), B = 1 + k (1 - delta + c) / c and Lambert's W, the
    zero of the derivative of (1 - exp(-k N)) (1 - delta + c - c N). It may be below 1; the best
    whole N is one of its two neighbours, at least 1. For `accuracy_lower_bound_union` take
    delta = 0; for the exponent of `misranking_hoeffding` take epsilon / sqrt(2).

    Args:
        p1: probability that one path is correct.
        gap: difference of the true values of the best and the second-best path, at least 0.
        epsilon: largest deviation of a score, at least 0.
        delta: probability that the deviations are larger, in [0, 1).

    Returns:
        N*; 0 at p1 = 1, and its limit at p1 = 0. For epsilon = 0 and p1 < 1 it is inf, because the
        bound never falls.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    p1, delta = arguments.probability("p1", p1), arguments.failure(delta)
    return arguments.plain(_optimum(p1, hoeffding_exponent(gap, epsilon, PAPER_DIVISOR), delta))


def smallest_budget(
    target: Numbers, p1: Numbers, gap: Numbers, epsilon: Numbers, *, delta: Numbers
) -> Floats:
    """The fewest candidates for which the paper's bound reaches a target.

    The smallest whole N with p_N (1 - delta - (N - 1) c) >= target, by bisection up to N*.
    Sufficient under the assumptions of `accuracy_lower_bound`, not necessary.

    Args:
        target: required accuracy, in [0, 1].
        p1: probability that one path is correct.
        gap: difference of the true values of the best and the second-best path, at least 0.
        epsilon: largest deviation of a score, at least 0.
        delta: probability that the deviations are larger, in [0, 1).

    Returns:
        N, a whole number (exact up to 2**53); inf if no N is certified.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    claim = _PaperClaim.of(target, p1, gap, epsilon, delta)
    best = claim.best()
    found = _first_whole(claim.certifies, np.zeros_like(best), best)
    return arguments.plain(np.where(claim.certifies(best), found, np.inf))


def largest_budget(
    target: Numbers, p1: Numbers, gap: Numbers, epsilon: Numbers, *, delta: Numbers
) -> Floats:
    """The most candidates for which the paper's bound still reaches a target.

    The bound certifies `smallest_budget` up to this one; an empty interval is [inf, 0].

    Args:
        target: required accuracy, in [0, 1].
        p1: probability that one path is correct.
        gap: difference of the true values of the best and the second-best path, at least 0.
        epsilon: largest deviation of a score, at least 0.
        delta: probability that the deviations are larger, in [0, 1).

    Returns:
        N, a whole number (exact up to 2**53); 0 if no N is certified, inf if there is no largest
        (epsilon = 0), or if it exceeds float64.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    claim = _PaperClaim.of(target, p1, gap, epsilon, delta)
    best, end = claim.best(), claim.end()
    bounded = np.isfinite(end)
    beyond = _first_whole(
        lambda n: ~claim.certifies(n), best, np.where(bounded, np.maximum(end, best + 1), best + 1)
    )
    last = np.where(bounded, beyond - 1, np.inf)
    return arguments.plain(np.where(claim.certifies(best), last, 0.0))


def smallest_budget_margin(
    target: Numbers, p1: Numbers, gap: Numbers, epsilon: Numbers, *, delta: Numbers
) -> Floats:
    """The fewest candidates for which the repaired theorem reaches a target.

    The smallest whole N >= ln(1 - target - delta) / ln(1 - p1 (1 - epsilon / gap)), with p1 alone
    for gap > 2 epsilon. Larger deviations need more candidates, as section 4.3 says.

    Args:
        target: required accuracy, in [0, 1].
        p1: probability that one path is correct.
        gap: the margin between correct and wrong paths, at least 0.
        epsilon: largest deviation, at least 0.
        delta: probability that the assumptions on the deviations fail, in [0, 1).

    Returns:
        N, a whole number (exact up to 2**53); inf if no N is certified.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    target, delta = arguments.probability("target", target), arguments.failure(delta)
    kept = win_probability(arguments.probability("p1", p1), gap, epsilon)
    target, delta, kept = np.broadcast_arrays(target, delta, kept)

    def certifies(n: Floats) -> Flags:
        return any_of(kept, n) - delta >= target * (1 - _ROUNDING)

    estimate = _first_to_miss(kept, 1 - delta - target)
    n = np.where(np.isfinite(estimate), estimate, 1.0)
    # A quotient of logarithms may round to the wrong side of a whole number.
    n = np.where(certifies(np.maximum(n - 1, 1.0)), np.maximum(n - 1, 1.0), n)
    n = np.where(certifies(n), n, n + 1)
    return arguments.plain(np.where(np.isfinite(estimate) & certifies(n), n, np.inf))


@dataclasses.dataclass(frozen=True)
class _PaperClaim:
    """The claim f(N) = p_N (1 - delta - (N - 1) c) >= target; all arrays of one shape."""

    target: Floats
    p1: Floats
    exponent: Floats  # c = exp(-exponent)
    delta: Floats

    @classmethod
    def of(
        cls, target: Numbers, p1: Numbers, gap: Numbers, epsilon: Numbers, delta: Numbers
    ) -> _PaperClaim:
        """Check the arguments and broadcast them."""
        return cls(
            *np.broadcast_arrays(
                arguments.probability("target", target),
                arguments.probability("p1", p1),
                hoeffding_exponent(gap, epsilon, PAPER_DIVISOR),
                arguments.failure(delta),
            )
        )

    def bracket(self, n: Floats) -> Floats:
        """1 - delta - (n - 1) c."""
        return never_misranked(self.exponent, n) - self.delta

    def certifies(self, n: Floats) -> Flags:
        """Whether f(n) >= target."""
        bracket = self.bracket(n)
        # p_N < 1 may round to 1: with p1 < 1 a bracket at the target is not enough.
        possible = (bracket > self.target) | (self.p1 == 1)
        return possible & (any_of(self.p1, n) * bracket >= self.target * (1 - _ROUNDING))

    def best(self) -> Floats:
        """The whole N with the largest f, or one that certifies the target if f never falls."""
        optimum = _optimum(self.p1, self.exponent, self.delta)
        lower = np.maximum(np.floor(np.where(np.isfinite(optimum), optimum, 1.0)), 1.0)
        higher = any_of(self.p1, lower + 1) * self.bracket(lower + 1)
        whole = np.where(higher > any_of(self.p1, lower) * self.bracket(lower), lower + 1, lower)
        enough = _first_to_miss(self.p1, (1 - self.delta - self.target) / (1 - self.delta)) + 1
        enough = np.where(np.isfinite(enough), enough, 1.0)
        return np.where(np.isfinite(optimum), whole, enough)

    def end(self) -> Floats:
        """An N beyond all that are certified; inf if c is 0 for float64."""
        with np.errstate(over="ignore"):
            most = (1 - self.delta - self.target + 10 * _ROUNDING) * np.exp(self.exponent)
        return np.floor(most * (1 + _ROUNDING)) + 3


def _optimum(p1: Floats, exponent: Floats, delta: Floats) -> Floats:
    """N* = x / k, where exp(x) = B - x and so x = B - W(exp(B)) = ln W(exp(B))."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rate = -np.log1p(-p1)
        log_rest = np.log(1 - delta + np.exp(-exponent)) + exponent
        # ln(B - 1), so that c may underflow: from e**50 on x = ln(B - 1) in float64.
        log_argument = np.log(rate) + log_rest
        argument = np.exp(np.minimum(log_argument, 50.0))
        x = np.log(special.wrightomega(1 + argument))
        # B rounds where k is small; Newton's steps on x + (exp(x) - 1) = B - 1 repair that.
        for _ in range(3):
            x = x - (x + np.expm1(x) - argument) / (1 + np.exp(x))
        optimum = np.where(log_argument > 50, log_argument, x) / rate
        limit = np.exp(log_rest) / 2
    return np.where(p1 == 0, limit, np.where(p1 == 1, 0.0, optimum))


def _first_to_miss(p: Floats, missing: Floats) -> Floats:
    """The smallest whole n >= 1 with (1 - p)**n <= missing, up to rounding; inf if none."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        n = np.ceil(np.log(np.maximum(missing, 0.0)) / np.log1p(-p))
    # 0 / 0: nothing may be missed and nothing is, or all may be missed.
    return np.maximum(np.where(np.isnan(n), 1.0, n), 1.0)


def _first_whole(holds: Callable[[Floats], Flags], low: Floats, high: Floats) -> Floats:
    """The smallest whole n in (low, high] that `holds`, if from some n to `high` all do."""
    while True:
        middle = np.floor(low + (high - low) / 2)
        between = (middle > low) & (middle < high)
        if not np.any(between):
            return high
        true = holds(np.where(between, middle, high))
        high, low = np.where(between & true, middle, high), np.where(between & ~true, middle, low)
