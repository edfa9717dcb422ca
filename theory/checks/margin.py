"""The repaired accuracy theorem, with a margin between right and wrong paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..accuracy import (
    accuracy_lower_bound_margin,
    accuracy_lower_bound_margin_dependent,
    accuracy_two_level_rademacher,
    accuracy_two_level_uniform,
    coverage,
)
from .best_of_n import two_level_successes
from .laws import fall_probabilities, gap_grid, two_point_laws
from .report import CheckReport, exact, judge, shares

Bound = Callable[..., Any]


def check_margin_theorem(*, bound: Bound = accuracy_lower_bound_margin) -> CheckReport:
    """The repaired theorem against every two-point law."""
    return _margin(
        bound,
        shared=False,
        claim="With a margin gamma between right and wrong paths, accuracy is at least "
        "1 - (1 - p1 (1 - eps/gamma))^N, and p_N beyond 2 eps.",
        proof="all K correct paths must fall by gamma - eps: (eps/gamma)^K, K binomial",
    )


def check_margin_theorem_dependent(
    *, bound: Bound = accuracy_lower_bound_margin_dependent
) -> CheckReport:
    """The theorem's form for deviations that all correct paths share."""
    return _margin(
        bound,
        shared=True,
        claim="Without independence, p_N (1 - eps/gamma).",
        proof="the best correct path must fall by gamma - eps",
    )


def check_margin_needs_independence(*, bound: Bound = accuracy_lower_bound_margin) -> CheckReport:
    """The form that grows with N is false for deviations that all paths share."""
    return _margin(
        bound,
        shared=True,
        claim="1 - (1 - p1 (1 - eps/gamma))^N also holds when all correct paths share one "
        "deviation.",
        remedy="p_N (1 - eps/gamma)",
    )


def check_two_level_accuracy(
    *, seed: int, values: dict[str, Callable[[float, float, int], Any]] | None = None
) -> CheckReport:
    """Closed forms against sampling, from both sides."""
    formulas = {
        "rademacher": lambda p1, t, n: accuracy_two_level_rademacher(p1, t, 1.0, num_candidates=n),
        "uniform": lambda p1, t, n: accuracy_two_level_uniform(p1, t, 1.0, num_candidates=n),
    } | (values or {})
    trials = 20_000
    cases = [
        (law, p1, t, n)
        for law in formulas
        for n in (2, 16, 64)
        for p1, t in ((0.3, 0.6), (0.3, 1.5), (0.05, 1.9))
    ]
    counts = np.array(
        [
            float(
                two_level_successes(p1, t, seed=seed + i, num_candidates=n, trials=trials, law=law)
            )
            for i, (law, p1, t, n) in enumerate(cases)
        ]
    )
    expected = np.array([float(formulas[law](p1, t, n)) for law, p1, t, n in cases])

    def where(i: int) -> str:
        law, p1, t, n = cases[i % len(cases)]
        what = "accuracy" if i < len(cases) else "error"
        return f"{law}, p1={p1}, t={t}, N={n}; {what}"

    return judge(
        claim="The exact accuracies of two true values with Rademacher or uniform deviations are "
        "neither too large nor too small.",
        source="here",
        measured=shares(np.concatenate([counts, trials - counts]), trials),
        at_most=np.concatenate([expected, 1.0 - expected]),
        where=where,
        proof="conditioning on the number of correct paths",
    )


def check_more_candidates_help(*, ratio: float = 0.9) -> CheckReport:
    """Below gamma = epsilon more candidates can destroy the accuracy."""
    p1, sizes = 0.3, np.array([4, 16, 64])
    # Right paths are scored exactly, wrong ones at +-epsilon: success iff there is a right one
    # and every wrong one fell (or the gap exceeds epsilon).
    risen = 1.0 - p1 if ratio > 1.0 else (1.0 - p1) / 2.0
    accuracy = (p1 + risen) ** sizes - risen**sizes
    return judge(
        claim="More candidates never lower the accuracy, whatever epsilon (gamma = "
        f"{ratio} epsilon).",
        source="here, beside section 4.3: 'more reasoning paths need to be sampled'",
        measured=exact(accuracy[1:]),
        at_least=accuracy[0],
        where=lambda i: f"p1={p1}, N={sizes[i + 1]} against N={sizes[0]}; accuracy",
        remedy="true for gamma > epsilon (margin theorem)",
    )


def _margin(bound: Bound, *, shared: bool, **texts: Any) -> CheckReport:
    gaps = gap_grid()
    # Wrong paths are always at +epsilon; a right one loses to them iff it falls by gap - 1.
    falls = fall_probabilities(two_point_laws(), gaps - 1.0).max(axis=1)
    falls = np.where(gaps > 2.0 + 1e-9, 0.0, np.where(gaps > 1.0 + 1e-9, falls, 1.0))
    grid = np.meshgrid(np.arange(gaps.size), [0.02, 0.3, 0.8], [1.0, 2, 4, 16, 64, 256])
    index, p1, n = (axis.ravel() for axis in grid)
    fall = falls[index]
    if shared:
        only_right = p1**n
        truth = only_right + (coverage(p1, n) - only_right) * (1.0 - fall)
    else:
        # Draws without a wrong path succeed whatever their scores.
        truth = 1.0 - (1.0 - p1 + p1 * fall) ** n + (p1 * fall) ** n
    return judge(
        source="theorem 4.5, repaired here",
        measured=exact(truth),
        at_least=bound(p1, gaps[index], 1.0, num_candidates=n, delta=0.0),
        where=lambda i: (
            f"t={gaps[index[i]]:.2f}, p1={p1[i]}, N={n[i]:.0f}; accuracy under the worst law"
        ),
        **texts,
    )
