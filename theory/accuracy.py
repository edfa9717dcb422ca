"""How often the best-scored of N paths is correct: the paper's theorem and its repair.

The theorems are about best-of-N: N paths are drawn independently, each correct with probability p1,
and the one with the highest score is returned. Scores deviate from the true values by at most
`epsilon` with probability at least 1 - delta; t = gap / epsilon and c = exp(-t**2 / 8).

The gap in the paper's theorem 4.5 (eq. 6) is the difference in true value between the best and the
second-best path of a draw. This gap is random. The theorem is false for its mean or its realised
value, and vacuous for a gap that holds for every draw. It is true averaged over the draws
(`accuracy_lower_bound_averaged`) and with a threshold (`accuracy_lower_bound_threshold`). The gap
of the repaired theorem (`accuracy_lower_bound_margin`) is a margin between correct and wrong paths.
"""

from __future__ import annotations

import numpy as np

from . import _arguments as arguments
from ._arguments import Floats, Numbers
from .misranking import INDEPENDENT_DIVISOR, PAPER_DIVISOR, hoeffding_exponent


def coverage(p1: Numbers, num_candidates: Numbers) -> Floats:
    """Probability that at least one of N independent paths is correct, p_N.

    1 - (1 - p1)**N, to full precision for small p1 and large N. "A path is correct" and "its true
    value is at least tau" (theorem 4.5) are the same event here.

    Args:
        p1: probability that one path is correct.
        num_candidates: N, at least 1.

    Returns:
        p_N in [0, 1].

    Raises:
        ValueError: an argument outside its range.
    """
    return arguments.plain(
        any_of(arguments.probability("p1", p1), arguments.num_candidates(num_candidates))
    )


def accuracy_lower_bound(
    coverage: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The paper's bound on the accuracy of best-of-N (theorem 4.5, eq. 6).

    p_N (1 - delta - (N - 1) exp(-gap**2 / (8 epsilon**2))).

    The bound is true for a gap that holds in every draw with a correct path, and only if deviations
    exceed epsilon with probability at most delta *given* the draw. The mean of the deviations is
    zero given that they are small. If the probability holds only on average over the draws, the
    proof gives `accuracy_lower_bound_union`. The bound is false if `gap` is the mean or the
    realised gap. For N >= 3 it is positive only where gap > 2 epsilon, where
    misranking is impossible. It falls with N once N is large (`optimal_num_candidates`).

    Args:
        coverage: p_N, probability that some path is correct.
        gap: difference of the true values of the best and the second-best path, at least 0.
        epsilon: largest deviation of a score, at least 0.
        num_candidates: N, at least 1.
        delta: probability that the deviations are larger, in [0, 1).

    Returns:
        The bound, unclipped; vacuous at or below 0 (`is_vacuous_lower`).

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    covered = arguments.probability("coverage", coverage)
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    return arguments.plain(
        covered * (never_misranked(hoeffding_exponent(gap, epsilon, PAPER_DIVISOR), n) - delta)
    )


def accuracy_lower_bound_union(
    coverage: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The bound of the paper's proof (appendix C), with delta subtracted outside the bracket.

    p_N (1 - (N - 1) exp(-gap**2 / (8 epsilon**2))) - delta.

    The union bound adds the probability delta of large deviations to that of a draw without a
    correct path; the printed theorem multiplies delta by p_N. Some laws attain p_N - delta. The
    assumptions on the gap are those of `accuracy_lower_bound`.

    Args:
        coverage: p_N, probability that some path is correct.
        gap: difference of the true values of the best and the second-best path, at least 0.
        epsilon: largest deviation of a score, at least 0.
        num_candidates: N, at least 1.
        delta: probability that the deviations are larger, in [0, 1).

    Returns:
        The bound, unclipped; vacuous at or below 0.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    covered = arguments.probability("coverage", coverage)
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    return arguments.plain(
        covered * never_misranked(hoeffding_exponent(gap, epsilon, PAPER_DIVISOR), n) - delta
    )


def accuracy_lower_bound_averaged(
    gaps: Numbers, covered: Numbers, epsilon: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The paper's theorem with its random gap: the mean of the bracket, not of the gap.

    E[1{covered} max(0, 1 - delta - (N - 1) exp(-gap**2 / (8 epsilon**2)))], the mean over draws
    of N paths. True under two conditions on the deviations given a draw: they exceed epsilon with
    probability at most delta, and their mean is zero given that none exceeds it. A mean of zero
    alone does not suffice. Sampled draws give an estimate of the bound.

    Args:
        gaps: one per draw along the last axis, `f64[*B, draws]`.
        covered: whether the draw has a correct path, `bool[*B, draws]`.
        epsilon: largest deviation, `f64[*B]`.
        num_candidates: N, `f64[*B]`.
        delta: in [0, 1), `f64[*B]`.

    Returns:
        The bound, `f64[*B]`; never negative; vacuous at 0.

    Raises:
        ValueError: an argument outside its range, no draw, or a gap and its epsilon both 0.
    """
    covered = arguments.probability("covered", covered)
    gaps = arguments.magnitude("gaps", gaps)
    if gaps.ndim == 0 or gaps.shape[-1] == 0:
        raise ValueError(f"gaps={gaps.tolist()!r}: an axis with at least one draw is needed")
    gaps, epsilon = np.broadcast_arrays(gaps, arguments.magnitude("epsilon", epsilon)[..., None])
    arguments.require("gaps", gaps, (gaps > 0) | (epsilon > 0), "gap / epsilon is 0 / 0")
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    exponent = hoeffding_exponent(gaps, epsilon, PAPER_DIVISOR)
    bracket = never_misranked(exponent, n[..., None]) - delta[..., None]
    return arguments.plain(np.mean(covered * np.maximum(0.0, bracket), axis=-1))


def accuracy_lower_bound_threshold(
    probability: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The theorem for draws whose gap reaches a threshold fixed in advance.

    Pr[covered and gap(draw) >= gap] (1 - (N - 1) exp(-gap**2 / (4 epsilon**2))) - delta, for
    deviations that are independent and mean zero given that none exceeds epsilon. Any threshold
    gives a true bound.

    Args:
        probability: that a draw has a correct path and its gap reaches the threshold.
        gap: the threshold, at least 0.
        epsilon: largest deviation, at least 0.
        num_candidates: N, at least 1.
        delta: probability that the deviations are larger, in [0, 1).

    Returns:
        The bound, unclipped; vacuous at or below 0.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    reached = arguments.probability("probability", probability)
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    return arguments.plain(
        reached * never_misranked(hoeffding_exponent(gap, epsilon, INDEPENDENT_DIVISOR), n) - delta
    )


def accuracy_lower_bound_margin(
    p1: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The repaired accuracy theorem, which grows with N, to 1 - delta for gap > epsilon.

    1 - (1 - p1 (1 - epsilon / gap))**N - delta for epsilon < gap <= 2 epsilon; p_N - delta for
    gap > 2 epsilon; -delta for gap <= epsilon, where accuracy may fall to 0 with growing N.

    Here `gap` is a margin: a path is correct if its true value is at least tau, and no path has a
    true value in (tau - gap, tau). Deviations of correct paths are independent, mean zero and at
    most epsilon; those of wrong paths are at most epsilon. A wrong path wins only if *every*
    correct one falls by at least gap - epsilon, each with probability at most epsilon / gap
    (Markov), and E[x**K] = (1 - p1 + p1 x)**N for K ~ Binomial(N, p1).

    Args:
        p1: probability that one path is correct.
        gap: the margin between correct and wrong paths, at least 0.
        epsilon: largest deviation, at least 0.
        num_candidates: N, at least 1.
        delta: probability that the assumptions on the deviations fail, in [0, 1).

    Returns:
        The bound, unclipped; vacuous at or below 0.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    kept = win_probability(arguments.probability("p1", p1), gap, epsilon)
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    return arguments.plain(any_of(kept, n) - delta)


def accuracy_lower_bound_margin_dependent(
    p1: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The repaired theorem without independence of the deviations.

    p_N (1 - epsilon / gap) - delta for epsilon < gap <= 2 epsilon, p_N - delta beyond, -delta for
    gap <= epsilon. All paths of a question may share their error, as from training randomness.

    Args:
        p1: probability that one path is correct.
        gap: the margin between correct and wrong paths, at least 0.
        epsilon: largest deviation, at least 0.
        num_candidates: N, at least 1.
        delta: probability that the assumptions on the deviations fail, in [0, 1).

    Returns:
        The bound, unclipped; vacuous at or below 0.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    p1 = arguments.probability("p1", p1)
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    return arguments.plain(any_of(p1, n) * win_probability(np.ones(()), gap, epsilon) - delta)


def accuracy_lower_bound_pairs(
    p1: Numbers, misranking: Numbers, *, num_candidates: Numbers, delta: Numbers
) -> Floats:
    """The margin setting with a union over the wrong paths of a draw.

    p_N - rho N (1 - p1) (1 - (1 - p1)**(N - 1)) - delta, where rho bounds the probability that a
    given wrong path beats a given correct one (a `misranking_*` value at the margin). The factor
    of rho is the mean number of wrong paths in draws with a correct one.

    Args:
        p1: probability that one path is correct.
        misranking: rho, a probability.
        num_candidates: N, at least 1.
        delta: probability that the assumptions on the deviations fail, in [0, 1).

    Returns:
        The bound, unclipped; vacuous at or below 0.

    Raises:
        ValueError: an argument outside its range.
    """
    p1, rho = arguments.probability("p1", p1), arguments.probability("misranking", misranking)
    n, delta = arguments.num_candidates(num_candidates), arguments.failure(delta)
    wrong = n * (1 - p1) * any_of(p1, n - 1)
    return arguments.plain(any_of(p1, n) - rho * wrong - delta)


def accuracy_two_level_rademacher(
    p1: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers
) -> Floats:
    """Exact accuracy with two true values `gap` apart and deviations of +epsilon or -epsilon.

    1 - (1 - p1/2)**N + 2**-N (1 - (1 - p1)**N) for 0 < t <= 2, p_N beyond; ties count as errors.

    Args:
        p1: probability that one path is correct.
        gap: between the true values of correct and wrong paths, at least 0.
        epsilon: size of the deviation, at least 0.
        num_candidates: N, at least 1.

    Returns:
        The probability that the best-scored path is correct.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    p1, n = arguments.probability("p1", p1), arguments.num_candidates(num_candidates)
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    none_rose = np.exp(-n * np.log(2))
    apart = any_of(p1 / 2, n) + none_rose * any_of(p1, n)
    # At gap 0: correct paths rose and no wrong one did, or all paths are correct and none rose.
    level = (
        -np.expm1(-n * np.log1p(p1)) * np.exp(n * (np.log1p(p1) - np.log(2))) + none_rose * p1**n
    )
    return arguments.plain(
        np.where(gap / 2 > epsilon, any_of(p1, n), np.where(gap == 0, level, apart))
    )


def accuracy_two_level_uniform(
    p1: Numbers, gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers
) -> Floats:
    """Exact accuracy with two true values `gap` apart and uniform deviations.

    1 - (1 - p1) (1 - p1 s)**N - p1 ((1 - p1) s)**N with s = min(1, t/2), deviations uniform on
    [-epsilon, epsilon]; p1 at gap 0, p_N from t = 2 on.

    Args:
        p1: probability that one path is correct.
        gap: between the true values of correct and wrong paths, at least 0.
        epsilon: largest deviation, at least 0.
        num_candidates: N, at least 1.

    Returns:
        The probability that the best-scored path is correct.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    p1, n = arguments.probability("p1", p1), arguments.num_candidates(num_candidates)
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    s = np.minimum(arguments.ratio(gap / 2, epsilon), 1.0)
    with np.errstate(divide="ignore"):
        none_best = -np.expm1(n * (np.log1p(-p1) + np.log(s)))
    return arguments.plain((1 - p1) * any_of(p1 * s, n) + p1 * none_best)


def never_misranked(exponent: Floats, n: Floats) -> Floats:
    """1 - (n - 1) exp(-exponent), precise also for small exponents."""
    with np.errstate(over="ignore"):
        return np.where(n == 1, 1.0, -np.expm1(-exponent) - (n - 2) * np.exp(-exponent))


def any_of(p: Floats, n: Floats) -> Floats:
    """1 - (1 - p)**n, also for n = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(n == 0, 0.0, -np.expm1(n * np.log1p(-p)))


def win_probability(p1: Floats, gap: Numbers, epsilon: Numbers) -> Floats:
    """p1 (1 - epsilon / gap) for epsilon < gap <= 2 epsilon, p1 beyond, 0 up to epsilon.

    It is the least probability that a path is correct and no wrong one can reach its score.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(gap > epsilon, (gap - epsilon) / gap, 0.0)
    return np.asarray(p1 * np.where(gap / 2 > epsilon, 1.0, share))
