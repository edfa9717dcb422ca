"""From a bound on a risk to the errors of scores: valid and invalid steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..accuracy import accuracy_lower_bound, coverage
from ..pac_bayes import deviation_probability, generalization_gap_bound
from .report import CheckReport, exact, judge


def check_gap_as_epsilon(*, epsilon: Callable[..., Any] = generalization_gap_bound) -> CheckReport:
    """The PAC-Bayes value, used as the largest deviation of a score."""
    p1, sizes = 0.3, np.array([2.0, 4.0, 8.0])
    value = float(epsilon(0.0, num_samples=800_000, delta=0.05))
    # R_phi = 1 - R*: its gap is 0 on any data, and it selects a wrong path whenever there is one.
    bounds = accuracy_lower_bound(coverage(p1, sizes), 1.0, value, num_candidates=sizes, delta=0.05)
    return judge(
        claim="The bound on the generalization gap bounds the deviation of scores, so it may stand "
        "for epsilon in the accuracy theorem (n = 800 000, delta = .05 and KL = 0 are our choice).",
        source="section 4.2, 'Define this upper-bound as epsilon'",
        measured=exact(p1**sizes),
        at_least=bounds,
        where=lambda i: f"R_phi = 1 - R*, p1=.3, N={sizes[i]:.0f}, gap bound {value:.5f}; accuracy",
        remedy="Pr[some |R_phi - R*| > eps] <= N L_D / eps (deviation_probability)",
    )


def check_deviation_probability(
    *, bound: Callable[..., Any] = deviation_probability
) -> CheckReport:
    """The valid step from a risk to deviations."""
    # Each path deviates by `size` with probability q, else not at all: risk q * size.
    q, size, n = (
        axis.ravel()
        for axis in np.meshgrid([1e-6, 1e-3, 0.05, 0.5, 1.0], [0.05, 0.1, 0.7, 1.0], [1.0, 4, 64])
    )
    return judge(
        claim="Pr[some of N paths has |R_phi - R*| >= eps] <= N E|R_phi - R*| / eps.",
        source="section 4.2, repaired here",
        measured=exact(coverage(q, n)),
        at_most=bound(q * size, size, num_candidates=n),
        where=lambda i: f"deviations of {size[i]} with probability {q[i]}, N={n[i]:.0f}",
        proof="Markov's inequality and a union over paths",
    )


def check_small_risk(*, share: float = 0.007) -> CheckReport:
    """A search with large N finds the rare paths about which a PRM is wrong."""
    p1, sizes = 0.3, np.array([4.0, 16, 64, 256, 1024])
    # Exact, except for wrong paths of probability `share`, which it scores highest of all.
    accuracy = (1.0 - share) ** sizes - (1.0 - share - p1) ** sizes
    return judge(
        claim="A PRM of small risk (exact but for 0.7 % of the paths) keeps its accuracy at N = 16 "
        "when N grows.",
        source="section 4.2, 'Define this upper-bound as epsilon'; our example",
        measured=exact(accuracy[2:]),
        at_least=accuracy[1],
        where=lambda i: f"p1=.3, N={sizes[i + 2]:.0f} against 16; accuracy",
        remedy="the chance that some path deviates grows like N L_D",
    )


def check_absolute_loss(
    *, loss: Callable[[np.ndarray, float], np.ndarray] = lambda score, label: np.abs(score - label)
) -> CheckReport:
    """|R - y| is not minimised by the true reward."""
    scores, truth = np.linspace(0.0, 1.0, 101), 0.6
    risks = truth * loss(scores, 1.0) + (1.0 - truth) * loss(scores, 0.0)
    return judge(
        claim="The loss |R - y| is smallest at the true reward (R* = .6).",
        source="here, of the loss of section 4.1",
        measured=exact(risks),
        at_least=risks[60],
        where=lambda i: f"R={scores[i]:.2f} against R=.60; risk",
        remedy="proper losses: (R - y)^2, cross-entropy",
    )
