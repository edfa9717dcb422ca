"""Intervals and paired comparisons against closed forms and counting."""

import math

import numpy as np
import pytest
from scipy import stats

from cats_jax.reporting import statistics


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (5, 5), (3, 10), (61, 100)])
def test_wilson_is_its_formula(successes, trials):
    z = 1.959963984540054
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials)
    half *= math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    interval = statistics.wilson(successes, trials)
    assert interval.value == share
    assert interval.low == pytest.approx(centre - half, abs=1e-9)
    assert interval.high == pytest.approx(centre + half, abs=1e-9)


def test_wilson_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="trials=0"):
        statistics.wilson(0, 0)


def test_one_run_a_question_is_wilson_and_several_are_resampled_by_question():
    assert statistics.accuracy([1.0, 0.0, 1.0, 1.0]) == statistics.wilson(3, 4)
    # Ten runs of each of 20 questions that agree are 20 facts, not 200.
    shares = [0.9] * 10 + [0.1] * 10
    interval = statistics.accuracy(shares)
    assert interval.value == pytest.approx(0.5)
    standard_error = np.std(shares) / math.sqrt(20)
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * standard_error, rel=0.1)


def test_bootstrap_is_a_point_without_variation_and_the_same_each_time():
    assert statistics.bootstrap_mean([2.0, 2.0]) == statistics.Estimate(2.0, 2.0, 2.0)
    assert statistics.bootstrap_mean([7.0]) == statistics.Estimate(7.0, 7.0, 7.0)
    values = [1.0, 2.0, 5.0, 7.0]
    assert statistics.bootstrap_mean(values) == statistics.bootstrap_mean(values)
    with pytest.raises(ValueError, match="empty"):
        statistics.bootstrap_mean([])


@pytest.mark.parametrize("most_kept", [0, 50])
def test_bootstrap_is_scipys_from_its_seed_to_the_last_bit(monkeypatch, most_kept):
    """Also where the resamples of one size are kept."""
    monkeypatch.setattr(statistics, "_MOST_KEPT", most_kept)
    statistics._bootstrap.cache_clear()
    for size in (2, 7, 50):
        sample = np.random.default_rng(size).normal(size=size)
        found = stats.bootstrap(
            (sample,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(0)
        )
        bounds = found.confidence_interval
        expected = statistics.Estimate(sample.mean(), bounds.low, bounds.high)
        assert statistics.bootstrap_mean(sample.tolist()) == expected


def test_paired_is_mcnemars_exact_test():
    first = [1.0] * 8 + [0.0] * 2 + [1.0] * 30
    second = [0.0] * 8 + [1.0] * 2 + [1.0] * 30
    result = statistics.paired(first, second)
    assert (result.wins, result.losses, result.questions) == (8, 2, 40)
    assert result.difference == statistics.bootstrap_mean([1.0] * 8 + [-1.0] * 2 + [0.0] * 30)
    assert result.difference.value == pytest.approx(6 / 40)
    exact = 2 * sum(math.comb(10, k) for k in range(3)) / 2**10
    assert result.p_value == pytest.approx(exact)


def test_paired_with_shares_flips_signs():
    # Three differences of one sign: 2 of the 8 sign patterns are as extreme.
    result = statistics.paired([0.5, 0.75, 1.0], [0.25, 0.25, 0.25])
    assert result.p_value == pytest.approx(2 / 8)


def test_paired_with_one_difference_that_is_a_share():
    result = statistics.paired([0.5, 0.0, 1.0], [0.25, 0.0, 1.0])
    assert (result.wins, result.losses, result.p_value) == (1, 0, 1.0)


def test_paired_verdicts():
    wins = statistics.paired([1.0] * 20 + [0.0], [0.0] * 20 + [0.0])
    losses = statistics.paired([0.0] * 21, [1.0] * 20 + [0.0])
    ties = statistics.paired([1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0])
    same = statistics.paired([1.0, 0.0], [1.0, 0.0])
    assert [r.verdict for r in (wins, losses, ties, same)] == ["wins", "loses", "ties", "ties"]
    assert same.p_value == 1.0


@pytest.mark.parametrize("equal", [0, 1, 90])
@pytest.mark.parametrize(("differing", "verdict"), [(1, "ties"), (5, "ties"), (6, "wins")])
def test_equal_signs_win_only_with_a_small_p_value(differing, equal, verdict):
    result = statistics.paired([1.0] * differing + [0.0] * equal, [0.0] * (differing + equal))
    assert result.p_value == pytest.approx(min(1.0, 2 * 0.5**differing))
    assert result.verdict == verdict


def test_an_interval_that_ends_at_0_is_a_tie():
    """In float64 the lower end is 1.4e-17."""
    first, second = [3, 3, 4, 4, 4, 5, 4, 5], [4, 4, 3, 1, 3, 4, 3, 3]
    shares = [[right / 6 for right in side] for side in (first, second)]
    assert statistics.paired(*shares).difference.low == pytest.approx(0.0, abs=1e-15)
    assert statistics.paired(*shares).verdict == "ties"
    assert statistics.paired(*shares[::-1]).verdict == "ties"


def test_shares_without_a_difference_have_the_p_value_1():
    """In float64 the sums of the sign patterns that are 0 differ by 1e-17."""
    result = statistics.paired([1, 1 / 3, 2 / 3, 1, 1 / 3], [2 / 3] * 5)
    assert result.difference.value == pytest.approx(0.0, abs=1e-15)
    assert result.p_value == 1.0


def test_interval_of_a_difference_covers_the_truth_at_its_rate():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        first = (rng.random(150) < 0.6).astype(float)
        second = (rng.random(150) < 0.5).astype(float)
        difference = statistics.paired(first, second).difference
        covered += difference.low <= 0.1 <= difference.high
    assert covered >= 88
