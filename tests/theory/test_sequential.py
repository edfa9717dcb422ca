"""Decisions at any time: against exact fractions, and how often they are false."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import theory
from theory.sequential import Settled


def wealth(hits, trials, mean):
    """W by the binomial theorem, in whole fractions: the integral of p^S (1 - p)^F over (m, 1]."""
    misses = trials - hits

    def whole(p):
        return sum(
            Fraction((-1) ** j * math.comb(misses, j), hits + j + 1) * p ** (hits + j + 1)
            for j in range(misses + 1)
        )

    return (whole(Fraction(1)) - whole(mean)) / ((1 - mean) * mean**hits * (1 - mean) ** misses)


@pytest.mark.parametrize(
    ("right", "decision"),
    [([1] * 12, "above"), ([0, 1] * 3 + [0] * 20, "below"), ([1, 0] * 6, "open")],
)
def test_the_first_answer_after_which_it_is_settled(right, decision):
    mean, delta = Fraction(1, 2), Fraction(1, 20)
    expected = len(right), "open"
    for t in range(1, len(right) + 1):
        hits = sum(right[:t])
        if wealth(hits, t, mean) >= 1 / delta:
            expected = t, "above"
            break
        if wealth(t - hits, t, 1 - mean) >= 1 / delta:
            expected = t, "below"
            break
    found = theory.settle(right, target=0.5, delta=0.05)
    assert (found.trials, found.decision) == expected
    assert found.decision == decision
    hits = sum(right[: found.trials])
    assert found.successes == hits
    for value, count, m in (
        (found.log_wealth_above, hits, mean),
        (found.log_wealth_below, found.trials - hits, 1 - mean),
    ):
        assert math.exp(value) == pytest.approx(float(wealth(count, found.trials, m)), rel=1e-9)
    # What comes behind the decision changes nothing.
    if decision != "open":
        more = theory.settle([*right[: found.trials], 0, 1, 0], target=0.5, delta=0.05)
        assert more == found


def test_false_decisions_are_rare_and_looking_with_fixed_tests_is_not():
    rng = np.random.default_rng(3)
    worlds, number, target, delta = 200, 250, 0.6, 0.1
    false = {"above": 0, "below": 0}
    looked = 0
    for row in rng.random((worlds, number)) < target:
        decision = theory.settle(row, target=target, delta=delta).decision
        if decision != "open":
            false[decision] += 1
        trials = np.arange(1, number + 1)
        looked += (theory.binomial_lower(row.cumsum(), trials, delta=delta) > target).any()
    # With an accuracy at the target both decisions are false.
    assert max(false.values()) <= 0.1 * worlds < 0.2 * worlds < looked


def test_what_can_not_be_settled():
    for right, options, message in (
        ([0.5], {}, "each value must be 0 or 1"),
        ([], {}, "right"),
        ([1], {"target": 1.0}, "target=1"),
        ([1], {"delta": 0.0}, "delta=0"),
    ):
        with pytest.raises(ValueError, match=message):
            theory.settle(right, **{"target": 0.5, "delta": 0.05, **options})
    assert isinstance(theory.settle([True], target=0.5, delta=0.05), Settled)


def test_the_mean_is_settled_where_the_running_wealth_is_first_large():
    rng = np.random.default_rng(3)
    values = rng.choice([0.0, 0.5, 1.0], size=300, p=[0.1, 0.3, 0.6])
    found = theory.settle_mean(values, target=0.6, delta=0.05)
    above = theory.running_log_wealth(values, 0.6)
    below = theory.running_log_wealth(1 - values, 0.4)
    first = int(np.flatnonzero(np.maximum(above, below) >= np.log(20))[0])
    assert (found.decision, found.trials) == ("above", first + 1)
    assert found.successes == values[: first + 1].sum()
    assert (found.log_wealth_above, found.log_wealth_below) == (above[first], below[first])
    mirrored = theory.settle_mean(1 - values, target=0.4, delta=0.05)
    assert (mirrored.decision, mirrored.trials) == ("below", first + 1)
    # Values after the decision change nothing.
    assert theory.settle_mean(values[: first + 1], target=0.6, delta=0.05) == found
    for wrong in ([], [1.5], [np.nan]):
        with pytest.raises(ValueError, match="values"):
            theory.settle_mean(wrong, target=0.6, delta=0.05)


def test_a_mean_at_the_target_is_settled_at_most_twice_as_often_as_delta():
    # Both decisions are false, each in at most a share delta of the worlds.
    rng = np.random.default_rng(4)
    delta, worlds, wrong = 0.1, 300, 0
    for _ in range(worlds):
        values = rng.choice([0.0, 0.5, 1.0], size=400, p=[0.3, 0.4, 0.3])
        wrong += theory.settle_mean(values, target=0.5, delta=delta).decision != "open"
    assert wrong > 0
    assert scipy.stats.binomtest(wrong, worlds, 2 * delta, alternative="greater").pvalue > 1e-3
