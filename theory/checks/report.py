"""The result of a check, and the rule for its verdict."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from .._arguments import Numbers
from ..estimators.intervals import Estimate

CONFIDENCE = 0.9999
"""Confidence of the Clopper-Pearson interval of each measured probability: a run refutes a true
claim whose bound is attained with a chance of at most 1 in 20 000 per case."""

_ROUNDING = 1e-10


class Verdict(enum.StrEnum):
    """The result of the test of a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "not established"


@dataclass(frozen=True)
class Measured:
    """True values as measured: exact ones have no width.

    Attributes:
        value, low, high: f64[C], one per case.
        num_samples: draws behind each; 0 if enumerated or computed in closed form.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    num_samples: int = 0


@dataclass(frozen=True)
class CheckReport:
    """The test of one claim.

    Attributes:
        claim: the statement that was tested.
        source: a place in the paper, "here", or the literature.
        expected: the verdict of the analysis (docs/theory/statements.md).
        verdict: of this run. `FAILS`: some case lies beyond the bound by more than its interval.
            Otherwise `HOLDS` with a proof, and `OPEN` without one.
        slack: distance of the truth from the bound in the worst case; negative where the claim is
            violated; with the interval of the truth if sampled.
        where: the worst case, with truth and bound.
        proof: why the claim holds for the cases not run, or empty.
        remedy: for a claim that fails, what is true instead.
        num_samples: draws per case; 0: exact.
        name: of the check, `check_<name>`; empty until `CHECKS` gives it.
        seed: of the draws, likewise; None if exact.
    """

    claim: str
    source: str
    expected: Verdict
    verdict: Verdict
    slack: Estimate
    where: str
    proof: str
    remedy: str
    num_cases: int
    num_samples: int
    name: str = ""
    seed: int | None = None

    @property
    def as_expected(self) -> bool:
        """Whether this run agrees with the analysis."""
        return self.verdict == self.expected


def exact(values: Numbers) -> Measured:
    """Values known to rounding."""
    array = np.atleast_1d(np.asarray(values, np.float64)).ravel()
    return Measured(array, array, array)


def shares(successes: Numbers, trials: int) -> Measured:
    """Probabilities estimated by counts out of `trials` independent draws each."""
    count = np.atleast_1d(np.asarray(successes, np.float64)).ravel()
    tail = (1.0 - CONFIDENCE) / 2.0
    with np.errstate(invalid="ignore"):  # the two ends, where a tail is certain, are set below
        low = np.where(count > 0, stats.beta.ppf(tail, count, trials - count + 1), 0.0)
        high = np.where(count < trials, stats.beta.ppf(1 - tail, count + 1, trials - count), 1.0)
    return Measured(count / trials, low, high, trials)


def judge(
    *,
    claim: str,
    source: str,
    measured: Measured,
    where: Callable[[int], str],
    at_most: Numbers | None = None,
    at_least: Numbers | None = None,
    proof: str = "",
    remedy: str = "",
) -> CheckReport:
    """Compare measured truths with claimed bounds, case by case.

    Args:
        claim, source, proof, remedy: as in the report; `HOLDS` is expected with a proof, `FAILS`
            with a remedy.
        measured: the truths, f64[C].
        where: describes case i.
        at_most: upper bounds that the claim puts on the truths, f64[C] or one number.
        at_least: lower bounds, likewise. One of the two is given.

    Raises:
        ValueError: both kinds of bounds or neither, no case, or a truth or bound that is NaN.
    """
    if (at_most is None) == (at_least is None):
        raise ValueError("a check gives at_most or at_least, one of the two")
    bound = at_least if at_most is None else at_most
    limit = np.broadcast_to(np.asarray(bound, np.float64).ravel(), measured.value.shape)
    if limit.size == 0:
        raise ValueError("a check has no case: it would hold whatever is true")
    if np.isnan(limit).any() or np.isnan(measured.value).any():
        raise ValueError("a truth or a bound of a check is NaN")
    if at_most is not None:
        low, value, high = limit - measured.high, limit - measured.value, limit - measured.low
    else:
        low, value, high = measured.low - limit, measured.value - limit, measured.high - limit
    # The worst case is the one most clearly violated, or the tightest if none is violated.
    worst = int(np.argmin(high if (high < -_ROUNDING).any() else value))
    violated = bool(high[worst] < -_ROUNDING)
    holds = Verdict.HOLDS if proof else Verdict.OPEN
    expected = Verdict.HOLDS if proof else Verdict.FAILS if remedy else Verdict.OPEN
    return CheckReport(
        claim=claim,
        source=source,
        expected=expected,
        verdict=Verdict.FAILS if violated else holds,
        slack=Estimate(float(value[worst]), float(low[worst]), float(high[worst])),
        where=f"{where(worst)}: {measured.value[worst]:.4g}, bound {limit[worst]:.4g}",
        proof=proof,
        remedy=remedy,
        num_cases=limit.size,
        num_samples=measured.num_samples,
    )


def both_sides(
    counts: Sequence[int],
    trials: int,
    probabilities: Sequence[float],
    events: Sequence[str],
    others: Sequence[str],
    **texts: Any,
) -> CheckReport:
    """Judge probabilities that are exact, and so neither too large nor too small.

    Args:
        counts: how often each event happened in `trials` draws.
        probabilities: of the events, as claimed.
        events, others: description of each event, and of its complement.
        texts: as in `judge`.
    """
    expected, happened = np.array(probabilities), np.array(counts)
    return judge(
        measured=shares(np.concatenate([happened, trials - happened]), trials),
        at_most=np.concatenate([expected, 1.0 - expected]),
        where=[*events, *others].__getitem__,
        **texts,
    )
