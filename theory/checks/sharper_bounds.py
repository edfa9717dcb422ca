"""Bounds on a risk that are sharper than the paper's: Maurer-Pinsker, the kl form, hold-out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from ..pac_bayes import (
    generalization_gap_bound,
    holdout_bound,
    maurer_pinsker_bound,
    seeger_bound,
)
from .report import CheckReport, exact, judge
from .trainings import DELTAS, violations, worst_violations

_SIZES = tuple(range(2, 102))

Bound = Callable[..., Any]
"""A bound on L_D, with the arguments of `seeger_bound` or `holdout_bound`."""


def check_tighter_bounds(*, bound: Bound = maurer_pinsker_bound) -> CheckReport:
    """The kl form is never above Maurer-Pinsker, which is never above the paper's bound."""
    grid = np.meshgrid(
        [0.0, 0.01, 0.1, 0.5, 0.9, 1.0],
        [0.0, 0.1, 1.0, 10.0, 1e3, 1e6],
        [2.0, 3, 4, 5, 7, 8, 10, 100, 1e4, 1e6, 1e10],
        [1.0, 0.5, 0.05, 1e-6],
    )
    risk, kl, n, delta = (axis.ravel() for axis in grid)
    tighter = bound(risk, kl, num_samples=n, delta=delta)
    paper = risk + generalization_gap_bound(kl, num_samples=n, delta=delta)
    sharpest = seeger_bound(risk, kl, num_samples=n, delta=delta)

    def where(i: int) -> str:
        j = i % risk.size
        pair = ("Maurer-Pinsker - paper", "kl - Maurer-Pinsker")[i // risk.size]
        return f"{pair}, L_S={risk[j]:g}, KL={kl[j]:g}, n={n[j]:g}, delta={delta[j]:g}"

    return judge(
        claim="kl form <= Maurer-Pinsker <= the paper's bound, for every n >= 2.",
        source="Maurer 2004, Seeger 2002",
        # By ratios, because the values span nine orders of magnitude.
        measured=exact(np.concatenate([tighter / paper, sharpest / tighter])),
        at_most=1.0,
        where=where,
        proof="ln(2 sqrt n)/2n <= ln(n)/2(n-1), and Pinsker's inequality",
    )


def check_seeger(*, bound: Bound = seeger_bound) -> CheckReport:
    """The kl form, one hypothesis, every risk, exactly."""
    return violations(
        lambda risk, n, delta: bound(risk, np.zeros_like(n), num_samples=n, delta=delta),
        _SIZES,
        claim="kl(L_S || L_D) <= (KL + ln(2 sqrt n / delta)) / n holds with probability at least "
        "1 - delta (one hypothesis); shown as probability of a violation / delta.",
        source="Maurer 2004, Seeger 2002",
        proof="E exp(n kl) <= 2 sqrt n and Markov's inequality",
    )


def check_holdout(*, bound: Bound = holdout_bound) -> CheckReport:
    """The three hold-out bounds, every risk, exactly."""
    methods = ("hoeffding", "kl", "clopper-pearson")
    cases = [(method, delta) for method in methods for delta in DELTAS if delta < 1]
    names = [f"{method}, m={m}, delta={delta:g}" for method, delta in cases for m in _SIZES]
    ratios = [
        worst_violations(
            lambda risk, m, by=method, d=delta: bound(risk, num_samples=m, delta=d, method=by),
            _SIZES,
        )
        / delta
        for method, delta in cases
    ]
    return judge(
        claim="The hold-out bounds (Hoeffding, kl, Clopper-Pearson) hold with probability at least "
        "1 - delta; shown as probability of a violation / delta.",
        source="literature",
        measured=exact(np.concatenate(ratios)),
        at_most=1.0,
        where=names.__getitem__,
        proof="Chernoff's bound; the exact binomial tail",
    )


def check_moment_constant(
    *, limit: Callable[[np.ndarray], np.ndarray] = lambda n: n**0.25
) -> CheckReport:
    """Open: the smallest n inside the paper's logarithm."""
    sizes = (*range(2, 41), 50, 100, 200, 500, 1000)
    values = [_squared_moment(n) for n in sizes]
    return judge(
        claim="sup over risks of E exp(2 (n-1) (L_D - L_S)_+^2) is at most n^(1/4), so ln n in "
        "the paper's bound could be (ln n)/4.",
        source="here",
        measured=exact(np.array(values) / limit(np.array(sizes, np.float64))),
        at_most=1.0,
        where=lambda i: f"n={sizes[i]}; moment / n^(1/4)",
    )


def _squared_moment(n: int) -> float:
    """sup over mu of E exp(2 (n-1) (mu - mean)_+^2), on a grid of 2000 risks and the law's end."""
    mu = np.linspace(0.0, 1.0, 2001)[1:, None]
    k = np.arange(n + 1.0)[None, :]
    log_pmf = stats.binom.logpmf(k, n, np.minimum(mu, 1.0))
    exponent = 2.0 * (n - 1) * np.maximum(mu - k / n, 0.0) ** 2
    return float(np.exp(np.logaddexp.reduce(log_pmf + exponent, axis=1)).max())
