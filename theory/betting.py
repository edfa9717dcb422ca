"""Bounds on the mean of values in [0, 1] by betting against it, for any law of the values.

x_1, x_2, ... lie in [0, 1], and given those before it each has a mean of at most m. A bet of the
share eta on x_i multiplies the wealth by 1 + eta (x_i / m - 1) >= 0, whose mean is at most 1. The
mean of the wealth over 50 fixed shares,

    W_t(m) = mean_j prod_(i <= t) (1 + eta_j (x_i / m - 1)),   eta_j = sin^2(pi (2 j + 1) / 200),

is therefore a nonnegative supermartingale that starts at 1, and reaches 1 / delta at some time with
probability at most delta (Ville 1939). W_t falls as m rises, so that all m with W >= 1 / delta are
refuted together (Waudby-Smith and Ramdas: "Estimating means of bounded random variables by
betting", 2024, arXiv:2010.09686). The shares are ours: fixed before the data, so that the order of
the values does not matter at a fixed n, and dense at both ends of [0, 1].

The values must be independent of one another, or at least of mean m given the past: average several
seeds or solutions of one question. For one 0 or 1 per question, `binomial_lower` is sharper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize, special

from . import _arguments as arguments
from ._arguments import Array, Floats, Numbers

_SHARES = np.sin(np.pi * (2 * np.arange(50) + 1) / 200) ** 2
_SMALLEST = 1e-300
_EXACT = np.float64(2.0**-50)  # four units of rounding


def log_wealth(values: Numbers, mean: Numbers) -> Floats:
    """ln W_n(m), the logarithm of the evidence against a mean of at most m.

    Args:
        values: x, f64[n] in [0, 1], one per question.
        mean: m in (0, 1), a number or an array.

    Returns:
        ln W in nats, of the shape of `mean`; ln(1 / delta) refutes m with error delta.

    Raises:
        ValueError: an argument outside its range.
    """
    x, m = arguments.sample("values", values), arguments.inner_mean("mean", mean)
    return arguments.plain(np.vectorize(_wealth_of(x), otypes=[np.float64])(m))


def running_log_wealth(values: Numbers, mean: float) -> Array:
    """ln W_t(m) after each value: f64[n], which may be inspected after each.

    Args:
        values: x, f64[n] in [0, 1], in the order in which they came.
        mean: m in (0, 1).

    Raises:
        ValueError: an argument outside its range.
    """
    x, m = arguments.sample("values", values), arguments.one_inner_mean("mean", mean)
    gains = np.cumsum(np.log1p(_SHARES[:, None] * (x / m - 1)[None, :]), axis=1)
    return special.logsumexp(gains, axis=0) - np.log(_SHARES.size)


def betting_p(values: Numbers, mean: Numbers) -> Floats:
    """p value of "the mean is at most m": min(1, 1 / W_n(m)).

    Args:
        values: x, f64[n] in [0, 1], one per question.
        mean: m in (0, 1), a number or an array.

    Raises:
        ValueError: an argument outside its range.
    """
    return arguments.plain(np.minimum(np.exp(-log_wealth(values, mean)), 1.0))


def betting_lower(values: Numbers, *, delta: float) -> float:
    """The largest m that the values refute: with probability 1 - delta the mean is above it.

    Args:
        values: x, f64[n] in [0, 1], one per question.
        delta: in (0, 1).

    Returns:
        The bound in [0, 1]; 0, which is vacuous, if all values are 0.

    Raises:
        ValueError: an argument outside its range.
    """
    x, needed = arguments.sample("values", values), -np.log(arguments.one_error_rate(delta))
    if not x.any():
        return 0.0
    wealth = _wealth_of(x)
    # At the sample's mean no bet gains: ln(1 + z) <= z.
    return _refuted(lambda m: wealth(m) - float(needed), float(x.mean()))


def betting_upper(values: Numbers, *, delta: float) -> float:
    """Upper bound on the mean with probability 1 - delta: 1 minus `betting_lower` of 1 - x.

    Args:
        values: x, f64[n] in [0, 1], one per question.
        delta: in (0, 1).

    Returns:
        The bound in [0, 1]; 1, which is vacuous, if all values are 1.

    Raises:
        ValueError: an argument outside its range.
    """
    return 1.0 - betting_lower(1.0 - arguments.sample("values", values), delta=delta)


def paired_lower(differences: Numbers, *, delta: float) -> float:
    """Lower bound, with probability 1 - delta, on the mean difference of paired values in [0, 1].

    Args:
        differences: D, f64[n] in [-1, 1], one per question. (1 + D) / 2 lies in [0, 1].
        delta: in (0, 1).

    Returns:
        The bound in [-1, 1].

    Raises:
        ValueError: an argument outside its range.
    """
    halves = (1 + arguments.sample("differences", differences, -1.0)) / 2
    return 2 * betting_lower(halves, delta=delta) - 1


def paired_upper(differences: Numbers, *, delta: float) -> float:
    """Upper bound, with probability 1 - delta, on the mean difference; see `paired_lower`."""
    return -paired_lower(-arguments.sample("differences", differences, -1.0), delta=delta)


def cost_upper(costs: Numbers, *, limit: Numbers, delta: float, num_choices: int = 1) -> float:
    """Bound on the mean cost of a configuration that was chosen among several by the same data.

    The level of each choice is delta / `num_choices`. An accuracy certificate adds its own delta.

    Args:
        costs: f64[n] in [0, limit], one per question: candidates, tokens, FLOPs.
        limit: largest cost that a question can have, enforced by a budget.
        delta: in (0, 1).
        num_choices: G, number of configurations that could have been chosen, >= 1.

    Returns:
        The bound in [0, limit], in the unit of the costs.

    Raises:
        ValueError: an argument outside its range.
    """
    most = arguments.one("limit", arguments.positive("limit", limit))
    choices = arguments.count("num_choices", num_choices, 1, "at least one choice is needed")
    level = arguments.one_error_rate(delta) / arguments.one("num_choices", choices)
    array = arguments.nonnegative("costs", costs, "a cost can't be negative")
    arguments.require_list("costs", array)
    arguments.require("costs", array, array <= most, f"is above the limit of {most:g}")
    return most * betting_upper(array / most, delta=level)


def binary_log_wealth(successes: Numbers, trials: Numbers, mean: Numbers) -> Floats:
    """ln W of S successes in t trials against a mean of at most m, for values that are 0 or 1.

    The bet is uniform over all means p in (m, 1): W = 1 / (1 - m) times the integral over p of
    (p / m)^S ((1 - p) / (1 - m))^(t - S), so that ln W is ln B(S + 1, t - S + 1)
    + ln Pr[Beta(S + 1, t - S + 1) > m] - ln(1 - m) - S ln m - (t - S) ln(1 - m). It may be
    inspected after each trial (Ville 1939; mixture of Robbins 1970).

    Args:
        successes: S, whole, at least 0.
        trials: t, whole, at least 1 and at least S.
        mean: m in (0, 1).

    Returns:
        ln W in nats, broadcast; -inf where the tail of the Beta law is 0 in float64.

    Raises:
        ValueError: an argument outside its range.
    """
    hits, total = arguments.successes("successes", successes, "trials", trials)
    m = arguments.inner_mean("mean", mean)
    misses = total - hits
    with np.errstate(divide="ignore"):
        tail = np.log(special.betaincc(hits + 1, misses + 1, m))
    stake = np.log1p(-m) + hits * np.log(m) + misses * np.log1p(-m)
    return arguments.plain(special.betaln(hits + 1, misses + 1) + tail - stake)


def anytime_lower(successes: int, trials: int, *, delta: float) -> float:
    """Lower bound on a share of successes that holds after every trial at once.

    The largest m with W >= 1 / delta, see `binary_log_wealth`. `binomial_lower` holds only for a
    number of trials that was fixed before the data.

    Args:
        successes: S, whole, at least 0.
        trials: t, whole, at least 1 and at least S.
        delta: in (0, 1).

    Returns:
        The bound in [0, 1]; 0, which is vacuous, without a success.

    Raises:
        ValueError: an argument outside its range.
    """
    hits, total = _one_count(successes, trials)
    needed = -float(np.log(arguments.one_error_rate(delta)))
    if not hits:
        return 0.0
    share = min(hits / total, 1.0 - 2.0**-53)

    def excess(m: float) -> float:
        return max(float(binary_log_wealth(hits, total, m)), -1e6) - needed

    return _refuted(excess, share)


def anytime_upper(successes: int, trials: int, *, delta: float) -> float:
    """Upper bound on a share of successes that holds after every trial; see `anytime_lower`."""
    hits, total = _one_count(successes, trials)
    return 1.0 - anytime_lower(total - hits, total, delta=delta)


def _one_count(successes: int, trials: int) -> tuple[int, int]:
    """Checked successes and trials of one sequence."""
    given = (("successes", successes), ("trials", trials))
    hits, total = (arguments.one(name, arguments.real(name, value)) for name, value in given)
    arguments.successes("successes", hits, "trials", total)
    return int(hits), int(total)


def _wealth_of(x: Array) -> Callable[[float], float]:
    """`m -> ln W_n(m)`; equal values are counted once."""
    values, counts = np.unique(x, return_counts=True)

    def wealth(m: float) -> float:
        gains = np.log1p(_SHARES[:, None] * (values / m - 1)[None, :]) @ counts
        total: Any = special.logsumexp(gains)
        return float(total) - float(np.log(_SHARES.size))

    return wealth


def _refuted(excess: Callable[[float], float], above: float) -> float:
    """The root of a falling function of m in (0, above], where it is negative up to rounding."""
    if excess(above) >= 0:
        return above
    below = above / 2
    while below > _SMALLEST and excess(below) < 0:
        above, below = below, below / 2
    if below <= _SMALLEST:
        return 0.0
    root: Any = optimize.brentq(excess, below, above, xtol=_SMALLEST, rtol=_EXACT)
    return float(root)
