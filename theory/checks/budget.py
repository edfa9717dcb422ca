"""The budget corollary, the bound's optimum N*, and the repaired budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..accuracy import (
    accuracy_lower_bound,
    accuracy_two_level_rademacher,
    accuracy_two_level_uniform,
    coverage,
)
from ..budget import (
    optimal_num_candidates,
    required_coverage,
    smallest_budget,
    smallest_budget_margin,
)
from ..misranking import misranking_paper
from .report import CheckReport, exact, judge

_COROLLARY = "corollary 4.6, eq. 7"
_DELTA = 0.05

Budget = Callable[..., Any]


def check_corollary_necessary(*, required: Budget = required_coverage) -> CheckReport:
    """The corollary says "must satisfy"; its proof shows the converse."""
    cases = [(2, 2.1, 0.5), (8, 4.0, 0.5), (256, 7.0, 0.9)]  # N, t, target = p_N = accuracy
    # Beyond 2 epsilon nothing is mis-ranked, so accuracy is p_N and p_N = target is enough.
    return judge(
        claim="To reach accuracy alpha, p_N must be at least alpha / (1 - delta - (N-1) c).",
        source=_COROLLARY,
        measured=exact([target for *_, target in cases]),
        at_least=[
            float(required(target, t, 1.0, num_candidates=n, delta=_DELTA))
            for n, t, target in cases
        ],
        where=lambda i: "N={}, t={}, alpha={}, which is reached; p_N".format(*cases[i]),
        remedy="sufficient, not necessary, and only for a positive denominator",
    )


def check_corollary_sufficient(*, required: Budget = required_coverage) -> CheckReport:
    """The converse, in worlds whose accuracy is known exactly."""
    truths, targets, names = [], [], []
    for n in (2, 3, 8, 64):
        for t in (0.5, 1.5, 1.99, 2.5, 4.0, 6.0, 8.0):
            for target in (0.02, 0.1, 0.3, 0.5, 0.9):
                needed = float(required(target, t, 1.0, num_candidates=n, delta=_DELTA))
                if not 0.0 <= needed <= 1.0:
                    continue
                p1 = float(-np.expm1(np.log1p(-needed) / n)) if needed < 1 else 1.0
                for law, accuracy in (
                    ("Rademacher", accuracy_two_level_rademacher),
                    ("uniform", accuracy_two_level_uniform),
                ):
                    # delta of the probability may be lost altogether.
                    truths.append(float(accuracy(p1, t, 1.0, num_candidates=n)) * (1.0 - _DELTA))
                    targets.append(target)
                    names.append(f"{law}, N={n}, t={t}, alpha={target}; accuracy")
    return judge(
        claim="p_N >= alpha / (1 - delta - (N-1) c), with a positive denominator, is enough for "
        "accuracy alpha.",
        source=_COROLLARY + ", corrected",
        measured=exact(truths),
        at_least=targets,
        where=lambda i: names[i],
        proof="the accuracy theorem, given the draw",
    )


def _printed(target: Any, t: Any, epsilon: Any, *, num_candidates: Any, delta: Any) -> Any:
    return target / (1.0 - delta - (num_candidates - 1) * misranking_paper(t, epsilon))


def check_corollary_sign(*, required: Budget = _printed) -> CheckReport:
    """With a negative denominator the printed inequality requires no coverage."""
    cases = [(8, 2.1), (64, 3.0), (256, 5.0)]
    return judge(
        claim="alpha / (1 - delta - (N-1) c), as printed, is at least alpha.",
        source=_COROLLARY + ", without the proof's assumption of a positive denominator",
        measured=exact(
            [float(required(0.9, t, 1.0, num_candidates=n, delta=_DELTA)) for n, t in cases]
        ),
        at_least=0.9,
        where=lambda i: "N={}, t={}, alpha=.9; coverage asked for".format(*cases[i]),
        remedy="a denominator at or below 0 certifies nothing (infinity)",
    )


def check_bound_grows(*, bound: Budget = accuracy_lower_bound) -> CheckReport:
    """The paper's bound falls with N after N*, and without limit."""
    n = np.arange(1.0, 257.0)
    values = _values(bound, 0.3, 6.0, n)
    return judge(
        claim="The bound of the accuracy theorem grows with N.",
        source="presupposed by section 4.3: 'more reasoning paths need to be sampled'",
        measured=exact(values[1:]),
        at_least=values[:-1],
        where=lambda i: f"t=6, p1=.3, N={n[i + 1]:.0f} against N={n[i]:.0f}; bound",
        remedy="it is unimodal with its maximum at N*; the margin theorem grows",
    )


def check_optimal_num_candidates(*, optimum: Budget = optimal_num_candidates) -> CheckReport:
    """N* in closed form against all N up to 20 000."""
    n = np.arange(1.0, 20_001.0)
    cases = [(t, p1) for t in (1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0) for p1 in (0.01, 0.05, 0.3, 0.9)]
    best, found = [], []
    for t, p1 in cases:
        values = _values(accuracy_lower_bound, p1, t, n)
        star = float(optimum(p1, t, 1.0, delta=_DELTA))
        neighbours = np.clip([np.floor(star), np.ceil(star)], 1.0, n[-1]).astype(int)
        best.append(float(values.max()))
        found.append(float(values[neighbours - 1].max()))
    return judge(
        claim="The best N of the paper's bound is a neighbour of N* = (B - W(e^B)) / k.",
        source="here",
        measured=exact(found),
        at_least=best,
        where=lambda i: "t={}, p1={}; bound at N*".format(*cases[i]),
        proof="the derivative has one zero, Lambert's W",
    )


def check_some_budget_suffices(*, bound: Budget = accuracy_lower_bound) -> CheckReport:
    """Often no N is certified, although few candidates would be enough."""
    n = np.arange(1.0, 5001.0)
    cases = [(2.0, 0.3), (3.0, 0.3), (5.0, 0.3), (6.0, 0.3), (7.0, 0.05), (8.0, 0.05), (10.0, 0.3)]
    return judge(
        claim="For every epsilon some N is certified to reach accuracy .8.",
        source="presupposed by section 4.3: 'more reasoning paths need to be sampled'",
        measured=exact([float(_values(bound, p1, t, n).max()) for t, p1 in cases]),
        at_least=0.8,
        where=lambda i: "t={}, p1={}; largest bound of all N".format(*cases[i]),
        remedy="the repaired budget is finite for every gap > epsilon",
    )


def check_error_costs_candidates(*, budget: Budget = smallest_budget) -> CheckReport:
    """While some N is certified, a larger error never needs fewer candidates."""
    gaps = np.linspace(12.0, 2.0, 200)  # epsilon = 1, so a smaller gap is a larger error
    sizes = budget(0.8, 0.3, gaps, 1.0, delta=_DELTA)
    # No N certified counts as infinitely many.
    shown = np.minimum(np.asarray(sizes, float), 1e12)
    return judge(
        claim="The smallest N that the paper's bound certifies does not fall when epsilon grows.",
        source="section 4.3, after eq. 7",
        measured=exact(shown[1:]),
        at_least=shown[:-1],
        where=lambda i: f"t={gaps[i + 1]:.2f} against {gaps[i]:.2f}; N",
        proof="the bound falls with epsilon for every N",
    )


def check_repaired_budget(*, budget: Budget = smallest_budget_margin) -> CheckReport:
    """N of the repaired theorem reaches its target in worlds known exactly."""
    cases = [
        (target, p1, t)
        for target in (0.1, 0.5, 0.9, 0.99)
        for p1 in (0.02, 0.3, 0.8)
        for t in (1.05, 1.2, 1.5, 1.9, 2.0, 2.01, 5.0)
    ]
    truths = []
    for target, p1, t in cases:
        n = float(budget(target, p1, t, 1.0, delta=0.0))
        # The worst law at the margin t: each right path falls by t - 1 with probability 1/t.
        fall = 1.0 / t if t <= 2.0 else 0.0
        worst = 1.0 - (1.0 - p1 + p1 * fall) ** n + (p1 * fall) ** n
        truths.append(
            min(
                worst,
                float(accuracy_two_level_rademacher(p1, t, 1.0, num_candidates=n)),
                float(accuracy_two_level_uniform(p1, t, 1.0, num_candidates=n)),
                float(coverage(p1, n)),
            )
        )
    return judge(
        claim="N >= ln(1 - alpha) / ln(1 - p1 (1 - eps/gamma)) reaches accuracy alpha (margin "
        "gamma > epsilon).",
        source="here",
        measured=exact(truths),
        at_least=[target for target, *_ in cases],
        where=lambda i: "alpha={}, p1={}, t={}; accuracy".format(*cases[i]),
        proof="the margin theorem",
    )


def _values(bound: Budget, p1: float, t: float, n: np.ndarray) -> np.ndarray:
    return np.asarray(bound(coverage(p1, n), t, 1.0, num_candidates=n, delta=_DELTA))
