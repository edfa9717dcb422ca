"""The accuracy theorem, its readings and which of them are true, and its repair with a margin.

Certificates of a search's own answer follow, when scores deviate by at most epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..accuracy import (
    accuracy_lower_bound,
    accuracy_lower_bound_averaged,
    accuracy_lower_bound_margin,
    accuracy_lower_bound_margin_dependent,
    accuracy_lower_bound_threshold,
    accuracy_lower_bound_union,
    accuracy_two_level_rademacher,
    accuracy_two_level_uniform,
    coverage,
)
from ..certificates import is_best_certified, is_correct_certified
from .best_of_n import (
    Outcomes,
    World,
    misleading_world,
    outcomes,
    small_worlds,
    two_level_successes,
)
from .misranking import gap_grid, two_point_laws, worst_falls
from .report import CheckReport, both_sides, exact, judge, shares

_THEOREM = "theorem 4.5, eq. 6"
_DELTA = 0.01

Bound = Callable[..., Any]


def check_accuracy_mean_gap(*, bound: Bound = accuracy_lower_bound) -> CheckReport:
    """gamma(q) is random; its mean can't replace it."""
    world = misleading_world()
    probability, found = world.enumerate(2)
    mass = probability * found.covered
    return _misleading(
        bound,
        float((mass * found.gap).sum() / mass.sum()),
        claim="The theorem holds with gamma = its mean over draws with a correct path.",
    )


def check_accuracy_realised_gap(*, bound: Bound = accuracy_lower_bound) -> CheckReport:
    """The realised gap of one draw can't replace gamma(q), either."""
    _, found = misleading_world().enumerate(2)
    return _misleading(
        bound,
        float(found.gap[found.covered].max()),
        claim="The theorem holds with gamma = the gap of a draw that happens to have a large one.",
    )


def check_accuracy_averaged(*, bound: Bound = accuracy_lower_bound_averaged) -> CheckReport:
    """The mean of the bracket over the draws: this reading of the theorem is true."""
    cases = _cases()
    truths, bounds = [], []
    for world, n in cases:
        probability, found = world.enumerate(n)
        truths.append(float((probability * found.correct).sum()))
        pairs, kind = np.unique(
            np.stack([found.gap, found.covered], 1), axis=0, return_inverse=True
        )
        # The bound takes a mean over equally likely draws; here each kind of draw has its share.
        values = bound(
            pairs[:, :1], pairs[:, 1:], max(world.deviations), num_candidates=n, delta=_DELTA
        )
        bounds.append(float(np.bincount(kind, probability) @ values))
    return judge(
        claim="Averaged over draws inside the bracket the theorem holds.",
        source=_THEOREM + ", read as an expectation",
        measured=exact(truths),
        at_least=bounds,
        where=lambda i: f"world {i // 2}, N={cases[i][1]}; accuracy",
        proof="the theorem given the draw, then expectation",
    )


def check_accuracy_threshold(*, bound: Bound = accuracy_lower_bound_threshold) -> CheckReport:
    """A threshold on the gap, fixed in advance."""
    truths, bounds, names = [], [], []
    for index, (world, n) in enumerate(_cases()):
        probability, found = world.enumerate(n)
        epsilon = max(world.deviations)
        for gap in np.unique(found.gap[found.gap > 0]):
            reached = min(float(probability[found.covered & (found.gap >= gap)].sum()), 1.0)
            truths.append(float((probability * found.correct).sum()))
            bounds.append(float(bound(reached, gap, epsilon, num_candidates=n, delta=_DELTA)))
            names.append(f"world {index // 2}, N={n}, gap >= {gap:.4f}")
    return judge(
        claim="Pr[covered, gap >= g] (1 - (N-1) exp(-g^2/4 eps^2)) - delta bounds the accuracy, "
        "for every fixed g.",
        source="here",
        measured=exact(truths),
        at_least=bounds,
        where=lambda i: names[i] + "; accuracy",
        proof="Hoeffding given the draw, union over competitors",
    )


def check_mean_gap_limit(
    *, limit: Callable[[np.ndarray], np.ndarray] = lambda n: (1.0 - 1.0 / n) ** (n - 1.0)
) -> CheckReport:
    """The largest mean gap."""
    # Rewards of 1 with probability p, else 0: the gap is 1 iff exactly one path has 1.
    sizes, p = np.arange(2.0, 65.0), np.linspace(0.0, 1.0, 1001)[:, None]
    means = np.max(sizes * p * (1.0 - p) ** (sizes - 1.0), axis=0)
    return judge(
        claim="Even for the law that makes it largest, the mean of gamma(q) is at most "
        "(1 - 1/N)^(N-1), which tends to 1/e.",
        source="here",
        measured=exact(means),
        at_most=limit(sizes),
        where=lambda i: f"N={sizes[i]:.0f}, two levels 0 and 1; mean gap",
        proof="E gamma is the integral of N F^(N-1) (1 - F), largest for F = 1 - 1/N",
    )


def check_accuracy_sure_gap(*, bound: Bound = accuracy_lower_bound) -> CheckReport:
    """With a gap that holds in every draw, the theorem is true and vacuous."""
    p1, n, delta = (
        axis.ravel() for axis in np.meshgrid([0.01, 0.3, 0.9], [2.0, 3, 16, 256], [0.0, 0.05, 0.5])
    )
    covered = coverage(p1, n)
    return judge(
        claim="With the only gap that independent draws are sure to have, gamma = 0, the theorem "
        "still says something: its value is above -delta p_N.",
        source=_THEOREM + ", gamma a constant",
        measured=exact(bound(covered, 0.0, 0.1, num_candidates=n, delta=delta)),
        at_least=-delta * covered + 1e-6,
        where=lambda i: f"p1={p1[i]}, N={n[i]:.0f}, delta={delta[i]}; value",
        remedy="average over draws, a threshold gap, or a margin between right and wrong",
    )


def check_accuracy_needs_separation(*, bound: Bound = accuracy_lower_bound) -> CheckReport:
    """For N >= 3 the bound is positive only where no error is possible."""
    t, n = (axis.ravel() for axis in np.meshgrid(np.linspace(0.0, 2.0, 201), [3.0, 4, 16, 256]))
    return judge(
        claim="For N >= 3 the theorem is positive only where gamma > 2 epsilon, where no error is "
        "possible anyway.",
        source="here, of " + _THEOREM,
        measured=exact(bound(1.0, t, 1.0, num_candidates=n, delta=0.0)),
        at_most=0.0,
        where=lambda i: f"t={t[i]:.2f}, N={n[i]:.0f}, p_N=1, delta=0; value",
        proof="exp(-1/2) > 1/2",
    )


def check_delta_inside(*, bound: Bound = accuracy_lower_bound_averaged) -> CheckReport:
    """With delta multiplied by p_N the bound is too large."""
    delta = 0.1
    accuracy, gap, covered, probability = _swapped(delta)
    # Draws of equal probability, as the average takes them.
    assert np.allclose(probability, probability[0])
    value = bound(gap, covered, 0.001, num_candidates=2, delta=delta)
    return judge(
        claim="p_N [1 - delta - ...] holds when the deviations are small with probability "
        "1 - delta only over all draws (the first condition as printed; the second, which bounds "
        "every deviation almost surely, asked for on that event only).",
        source=_THEOREM + ", delta",
        measured=exact(accuracy),
        at_least=value,
        where=lambda i: "N=2, p1=.3, delta=.1, scores swapped where right meets wrong; accuracy",
        remedy="subtract delta outside: p_N [1 - ...] - delta",
    )


def check_delta_outside(*, bound: Bound = accuracy_lower_bound_union) -> CheckReport:
    """The bound of the printed proof, which is attained."""
    deltas = [0.02, 0.05, 0.1, 0.2, 0.4]
    truths = [_swapped(delta)[0] for delta in deltas]
    # Right and wrong levels are .24 apart at least; equal levels can't change the outcome.
    values = [float(bound(0.51, 0.24, 0.001, num_candidates=2, delta=delta)) for delta in deltas]
    return judge(
        claim="p_N [1 - (N-1) exp(-gamma^2/8 eps^2)] - delta holds there.",
        source=_THEOREM + ", corrected",
        measured=exact(truths),
        at_least=values,
        where=lambda i: f"the same world, delta={deltas[i]}; accuracy",
        proof="the union bound of appendix C",
    )


def check_success_event(*, seed: int, noise: float = 0.09) -> CheckReport:
    """A selected path other than the best one may be correct as well."""
    trials = 1000
    chance, value, deviation = np.random.default_rng(seed).random((3, trials, 256))
    # Right paths have a reward in [.6, 1], wrong ones in [0, .5].
    rewards = np.where(chance < 0.3, 0.6 + 0.4 * value, 0.5 * value)
    found = outcomes(rewards, rewards + noise * (2.0 * deviation - 1.0), 0.6)
    success = int(found.correct.sum())
    event = int((found.covered & found.best).sum())
    return judge(
        claim="Success is the complement of 'no correct path, or not the best one selected': it "
        "is no more frequent than that complement.",
        source="appendix C, proof of theorem 4.5",
        measured=shares([success], trials),
        at_most=float(shares([event], trials).high[0]),
        where=lambda i: (
            f"N=256, true values continuous, best selected in {event / trials:.3f} of "
            "the draws; accuracy"
        ),
        remedy="it contains that event; what matters is best correct minus best wrong",
    )


def _cases() -> list[tuple[World, int]]:
    return [(world, n) for world in small_worlds() for n in (2, 3)]


def _misleading(bound: Bound, gap: float, **texts: Any) -> CheckReport:
    world = misleading_world()
    probability, found = world.enumerate(2)
    covered = float((probability * found.covered).sum())
    return judge(
        source=_THEOREM + ", gamma(q)",
        measured=exact(float((probability * found.correct).sum())),
        at_least=bound(covered, gap, max(world.deviations), num_candidates=2, delta=_DELTA),
        where=lambda i: f"R* in {{.9, .895, 0}}, N=2, gap {gap:.3f}, epsilon .01; accuracy",
        remedy="average over draws inside the bracket",
        **texts,
    )


def _swapped(delta: float) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Accuracy, gaps, coverage and probabilities of all draws of two paths among 100 levels.

    Thirty levels, in ten groups of equal ones, are right. With probability `delta` the two scores
    are swapped, always for a right and a wrong path; otherwise deviations are below .001.
    """
    right = np.repeat(0.60 + 0.04 * np.arange(10), 3)
    wrong = np.repeat(0.04 * np.arange(10), 7)
    levels = np.concatenate([right, wrong])
    first, second = (axis.ravel() for axis in np.meshgrid(levels, levels))
    is_right = first >= 0.6, second >= 0.6
    probability = np.full(first.size, 1.0 / first.size)
    covered = is_right[0] | is_right[1]
    mixed = is_right[0] ^ is_right[1]
    accuracy = float(probability[covered].sum()) - min(delta, float(probability[mixed].sum()))
    return accuracy, np.abs(first - second), covered.astype(float), probability


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
    counts = [
        two_level_successes(p1, t, seed=seed + i, num_candidates=n, trials=trials, law=law)
        for i, (law, p1, t, n) in enumerate(cases)
    ]
    return both_sides(
        counts,
        trials,
        [float(formulas[law](p1, t, n)) for law, p1, t, n in cases],
        ["{}, p1={}, t={}, N={}; accuracy".format(*case) for case in cases],
        ["{}, p1={}, t={}, N={}; error".format(*case) for case in cases],
        claim="The exact accuracies of two true values with Rademacher or uniform deviations are "
        "neither too large nor too small.",
        source="here",
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
    falls = worst_falls(two_point_laws(), gaps)  # wrong paths are always at +epsilon
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


def check_certificate_best(*, seed: int, factor: float = 1.0) -> CheckReport:
    """Observed gap > 2 epsilon: the selected path is the best one, always."""
    found, epsilon, _ = _biased_draws(seed)
    certified = np.asarray(is_best_certified(found.observed_gap, epsilon * factor))
    return _certificate(
        certified,
        certified & ~found.best,
        claim="If the two highest scores differ by more than 2 epsilon, the selected path is the "
        "best (deviations biased and dependent, at most epsilon).",
        proof="the best path's score is at least R* - epsilon",
    )


def check_certificate_correct(*, seed: int, factor: float = 1.0) -> CheckReport:
    """Score >= tau + epsilon: the selected path is correct, always."""
    found, epsilon, threshold = _biased_draws(seed)
    certified = np.asarray(is_correct_certified(found.score, threshold, epsilon * factor))
    return _certificate(
        certified,
        certified & ~found.correct,
        claim="If the selected score is at least tau + epsilon, the selected path is correct.",
        proof="R* >= score - epsilon",
    )


def _biased_draws(seed: int) -> tuple[Outcomes, float, float]:
    """Outcomes, epsilon and threshold, with deviations by which the best paths fall together."""
    epsilon, threshold, trials = 0.05, 0.9, 100_000
    rng = np.random.default_rng(seed)
    rewards = rng.random((trials, 4))
    ahead = rewards >= np.sort(rewards, axis=1)[:, -2:].mean(axis=1, keepdims=True)
    # In half of the draws all deviations are as large as allowed.
    size = np.maximum(rng.random((trials, 1)), 0.5) * 2.0 - 1.0
    size[::2] = 1.0
    scores = rewards + epsilon * size * np.where(ahead, -1.0, 1.0)
    return outcomes(rewards, scores, threshold), epsilon, threshold


def _certificate(certified: np.ndarray, errors: np.ndarray, **texts: Any) -> CheckReport:
    count = int(certified.sum())
    return judge(
        source="here",
        measured=shares([errors.sum()], count),
        at_most=0.0,
        where=lambda i: f"{count} of {certified.size} draws certified; share of errors",
        **texts,
    )
