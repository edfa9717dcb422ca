"""The KL divergence between two Bernoulli laws, and its upper inverse."""

from __future__ import annotations

import numpy as np

from . import _arguments as arguments
from ._arguments import Floats, Numbers

_SERIES_RADIUS = 0.5
_SERIES_TERMS = 18
_NEWTON_STEPS = 100


def kl_bernoulli(q: Numbers, p: Numbers) -> Floats:
    """kl(q || p) = q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)), in nats, with 0 ln 0 = 0.

    Precise also where p is close to q.

    Args:
        q, p: probabilities.

    Returns:
        The divergence; inf where p excludes an outcome that q allows.

    Raises:
        ValueError: an argument outside [0, 1].
    """
    q, p = arguments.probability("q", q), arguments.probability("p", p)
    return arguments.plain(_kl(q, p, p - q))


def kl_inverse(q: Numbers, c: Numbers) -> Floats:
    """The largest p with kl(q || p) <= c: an upper bound on a mean whose estimate is q.

    Newton's method from above converges, because kl is convex and increasing in p >= q.

    Args:
        q: a probability.
        c: nats, at least 0; inf gives 1.

    Returns:
        p in [q, 1].

    Raises:
        ValueError: an argument outside its range.
    """
    q, c = np.broadcast_arrays(
        arguments.probability("q", q),
        arguments.nonnegative("c", c, "a divergence can't be negative"),
    )
    # d = p - q is computed, which may be far below the rounding of p.
    width = 1 - q
    solvable = (q > 0) & (q < 1) & (c > 0) & np.isfinite(c)
    inner_q, inner_c = np.where(solvable, q, 0.5), np.where(solvable, c, 1.0)
    difference = _newton(inner_q, inner_c)
    p = np.where(solvable, np.minimum(inner_q + difference, 1.0), q)
    p = np.where((q == 0) & np.isfinite(c), -np.expm1(-c), p)
    return arguments.plain(np.where(np.isinf(c) | (width == 0), 1.0, p))


def _newton(q: Floats, c: Floats) -> Floats:
    """The difference p - q > 0 with kl(q || p) = c, for 0 < q < 1 and 0 < c < inf."""
    width = 1 - q
    # Three values that are not below the root: Pinsker, its refinement for small q, and the
    # second summand of kl alone.
    with np.errstate(over="ignore"):
        far = width * -np.expm1(-(c - q * np.log(q)) / width)
        refined = np.sqrt(2 * q) * np.sqrt(c) + 2 * c
    difference = np.minimum(np.minimum(np.sqrt(c) / np.sqrt(2), refined), far)
    # Where even float64's last number below 1 is not far enough, the root rounds to 1.
    reachable = difference < width * (1 - 2.0**-52)
    difference = np.where(reachable, difference, width / 2)
    for _ in range(_NEWTON_STEPS):
        slope = difference / ((q + difference) * (width - difference))
        step = (_kl(q, q + difference, difference) - c) / slope
        difference = np.clip(difference - step, difference / 2, width * (1 - 2.0**-53))
        if np.all(np.abs(step) <= 1e-15 * difference):
            break
    return np.where(reachable, difference, width)


def _kl(q: Floats, p: Floats, difference: Floats) -> Floats:
    """kl(q || p) without cancellation; `difference` is p - q.

    It is q f(d / q) + (1 - q) f(-d / (1 - q)) with f(x) = x - log1p(x) >= 0, because q ln(q / p) =
    -q log1p(d / q) and the linear parts of both logarithms cancel.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log_success = np.log(p) - np.log(q)
        log_failure = np.log1p(-p) - np.log1p(-q)
    return _summand(q, difference, log_success) + _summand(1 - q, -difference, log_failure)


def _summand(weight: Floats, change: Floats, log_ratio: Floats) -> Floats:
    """weight * f(change / weight), by a series or, where it does not converge, by `log_ratio`."""
    near = np.abs(change) <= _SERIES_RADIUS * weight
    x = np.where(near & (weight > 0), change, 0.0) / np.where(weight > 0, weight, 1.0)
    # log1p(x) = 2 artanh(r) = 2 (r + r**3 / 3 + ...) and x - 2 r = x r.
    r = x / (2 + x)
    tail = np.zeros_like(r)
    for power in range(2 * _SERIES_TERMS + 1, 2, -2):
        tail = tail * r * r + 1 / power
    series = weight * r * (x - 2 * r * r * tail)
    with np.errstate(invalid="ignore"):
        return np.where(near, series, change - np.where(weight > 0, weight * log_ratio, 0.0))
