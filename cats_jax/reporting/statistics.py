"""Intervals and paired comparisons of accuracies; the unit is the question, not the row.

Runs of one question with several seeds are not independent, so every function except
`mean_of_seeds` takes one mean per question. One run per question gives 0 or 1: then the classical
methods apply.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import stats

from theory.estimators import Estimate

CONFIDENCE = 0.95
DIGITS = 12
"""Digits of means that are compared: in float64 a mean of 0 may be 1e-17."""

FEWEST = 6  # 2 ** -(6 - 1), the p-value if all signs are equal, is below .05
_RESAMPLES = 5000
_BATCH = 500
_MOST_KEPT = 2000  # questions, whose resamples take 80 MB
# Tables with intervals are compared between runs, so the resampling never varies.
_BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Paired:
    """Comparison of two strategies on the same questions.

    Attributes:
        difference: mean accuracy of the first minus the second, with its interval.
        wins: questions on which the first was better.
        losses: questions on which the second was better.
        questions: number of questions that both have.
        moved: the differences that are not 0, f[wins + losses].
    """

    difference: Estimate
    wins: int
    losses: int
    questions: int
    moved: np.ndarray = field(repr=False, compare=False)

    @functools.cached_property
    def p_value(self) -> float:
        """Two-sided p-value of no difference.

        With one run per question, this is McNemar's exact test, otherwise the sign-flip test over
        questions, of which McNemar's is a special case. Only a shown p-value takes time.
        """
        return _sign_flip(self.moved, self.wins, self.losses)

    @property
    def verdict(self) -> str:
        """Verdict: "ties" if the interval of the difference includes 0, else "wins" or "loses".

        With fewer than `FEWEST` questions that differ it is "ties", too: their p-value can't be
        below .05, but an interval of resamples may exclude 0.
        """
        if self.wins + self.losses < FEWEST:
            return "ties"
        if round(self.difference.low, DIGITS) > 0:
            return "wins"
        return "loses" if round(self.difference.high, DIGITS) < 0 else "ties"


@functools.lru_cache(maxsize=4096)  # scipy tests a hypothesis first; reports repeat their calls
def wilson(successes: int, trials: int) -> Estimate:
    """Share of successes with Wilson's interval.

    Raises:
        ValueError: there are no trials, or more successes than trials.
    """
    if trials < 1:
        raise ValueError(f"trials={trials}: an interval needs at least one trial")
    bounds = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(successes / trials, float(bounds.low), float(bounds.high))


def accuracy(shares: Sequence[float]) -> Estimate:
    """Mean of the shares of right answers, one per question, with its interval.

    The interval is Wilson's if all shares are 0 or 1, else the bootstrap over questions.
    """
    if all(share in (0.0, 1.0) for share in shares):
        return wilson(round(sum(shares)), len(shares))
    return bootstrap_mean(shares)


def bootstrap_mean(values: Sequence[float]) -> Estimate:
    """Mean with its percentile bootstrap interval; a point for fewer than two distinct values.

    Raises:
        ValueError: `values` is empty.
    """
    sample = np.asarray(values, float)
    if sample.size == 0:
        raise ValueError("values is empty: a mean needs at least one")
    return _bootstrap(sample.tobytes())


@functools.lru_cache(maxsize=1024)  # comparisons with other rivals may have the same two frontiers
def _bootstrap(values: bytes) -> Estimate:
    """The interval of float64 values, as bytes so that the cache can find them."""
    sample = np.frombuffer(values)
    mean = float(sample.mean())
    if np.ptp(sample) == 0:
        return Estimate(mean, mean, mean)
    drawn = _kept_resamples if sample.size <= _MOST_KEPT else _resamples
    means = np.concatenate([sample[places].mean(axis=-1) for places in drawn(sample.size)])
    bounds = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=0,
        method="percentile",
        confidence_level=CONFIDENCE,
        bootstrap_result=_Resampled(means),
    ).confidence_interval
    return Estimate(mean, float(bounds.low), float(bounds.high))


class _Resampled(NamedTuple):
    """The earlier result from which `scipy.stats.bootstrap` continues."""

    bootstrap_distribution: np.ndarray


def _resamples(size: int) -> Iterator[np.ndarray]:
    """Places in a sample of this size, i[_BATCH, size] each: those that scipy's bootstrap draws."""
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    for _ in range(_RESAMPLES // _BATCH):
        yield rng.integers(0, size, (_BATCH, size))


@functools.lru_cache(maxsize=2)  # validation and test questions
def _kept_resamples(size: int) -> list[np.ndarray]:
    """All places; samples of one size have the same, and reports have thousands of samples."""
    return list(_resamples(size))


def mean_of_seeds(values: Sequence[float] | np.ndarray) -> Estimate:
    """Mean of figures, one per seed of a training or a run, with Student's interval.

    Raises:
        ValueError: fewer than two seeds.
    """
    sample = np.asarray(values, float)
    if sample.size < 2:
        raise ValueError(f"{sample.size} seeds: an interval needs at least two")
    mean, error = float(sample.mean()), float(sample.std(ddof=1) / np.sqrt(sample.size))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, sample.size - 1)) * error
    return Estimate(mean, mean - half, mean + half)


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare two strategies question by question.

    Args:
        first: the first strategy's share of right answers per question.
        second: the second strategy's, for the same questions in the same order.

    Raises:
        ValueError: the lengths differ or are 0.
    """
    differences = np.asarray(first, float) - np.asarray(second, float)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return Paired(
        difference=bootstrap_mean(differences.tolist()),
        wins=wins,
        losses=losses,
        questions=differences.size,
        moved=differences[differences != 0],
    )


def _sign_flip(moved: np.ndarray, wins: int, losses: int) -> float:
    if moved.size <= 1:
        return 1.0  # one difference is as large with either sign
    if np.all(np.abs(moved) == 1):
        return float(stats.binomtest(wins, wins + losses, 0.5).pvalue)
    result = stats.permutation_test(
        (moved,),
        _mean,
        permutation_type="samples",
        n_resamples=_RESAMPLES,
        batch=_BATCH,
        rng=np.random.default_rng(_BOOTSTRAP_SEED),
    )
    return float(result.pvalue)


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean to `DIGITS` digits."""
    return np.round(values.mean(axis=axis), DIGITS)
