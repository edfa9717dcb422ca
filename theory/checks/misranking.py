"""How often a wrong path is ranked above the best one: every bound against enumerated laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..misranking import (
    misranking_any_number,
    misranking_hoeffding,
    misranking_paper,
    misranking_rademacher,
    misranking_truncated_gaussian,
    misranking_uniform,
    misranking_worst_case,
)
from .best_of_n import misranked
from .report import CheckReport, both_sides, exact, judge, shares

PairBound = Callable[..., Any]
"""(gap, epsilon) -> bound on the probability of an error."""

_THEOREM = "theorem 4.5, eq. 6, one competitor"

# Two-point laws contain every worst case. A probability that is linear in a law is largest at an
# extreme law, and the extreme mean-zero laws on [-1, 1] have two points, +u with probability
# v / (u + v) and -v with the rest. Deviations and gaps are in units of epsilon (t = gap / epsilon).

# Step of the grid of points and of gaps: with one grid the worst laws are exact.
_STEP = 0.05
# Sums of grid points differ from the gap they should equal by rounding.
_ROUNDING = 1e-9


def two_point_laws() -> np.ndarray:
    """(points, probabilities) of mean-zero laws, f64[L, 2, 2], the constant 0 among them."""
    points = np.arange(0.0, 1.0 + _STEP / 2, _STEP)
    up, down = (axis.ravel() for axis in np.meshgrid(points, points))
    kept = (up > 0) & (down > 0)
    up, down = up[kept], down[kept]
    laws = np.stack(
        [np.stack([up, -down], 1), np.stack([down / (up + down), up / (up + down)], 1)], 1
    )
    # The limit of the two-point family as one point goes to 0.
    constant = np.array([[[0.0, 0.0], [0.5, 0.5]]])
    return np.concatenate([laws, constant])


def gap_grid(largest: float = 2.5) -> np.ndarray:
    """Gaps in units of epsilon, from one step on."""
    return np.arange(_STEP, largest + _STEP / 2, _STEP)


def worst_independent(laws: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """max over pairs of laws of Pr[Delta_h - Delta_* >= gap], f64[G]; independent deviations."""
    points, weights = laws[:, 0], laws[:, 1]
    difference = points[:, None, :, None] - points[None, :, None, :]
    weight = weights[:, None, :, None] * weights[None, :, None, :]
    return np.array(
        [(weight * (difference >= gap - _ROUNDING)).sum(axis=(2, 3)).max() for gap in gaps]
    )


def worst_difference(laws: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """max over laws of the difference, mean zero on [-2, 2], of Pr[difference >= gap], f64[G]."""
    points, weights = 2.0 * laws[:, 0], laws[:, 1]
    return (weights * (points >= gaps[:, None, None] - _ROUNDING)).sum(axis=2).max(axis=1)


def worst_falls(laws: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """max over laws of the probability that a path loses to others at +epsilon, f64[G].

    It does where it falls by gap - epsilon. Beyond 2 epsilon it can't, up to epsilon it always may.
    """
    points, weights = laws[:, 0], laws[:, 1]
    falls = points <= 1.0 - gaps[:, None, None] + _ROUNDING
    worst = (weights * falls).sum(axis=2).max(axis=1)
    return np.where(gaps > 2.0 + _ROUNDING, 0.0, np.where(gaps > 1.0 + _ROUNDING, worst, 1.0))


def _of_pairs() -> str:
    return f", worst of {len(two_point_laws()) ** 2} pairs of laws"


def check_misranking_paper(*, bound: PairBound = misranking_paper) -> CheckReport:
    """Hoeffding with range 4 epsilon: true, and without independence."""
    return _at_gaps(
        bound,
        worst_difference,
        claim="exp(-t^2/8) bounds the probability of an error for any mean-zero deviations, "
        "independent or not.",
        source=_THEOREM,
        proof="Hoeffding's lemma on [-2 epsilon, 2 epsilon]",
    )


def check_misranking_dependent(*, bound: PairBound = misranking_hoeffding) -> CheckReport:
    """The sharper exponent needs independence."""
    return _at_gaps(
        bound,
        worst_difference,
        ", deviations of opposite sign",
        claim="exp(-t^2/4) bounds the probability of an error without independence.",
        source="here, sharper than eq. 6",
        remedy="2 / (2 + t), the sharp value, or independence",
    )


def check_misranking_independent(*, bound: PairBound = misranking_hoeffding) -> CheckReport:
    """With independence the exponent is 4."""
    return _at_gaps(
        bound,
        worst_independent,
        _of_pairs(),
        claim="exp(-t^2/4) bounds the probability of an error for independent mean-zero "
        "deviations.",
        source="here, sharper than eq. 6",
        proof="Hoeffding's inequality, two variables of range 2 epsilon",
    )


def check_misranking_worst_case(*, bound: PairBound = misranking_worst_case) -> CheckReport:
    """The largest possible probability."""
    return _at_gaps(
        bound,
        worst_independent,
        _of_pairs(),
        claim="1/(1+t) for t <= 1, 1/(2t) for t <= 2, 0 beyond, bounds the probability of an error "
        "for independent mean-zero deviations.",
        source="here",
        proof="bilinear in the two laws, so two-point laws suffice",
    )


def check_misranking_worst_case_attained(
    *, bound: PairBound = misranking_worst_case
) -> CheckReport:
    """The largest possible probability is attained."""
    gaps = gap_grid(2.0)
    return judge(
        claim="For every gap up to 2 epsilon some pair of laws attains that value.",
        source="here",
        measured=exact(worst_independent(two_point_laws(), gaps)),
        at_least=bound(gaps, 1.0),
        where=lambda i: f"t={gaps[i]:.2f}",
        proof="the laws {1, -t} or {1, -(t-1)} and their mirror images",
    )


def check_misranking_exact_laws(
    *, seed: int, values: dict[str, Callable[[float, int], Any]] | None = None
) -> CheckReport:
    """Closed forms and quadrature for three laws against sampling, from both sides."""
    formulas = {
        "rademacher": lambda t, n: misranking_rademacher(t, 1.0, num_candidates=n),
        "uniform": lambda t, n: misranking_uniform(t, 1.0, num_candidates=n),
        "gaussian": lambda t, n: misranking_truncated_gaussian(t, 1.0, scale=0.5, num_candidates=n),
    } | (values or {})
    trials = 20_000
    cases = [(law, t, n) for law in formulas for n in (2, 16, 64) for t in (0.3, 0.9, 1.7)]
    counts = [
        misranked(t, seed=seed + i, num_candidates=n, trials=trials, law=law)
        for i, (law, t, n) in enumerate(cases)
    ]
    return both_sides(
        counts,
        trials,
        [float(formulas[law](t, n)) for law, t, n in cases],
        ["{}, t={}, N={}".format(*case) for case in cases],
        ["{}, t={}, N={}, no error".format(*case) for case in cases],
        claim="The exact probabilities for Rademacher, uniform and truncated Gaussian deviations "
        "are neither too large nor too small.",
        source="here",
        proof="1 - E prod F(gap + Delta_*)",
    )


def check_misranking_any_number(*, bound: PairBound = misranking_any_number) -> CheckReport:
    """One bound for any number of competitors, however they depend on one another."""
    return _at_gaps(
        bound,
        worst_falls,
        ", competitors always at +epsilon",
        claim="epsilon / gap bounds the probability that any of N - 1 competitors wins, for every "
        "N and any dependence (0 beyond 2 epsilon).",
        source="here",
        proof="the best must fall by gap - epsilon; Markov's inequality",
    )


def check_misranking_never_sharper(*, paper: PairBound = misranking_paper) -> CheckReport:
    """The paper's term is never the smallest bound."""
    t, n = (
        axis.ravel() for axis in np.meshgrid(np.arange(0.015, 9.0, 0.015), np.arange(2.0, 400.0))
    )
    best = np.minimum(misranking_any_number(t, 1.0), (n - 1.0) * misranking_worst_case(t, 1.0))
    return judge(
        claim="min(epsilon / gap, (N-1) x worst pair) <= (N-1) exp(-t^2/8) for all t < 9 and "
        "N < 400.",
        source="here",
        measured=exact(best / ((n - 1.0) * paper(t, 1.0))),
        at_most=1.0,
        where=lambda i: f"t={t[i]:.3f}, N={n[i]:.0f}; ratio",
        proof="2/(2+t) <= exp(-t^2/8) for t <= 2, and 0 beyond",
    )


def check_misranking_beyond_support(*, seed: int, threshold: float = 2.0) -> CheckReport:
    """Beyond 2 epsilon no misranking is possible."""
    return _support(
        seed,
        threshold * (1.0 + 1e-6),
        claim="If the gap exceeds 2 epsilon, an error has probability 0.",
        proof="R(h*) - R(h) >= gap - 2 epsilon > 0",
    )


def check_misranking_at_support(*, seed: int, threshold: float = 2.0) -> CheckReport:
    """At exactly 2 epsilon a tie is possible."""
    return _support(
        seed,
        threshold,
        claim="If the gap equals 2 epsilon, an error has probability 0.",
        remedy="strictly more than 2 epsilon: at equality scores may tie",
    )


def check_misranking_without_mean_zero(*, bound: PairBound = misranking_paper) -> CheckReport:
    """For two paths the assumption of mean zero is needed."""
    gaps = np.array([0.5, 1.0, 1.5, 1.99])
    # The best always falls by epsilon, the other always rises by it.
    measured = (2.0 - gaps >= 0.0).astype(float)
    return judge(
        claim="exp(-t^2/8) also bounds the error of biased deviations (N = 2).",
        source=_THEOREM,
        measured=exact(measured),
        at_most=bound(gaps, 1.0),
        where=lambda i: f"t={gaps[i]}, bias of epsilon against the best",
        remedy="needed for N = 2; for N >= 3 the theorem says nothing where a bias could matter",
    )


def _at_gaps(
    bound: PairBound,
    truth: Callable[[np.ndarray, np.ndarray], np.ndarray],
    where: str = "",
    **texts: Any,
) -> CheckReport:
    """A bound at every gap against the worst two-point laws."""
    gaps, laws = gap_grid(), two_point_laws()
    return judge(
        measured=exact(truth(laws, gaps)),
        at_most=bound(gaps, 1.0),
        where=lambda i: f"t={gaps[i]:.2f}{where}",
        **texts,
    )


def _support(seed: int, ratio: float, **texts: Any) -> CheckReport:
    trials, laws = 50_000, ("rademacher", "uniform", "gaussian")
    counts = [misranked(ratio, seed=seed, num_candidates=4, trials=trials, law=law) for law in laws]
    return judge(
        source="appendix C: a competitor must overcome at least gamma - 2 epsilon",
        measured=shares(counts, trials),
        at_most=0.0,
        where=lambda i: f"{laws[i]}, gap / epsilon = {ratio:.7g}, N=4",
        **texts,
    )
