"""How often a wrong path is ranked above the best one: two paths, and the best of many.

The best path is ahead by `gap` in true value. Every score deviates from its true value by at most
`epsilon`; t = gap / epsilon. Ties count as errors, so an error is possible up to t = 2. Upper
bounds state their assumptions; exact values are for independent deviations of one law.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from . import _arguments as arguments
from ._arguments import Array, Floats, Numbers

# Divisors of t**2: for a difference with range 4 epsilon, and for two terms with range 2 epsilon.
PAPER_DIVISOR = 8.0
INDEPENDENT_DIVISOR = 4.0

# Standard deviations beyond which a Gaussian's tail adds nothing in float64, and the pieces.
_REACH = 10
_FARTHEST = 40
_HALVINGS = 45
_NODES, _WEIGHTS = special.roots_legendre(20)
# A Gaussian this much wider than its truncation is uniform to float64's precision.
_WIDEST_SCALE = 1e8


def misranking_paper(gap: Numbers, epsilon: Numbers) -> Floats:
    """The paper's bound for one competitor (the exponential of eq. 6).

    exp(-gap**2 / (8 epsilon**2)), Hoeffding's lemma for a mean-zero difference in
    [-2 epsilon, 2 epsilon]. Needs mean zero, but not independence. At t <= 2 it is at least 0.606,
    so a union over several competitors is vacuous; beyond t = 2 the probability is 0.

    Args:
        gap: difference of the true values, at least 0.
        epsilon: largest deviation, at least 0; 0 gives 0.

    Returns:
        An upper bound on the probability of an error.

    Raises:
        ValueError: an argument outside its range, or both 0.
    """
    return arguments.plain(np.exp(-hoeffding_exponent(gap, epsilon, PAPER_DIVISOR)))


def misranking_hoeffding(gap: Numbers, epsilon: Numbers) -> Floats:
    """Hoeffding's inequality for independent deviations.

    exp(-gap**2 / (4 epsilon**2)): two independent mean-zero deviations, each with range
    2 epsilon (Hoeffding 1963, theorem 2). False without independence: deviations of opposite sign
    err with probability 1/2 at t = 2, where this is 0.368.

    Args:
        gap: difference of the true values, at least 0.
        epsilon: largest deviation, at least 0; 0 gives 0.

    Returns:
        An upper bound on the probability of an error.

    Raises:
        ValueError: an argument outside its range, or both 0.
    """
    return arguments.plain(np.exp(-hoeffding_exponent(gap, epsilon, INDEPENDENT_DIVISOR)))


def misranking_bernstein(gap: Numbers, epsilon: Numbers, *, standard_deviation: Numbers) -> Floats:
    """Bernstein's inequality: small where the standard deviation is far below epsilon.

    exp(-gap**2 / (4 sd**2 + (2/3) epsilon gap)) for independent mean-zero deviations
    (Bernstein 1946; Boucheron, Lugosi and Massart 2013, corollary 2.11).

    Args:
        gap: difference of the true values, at least 0.
        epsilon: largest deviation, at least 0; 0 gives 0.
        standard_deviation: of one deviation, in [0, epsilon], up to rounding.

    Returns:
        An upper bound on the probability of an error.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    spread = arguments.magnitude("standard_deviation", standard_deviation)
    gap, epsilon, spread = np.broadcast_arrays(gap, epsilon, spread)
    arguments.require(
        "standard_deviation",
        spread,
        spread <= np.nextafter(epsilon, np.inf),
        "mean-zero deviations of at most epsilon have a standard deviation of at most epsilon; "
        "give the larger epsilon that belongs to these deviations",
    )
    # Divided by gap**2, so that nothing is squared that can underflow.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = 4 * np.square(spread / gap) + (2 / 3) * (epsilon / gap)
        value = np.exp(-1 / inverse)
    return arguments.plain(np.where(gap == 0, 1.0, np.where(epsilon == 0, 0.0, value)))


def misranking_rademacher(gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers = 2) -> Floats:
    """Exact for deviations of +epsilon or -epsilon, each with probability 1/2.

    (1 - 2**-(N - 1)) / 2 for 0 < t <= 2 (1/4 for N = 2): the best must fall and some competitor
    rise. 1 - 2**-N at t = 0, 0 beyond t = 2.

    Args:
        gap: difference of the true values to every competitor, at least 0.
        epsilon: size of the deviation, at least 0.
        num_candidates: N, the best and N - 1 competitors.

    Returns:
        The probability of an error.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    n = arguments.num_candidates(num_candidates)
    apart = -np.expm1(-(n - 1) * np.log(2)) / 2
    # At gap 0 there is no error only if the best rises and all competitors fall.
    level = np.where(n == 1, 0.0, -np.expm1(-n * np.log(2)))
    return arguments.plain(_on_support(gap, epsilon, np.where(gap == 0, level, apart)))


def misranking_uniform(gap: Numbers, epsilon: Numbers, *, num_candidates: Numbers = 2) -> Floats:
    """Exact for deviations uniform on [-epsilon, epsilon].

    1 - t/2 - (1 - (t/2)**N) / N for t <= 2, which is (2 - t)**2 / 8 for N = 2; 0 beyond.

    Args:
        gap: difference of the true values to every competitor, at least 0.
        epsilon: largest deviation, at least 0.
        num_candidates: N, the best and N - 1 competitors.

    Returns:
        The probability of an error.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    gap, epsilon, n = np.broadcast_arrays(gap, epsilon, arguments.num_candidates(num_candidates))
    slack = _slack(gap, epsilon) / 2
    # Where N slack is small, the formula cancels; there the integral of 1 - x**(N - 1) from t/2 to
    # 1, which is equal, is computed.
    nodes = slack[..., None] * (_NODES + 1) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        integrand = -np.expm1((n[..., None] - 1) * np.log1p(-nodes))
        near = slack / 2 * np.sum(_WEIGHTS * integrand, axis=-1)
        far = slack + np.expm1(n * np.log1p(-slack)) / n
    value = np.where(n == 1, 0.0, np.where(n * slack < 1, near, far))
    return arguments.plain(_on_support(gap, epsilon, value))


def misranking_truncated_gaussian(
    gap: Numbers, epsilon: Numbers, *, scale: Numbers, num_candidates: Numbers = 2
) -> Floats:
    """Exact for Gaussian deviations cut off at epsilon.

    Integral of f(x) (1 - F(x + gap)**(N - 1)) over x, with density f and distribution function F of
    N(0, scale**2) conditioned on [-epsilon, epsilon], by Gauss-Legendre quadrature.

    Args:
        gap: difference of the true values to every competitor, at least 0.
        epsilon: where the deviations are cut off, at least 0.
        scale: standard deviation before the cut, positive.
        num_candidates: N, the best and N - 1 competitors.

    Returns:
        The probability of an error.

    Raises:
        ValueError: an argument outside its range, or gap and epsilon both 0.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    scale = arguments.positive("scale", scale)
    n = arguments.num_candidates(num_candidates)
    gap, epsilon, scale, n = np.broadcast_arrays(gap, epsilon, scale, n)
    # A cut beyond float64's precision has no effect.
    with np.errstate(over="ignore"):
        epsilon = np.minimum(epsilon, _FARTHEST * scale)
    relevant = (gap / 2 <= epsilon) & (n > 1)
    value = np.zeros(gap.shape)
    value[relevant] = _truncated_gaussian(
        gap[relevant], epsilon[relevant], scale[relevant], n[relevant]
    )
    return arguments.plain(value)


def misranking_worst_case(gap: Numbers, epsilon: Numbers) -> Floats:
    """The largest probability that independent mean-zero deviations allow, for one competitor.

    1 / (1 + t) for t <= 1, 1 / (2 t) for 1 < t <= 2, 0 beyond. Two-point laws attain it: they
    suffice because the probability is linear in each law.

    Args:
        gap: difference of the true values, at least 0.
        epsilon: largest deviation, at least 0.

    Returns:
        The least upper bound on the probability of an error.

    Raises:
        ValueError: an argument outside its range, or both 0.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    t = arguments.ratio(gap, epsilon)
    value = np.where(gap <= epsilon, 1 / (1 + t), 0.5 / np.maximum(t, 1))
    return arguments.plain(_on_support(gap, epsilon, value))


def misranking_worst_case_dependent(gap: Numbers, epsilon: Numbers) -> Floats:
    """The largest probability that mean-zero deviations allow if they may depend on each other.

    2 / (2 + t) for t <= 2, 0 beyond: the difference is mean zero on [-2 epsilon, 2 epsilon].

    Args:
        gap: difference of the true values, at least 0.
        epsilon: largest deviation, at least 0.

    Returns:
        The least upper bound on the probability of an error.

    Raises:
        ValueError: an argument outside its range, or both 0.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    value = 2 / (2 + arguments.ratio(gap, epsilon))
    return arguments.plain(_on_support(gap, epsilon, value))


def misranking_any_number(gap: Numbers, epsilon: Numbers) -> Floats:
    """A bound that does not grow with the number of competitors.

    epsilon / gap for t <= 2, 0 beyond. The competitors may depend on one another in any way and
    need not be mean zero. An error needs the *best* path to fall by at least gap - epsilon, which
    Markov's inequality bounds if its deviation is mean zero. The smaller of this and
    (N - 1) `misranking_worst_case` is never above (N - 1) `misranking_paper`.

    Args:
        gap: difference of the true values to the nearest competitor, at least 0; 0 gives inf.
        epsilon: largest deviation, at least 0.

    Returns:
        An upper bound on the probability of an error; vacuous for gap <= epsilon.

    Raises:
        ValueError: an argument outside its range, or both 0.
    """
    gap, epsilon = arguments.gap_and_epsilon(gap, epsilon)
    with np.errstate(divide="ignore", over="ignore"):
        return arguments.plain(_on_support(gap, epsilon, epsilon / gap))


def misranking_sum(
    gaps: Numbers,
    epsilon: Numbers,
    *,
    pair: Callable[[Floats, Floats], Floats] = misranking_hoeffding,
) -> Floats:
    """Union over the competitors, each at its own gap, in place of (N - 1) times the worst.

    Sum over h of `pair` (gap_h, epsilon), by default exp(-gap_h**2 / (4 epsilon**2)), without the
    competitors more than 2 epsilon behind, which can't win.

    Args:
        gaps: one per competitor along the last axis, `f64[*B, N - 1]`.
        epsilon: largest deviation, `f64[*B]`.
        pair: bound for one competitor.

    Returns:
        An upper bound on the probability of an error, `f64[*B]`.

    Raises:
        ValueError: an argument outside its range, gap and epsilon both 0, or gaps without an axis.
    """
    gaps = arguments.magnitude("gaps", gaps)
    if gaps.ndim == 0:
        raise ValueError(f"gaps={float(gaps)!r}: an array with one gap per competitor is needed")
    gaps, epsilon = np.broadcast_arrays(gaps, arguments.magnitude("epsilon", epsilon)[..., None])
    arguments.require("gaps", gaps, (gaps > 0) | (epsilon > 0), "gap / epsilon is 0 / 0")
    if gaps.size == 0:
        return arguments.plain(np.zeros(gaps.shape[:-1]))
    return arguments.plain(np.sum(_on_support(gaps, epsilon, pair(gaps, epsilon)), axis=-1))


def hoeffding_exponent(gap: Numbers, epsilon: Numbers, divisor: float) -> Array:
    """(gap / epsilon)**2 / divisor; inf for exact scores."""
    with np.errstate(over="ignore"):
        square = np.square(arguments.ratio(*arguments.gap_and_epsilon(gap, epsilon)))
    return np.asarray(square / divisor)


def _on_support(gap: Floats, epsilon: Floats, value: Numbers) -> Floats:
    """`value`, or 0 where two deviations together can't make up for the gap."""
    # Halved rather than doubled: 2 epsilon may overflow, and gap / 2 is as exact.
    return np.where(gap / 2 > epsilon, 0.0, value)


def _slack(gap: Array, epsilon: Array) -> Array:
    """2 - t, at least 0, without the rounding of t."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slack = np.where(epsilon > 0, 2 * (epsilon - gap / 2) / epsilon, 0.0)
    return np.asarray(np.maximum(slack, 0.0))


def _truncated_gaussian(gap: Array, epsilon: Array, scale: Array, n: Array) -> Floats:
    """The integral of f(x) (1 - F(x + t)**(N - 1)) over x in [-1, 1 - t], in units of epsilon."""
    t, slack = gap / epsilon, _slack(gap, epsilon)
    with np.errstate(over="ignore"):
        sigma = np.minimum(scale / epsilon, _WIDEST_SCALE)[:, None]
    mass = special.erf(1 / (np.sqrt(2) * sigma))

    # The integrand's peak is between -t/2 (one competitor) and 0 (many), and with many it breaks
    # off within 1/N of its end. The variable is x + 1: near t = 2 the interval is short, and the
    # distance from its ends must be precise. The outer pieces may be long: they add nothing.
    around_peak = np.arange(-_REACH, _FARTHEST + _REACH) * sigma + (1 - t / 2)[:, None]
    to_the_end = slack[:, None] * (1 - 2.0 ** -np.arange(1, _HALVINGS))
    edges = np.concatenate(
        [np.clip(around_peak, 0.0, slack[:, None]), to_the_end, slack[:, None]], axis=-1
    )
    edges = np.sort(np.concatenate([np.zeros_like(slack[:, None]), edges], axis=-1), axis=-1)
    half = np.diff(edges)[..., None] / 2
    position = edges[:, :-1, None] + half * (_NODES + 1)
    sigma, mass = sigma[..., None], mass[..., None]
    density = np.exp(-np.square((position - 1) / sigma) / 2) / (np.sqrt(2 * np.pi) * sigma * mass)
    above = _gaussian_tail(np.maximum(slack[:, None, None] - position, 0.0), sigma) / mass
    with np.errstate(divide="ignore"):
        error = -np.expm1((n[:, None, None] - 1) * np.log1p(-np.minimum(above, 1.0)))
    return np.sum(half * _WEIGHTS * density * error, axis=(-2, -1))


def _gaussian_tail(width: Floats, sigma: Floats) -> Floats:
    """P[1 - width <= sigma Z <= 1] for a standard Gaussian Z and width in [0, 2]."""
    far = special.ndtr(-(1 - width) / sigma) - special.ndtr(-1 / sigma)
    # This cancels where the interval is short: there the density's Taylor series around the middle
    # is used, whose even derivatives are Hermite polynomials.
    length, middle = width / sigma, (1 - width / 2) / sigma
    short = length * np.maximum(np.abs(middle), 1) < 0.1
    h, m = np.where(short, np.square(length / 2), 0.0), np.where(short, np.square(middle), 0.0)
    series = (
        1
        + h / 6 * (m - 1)
        + h**2 / 120 * (m**2 - 6 * m + 3)
        + h**3 / 5040 * (m**3 - 15 * m**2 + 45 * m - 15)
    )
    near = length * np.exp(-m / 2) / np.sqrt(2 * np.pi) * series
    return np.where(short, near, far)
