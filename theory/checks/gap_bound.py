"""The paper's bound on the generalization gap: theorem 4.2, its printed proof, its assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from ..pac_bayes import generalization_gap_bound
from .report import CheckReport, exact, judge, shares
from .trainings import memorised, memoriser_gaps, violations, worst_violations

_SIZES = (*range(2, 61), 100, 200, 500, 1000, 5000)
_DELTA = 0.05
_PRINTED = "theorem 4.2, eq. 4 and 5"

Bound = Callable[..., Any]
"""A bound on L_D - L_S, with the arguments (kl, *, num_samples, delta)."""


def check_gap_bound_one_hypothesis(*, bound: Bound = generalization_gap_bound) -> CheckReport:
    """One hypothesis, every risk, exactly."""
    return violations(
        lambda risk, n, delta: risk + bound(np.zeros_like(n), num_samples=n, delta=delta),
        _SIZES,
        claim="For a hypothesis fixed before the data (KL = 0), the gap exceeds the paper's bound "
        "with probability at most delta; shown as probability / delta.",
        source=_PRINTED,
        proof="Hoeffding's inequality is stronger here",
    )


def check_gap_bound_all_posteriors(
    *, seed: int, bound: Bound = generalization_gap_bound
) -> CheckReport:
    """Every posterior Q at once, also those chosen after the data."""
    return _all_posteriors(
        bound,
        seed,
        claim="With probability at least 1 - delta the paper's bound holds for every posterior Q "
        "at once (P fixed before the data, independent data).",
        source=_PRINTED,
        proof="moment of the squared deviation, Donsker-Varadhan, Jensen (the printed proof "
        "does not give it)",
    )


def _union_free(kl: Any, *, num_samples: Any, delta: Any) -> Any:
    return np.sqrt((kl + math.log(1.0 / delta)) / (2.0 * num_samples))


def check_union_free_bound(*, seed: int, bound: Bound = _union_free) -> CheckReport:
    """Open: the bound that the printed proof would give if its lambda were the best one."""
    return _all_posteriors(
        bound,
        seed,
        claim="sqrt((KL + ln(1/delta)) / 2n) holds for every posterior Q at once.",
        source="here",
    )


def check_printed_proof(*, bound: Bound = generalization_gap_bound) -> CheckReport:
    """The lambda of the printed proof does not give its formula."""
    n = 800_000
    kl = np.array([0.0, 1.0, 5.0, 5.5, 10.0, 1e3, 1e6])
    rate = math.sqrt(8.0 * (n - 1))
    derived = rate / (8.0 * n) + (kl + math.log(1.0 / _DELTA)) / rate
    return judge(
        claim="The printed proof, with the lambda it sets, gives a value no larger than the bound "
        "it claims (n = 800 000, delta = 0.05: our choice).",
        source="appendix B, proof of theorem 4.2",
        measured=exact(derived),
        at_most=bound(kl, num_samples=n, delta=_DELTA),
        where=lambda i: f"KL={kl[i]:g}",
        remedy="the theorem is true by another proof",
    )


def check_prior_after_data(*, seed: int, bound: Bound = generalization_gap_bound) -> CheckReport:
    """P must not depend on S: a memorising learner with P = Q has KL = 0 and a large gap."""
    gaps = memoriser_gaps(seed=seed, num_inputs=2000, num_samples=100, trials=2000)
    limit = float(bound(0.0, num_samples=100, delta=_DELTA))
    return memorised(
        gaps,
        limit,
        f"memoriser, n=100, mean gap {gaps.mean():.3f} against {limit:.3f}",
        delta=_DELTA,
        claim="The bound also holds for a prior chosen after the data (P = Q, KL = 0).",
        source="theorem 4.2, 'any prior'; section 4.1 asks for one 'before seeing data'",
        remedy="fix P before S",
    )


def check_steps_as_samples(*, bound: Bound = generalization_gap_bound) -> CheckReport:
    """n counts independent units: identical steps of one question count once."""
    questions, steps = (120, 12_000), 66
    found = worst_violations(
        lambda risk, m: risk + bound(np.zeros_like(m), num_samples=steps * m, delta=_DELTA),
        questions,
    )
    return judge(
        claim="n may count the steps of all questions, although those of one question are not "
        "independent (66 equal steps each).",
        source="n of section 4.1 for the steps of section 3.2, against assumption 4.1",
        measured=exact(found),
        at_most=_DELTA,
        where=lambda i: (
            f"{questions[i]} questions, n={questions[i] * steps}; probability beyond the bound"
        ),
        remedy="n = number of questions",
    )


_AT_ONCE = 500
"""Trainings that are sampled together."""


def posterior_suprema(
    low: float,
    high: float,
    precisions: np.ndarray,
    *,
    seed: int,
    num_samples: int,
    num_hypotheses: int,
    shared: bool,
    trials: int,
) -> np.ndarray:
    """sup over lambda of ln E_P exp(lambda gap) - lambda^2 / (8 m), for each m of `precisions`.

    Some posterior Q violates sqrt((KL + L) / 2m) iff this is above L (Donsker-Varadhan). The
    supremum over a grid of lambda is at most the true one.

    Args:
        low, high: risks of the hypotheses, evenly spread; P is uniform on them.
        precisions: m, f64[M].
        num_hypotheses: of the class.
        shared: losses on one example come from one draw for all hypotheses, or are independent.
    """
    rng = np.random.default_rng(seed)
    risks = np.linspace(low, high, num_hypotheses)
    rates = np.geomspace(0.05, 1.0, 96)[:, None] * 4.0 * precisions
    suprema = []
    for first in range(0, trials, _AT_ONCE):
        shape = min(_AT_ONCE, trials - first), num_samples, 1 if shared else num_hypotheses
        gaps = risks - (rng.random(shape, np.float32) < risks).mean(axis=1)
        exponents = rates[None, :, :, None] * gaps[:, None, None, :]
        log_moment = special.logsumexp(exponents, axis=3) - np.log(num_hypotheses)
        suprema.append((log_moment - rates**2 / (8.0 * precisions)).max(axis=1))
    return np.concatenate(suprema)


def _all_posteriors(bound: Bound, seed: int, **texts: Any):
    trials = 10_000
    counts, limits, cases = [], [], []
    deltas = (0.05, 0.2)
    for n in (5, 40):
        forms = [_square_is_affine(bound, n, delta) for delta in deltas]
        for shared in (False, True):
            for low, high in ((0.5, 0.5), (0.05, 0.95)):
                suprema = posterior_suprema(
                    low,
                    high,
                    np.array([precision for precision, _ in forms]),
                    seed=seed,
                    num_samples=n,
                    num_hypotheses=16,
                    shared=shared,
                    trials=trials,
                )
                for column, (delta, (_, log_term)) in enumerate(zip(deltas, forms, strict=True)):
                    counts.append((suprema[:, column] > log_term).sum())
                    limits.append(delta)
                    cases.append(f"n={n}, risks {low}..{high}, " + ("shared" if shared else "own"))
    return judge(
        measured=shares(counts, trials),
        at_most=limits,
        where=lambda i: (
            f"{cases[i]} draws, delta={limits[i]:g}; share of trainings with a violating Q"
        ),
        **texts,
    )


def _square_is_affine(bound: Bound, n: int, delta: float) -> tuple[float, float]:
    """(m, L) of a bound of the form sqrt((KL + L) / 2m)."""
    at_0, at_1, at_9 = (float(bound(kl, num_samples=n, delta=delta)) ** 2 for kl in (0.0, 1.0, 9.0))
    if not math.isclose(at_9, at_0 + 9 * (at_1 - at_0), rel_tol=1e-9):
        raise ValueError("bound: its square must be affine in KL for the supremum over Q")
    precision = 1.0 / (2.0 * (at_1 - at_0))
    return precision, at_0 * 2.0 * precision
