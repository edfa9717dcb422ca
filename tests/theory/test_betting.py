"""Betting bounds, binary e-processes and certificates, against values of an independent source.

The reference values were computed with 30 to 40 digits by others; the formulas below are a second,
literal reading in mpmath.
"""

import math

import hypothesis
import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

import theory

X1 = [0.2, 0.9, 1, 0.7, 0.4, 0, 0.55, 0.85]
X3 = [1.0] * 9 + [0.0]
X4 = [0, 0.5, 1] * 10
X5 = [0.25, 0.75] * 50
X7 = [0.01, 0.03, 0.02, 0, 0.3] * 40
X9 = [0.5] * 480 + [1.0] * 15 + [0.0] * 5
X10 = [0.6] * 100 + [0.5] * 300

DELTA = 0.05


def close(value, expected):
    assert_allclose(value, expected, rtol=0, atol=2e-10)


# Reference values


@pytest.mark.parametrize(
    ("values", "delta", "expected"),
    [
        (X1, DELTA, 0.2371439668),
        (X3, DELTA, 0.4811371450),
        (X4, DELTA, 0.2867283614),
        (X5, DELTA, 0.4297393812),
        (X7, DELTA, 0.0490292535),
        (X9, DELTA, 0.4970027559),
        (X10, DELTA, 0.5180208198),
        (X1, 0.5, 0.3783438272),
    ],
)
def test_lower_bounds(values, delta, expected):
    close(theory.betting_lower(values, delta=delta), expected)
    # A difference D enters as (1 + D) / 2.
    differences = 2 * np.asarray(values) - 1
    close(theory.paired_lower(differences, delta=delta), 2 * expected - 1)
    close(theory.paired_upper(-differences, delta=delta), 1 - 2 * expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (X1, 0.8452404454),
        (X3, 0.9995322023),
        (X7, 0.0982418111),
        (X9, 0.5254307429),
        (X10, 0.5318245293),
    ],
)
def test_upper_bounds(values, expected):
    close(theory.betting_upper(values, delta=DELTA), expected)
    costs = 4000 * np.asarray(values)
    assert_allclose(theory.cost_upper(costs, limit=4000, delta=DELTA), 4000 * expected, rtol=1e-9)
    of_five = theory.cost_upper(costs, limit=4000, delta=5 * DELTA, num_choices=5)
    assert_allclose(of_five, 4000 * expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("values", "mean", "expected"),
    [
        (X1, 0.3, 1.7393559272),
        (X1, 0.5, -0.2227456959),
        (X4, 0.35, 0.8928649222),
        (X5, 0.45, 0.9728973229),
        (X7, 0.05, 2.5244429571),
        (X3, 0.6, 1.4801352919),
    ],
)
def test_wealth(values, mean, expected):
    close(theory.log_wealth(values, mean), expected)
    close(theory.running_log_wealth(values, mean)[-1], expected)
    assert_allclose(theory.betting_p(values, mean), min(1.0, math.exp(-expected)), rtol=1e-9)


@pytest.mark.parametrize(
    ("hits", "trials", "mean", "expected"),
    [
        (9, 10, 0.5, 2.9182620119),
        (30, 50, 0.5, -0.1490389617),
        (60, 100, 0.5, 0.5788911232),
        (327, 500, 0.6, 1.0674017512),
        (655, 1000, 0.6, 4.0515045463),
        (2, 50, 0.9, -3.8873760610),
        (490, 500, 0.95, 4.9186246852),
    ],
)
def test_binary_wealth(hits, trials, mean, expected):
    assert_allclose(theory.binary_log_wealth(hits, trials, mean), expected, rtol=0, atol=2e-9)


@pytest.mark.parametrize(
    ("risk", "nats", "number", "delta", "expected"),
    [
        (0.1096, 16.1879, 510, 0.05, 0.2138504290),
        (0, 0, 100, 0.05, 0.0295130496),
        (0.1, 50, 679, 0.05, 0.2568922455),
        (0.02, 700, 12000, 0.05, 0.1081162891),
        (0.3, 5, 340, 0.01, 0.4149395508),
        (0, 1000, 2000, 0.05, 0.3943771620),
    ],
)
def test_occam_kl(risk, nats, number, delta, expected):
    close(theory.occam_kl_bound(risk, nats, num_samples=number, delta=delta), expected)
    assert expected <= theory.occam_bound(risk, nats, num_samples=number, delta=delta)


@pytest.mark.parametrize(
    ("errors", "answered", "alpha", "expected"),
    [
        (0, 28, 0.1, 0.0523347633),
        (0, 29, 0.1, 0.0471012870),
        (3, 100, 0.1, 0.0078364871),
        (20, 325, 0.1, 0.0097020017),
        (9, 275, 0.05, 0.1155464216),
    ],
)
def test_selective(errors, answered, alpha, expected):
    close(theory.selective_p(errors, answered, alpha), expected)


@pytest.mark.parametrize(
    ("harmful", "number", "expected"),
    [
        (0, 200, 0.0148670392),
        (2, 200, 0.0311425994),
        (7, 500, 0.0261347119),
        (10, 500, 0.0336882723),
        (20, 1000, 0.0289301229),
    ],
)
def test_harmful_discordances(harmful, number, expected):
    close(theory.binomial_upper(harmful, number, delta=DELTA), expected)
    close(theory.binomial_lower(number - harmful, number, delta=DELTA), 1 - expected)


def test_choices():
    rising = [160, 205, 250, 285, 310, 330]
    for order in ("holm", "descending"):
        assert theory.certify(rising, 500, target=0.5, delta=DELTA, order=order).index == 3
        assert theory.certify(rising, 500, target=0.6, delta=DELTA, order=order).index == 5
        falling = theory.certify(
            [160, 185, 190, 186, 170, 153], 500, target=0.33, delta=DELTA, order=order
        )
        assert falling.index is None
        assert not falling.certified.any()
        expected = [0.6981576688, 0.0326954607, 0.0104801177, 0.0264370294]
        close(falling.p_values, [*expected, 0.3327499394, 0.8832242805])


# Against other formulas


def _literal_wealth(values, mean):
    """ln W by its definition, in 40 digits."""
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for j in range(50):
            share = mpmath.sin(mpmath.pi * (2 * j + 1) / 200) ** 2
            product = mpmath.mpf(1)
            for x in values:
                product *= 1 + share * (mpmath.mpf(x) / mpmath.mpf(mean) - 1)
            total += product
        return float(mpmath.log(total / 50))


values_lists = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=12)
means = st.floats(0.01, 0.99)


@hypothesis.given(values=values_lists, mean=means)
def test_wealth_is_its_definition(values, mean):
    running = theory.running_log_wealth(values, mean)
    for end in (1, len(values)):
        assert_allclose(running[end - 1], _literal_wealth(values[:end], mean), atol=1e-9)
    assert_allclose(theory.log_wealth(values, mean), running[-1], atol=1e-9)


@hypothesis.given(values=values_lists, mean=means, other=means)
def test_wealth_falls_as_the_mean_rises(values, mean, other):
    low, high = sorted((mean, other))
    at = np.asarray(theory.log_wealth(values, [low, high]))
    assert at[0] >= at[1] - 1e-9


@hypothesis.given(values=values_lists, delta=st.floats(1e-6, 0.9))
def test_a_bound_is_where_the_wealth_reaches_the_inverse_level(values, delta):
    low, high = (
        bound(values, delta=delta) for bound in (theory.betting_lower, theory.betting_upper)
    )
    assert 0 <= low <= np.mean(values) <= high <= 1
    if low > 1e-200:
        assert_allclose(theory.log_wealth(values, low), -math.log(delta), atol=1e-6)


@hypothesis.given(data=st.data(), mean=st.floats(0.05, 0.95))
def test_binary_wealth_is_the_integral_over_larger_means(data, mean):
    trials = data.draw(st.integers(1, 40))
    hits = data.draw(st.integers(0, trials))
    with mpmath.workdps(30):
        ratio = mpmath.quad(
            lambda p: (p / mean) ** hits * ((1 - p) / (1 - mpmath.mpf(mean))) ** (trials - hits),
            [mean, 1],
        )
        expected = float(mpmath.log(ratio / (1 - mpmath.mpf(mean))))
    assert_allclose(theory.binary_log_wealth(hits, trials, mean), expected, atol=1e-7)


def test_binomial_tests_and_bounds_are_scipy_s():
    for hits, trials in ((0, 5), (3, 5), (5, 5), (327, 500)):
        for delta in (0.3, 0.05, 1e-9):
            interval = scipy.stats.binomtest(hits, trials).proportion_ci(1 - 2 * delta, "exact")
            found = [
                f(hits, trials, delta=delta) for f in (theory.binomial_lower, theory.binomial_upper)
            ]
            assert_allclose(found, [interval.low, interval.high], rtol=1e-6)
        for target in (0.1, 0.6):
            test = scipy.stats.binomtest(hits, trials, target, alternative="greater")
            tested = theory.certify([hits], trials, target=target, delta=DELTA)
            assert_allclose(tested.p_values, [float(test.pvalue)], rtol=1e-9)
            less = scipy.stats.binomtest(hits, trials, target, alternative="less")
            assert_allclose(theory.selective_p(hits, trials, target), float(less.pvalue), rtol=1e-9)


def test_the_anytime_bound_is_where_the_binary_wealth_reaches_the_inverse_level():
    for hits, trials in ((9, 10), (10, 10), (1, 40), (327, 500)):
        low = theory.anytime_lower(hits, trials, delta=DELTA)
        assert_allclose(theory.binary_log_wealth(hits, trials, low), -math.log(DELTA), atol=1e-7)
        # Looking after each trial has its price.
        assert 0 < low < theory.binomial_lower(hits, trials, delta=DELTA) < hits / trials
        high = theory.anytime_upper(trials - hits, trials, delta=DELTA)
        assert_allclose(high, 1 - low, rtol=1e-12)
    assert theory.anytime_lower(0, 10, delta=DELTA) == 0.0


def test_levels_near_1_give_the_mean():
    delta = 1 - 1e-15
    for number in (100, 10**6):
        assert_allclose(theory.anytime_lower(number, number, delta=delta), 1, rtol=1e-8)
        assert_allclose(theory.anytime_upper(0, number, delta=delta), 0, atol=1e-8)
    for value, number in ((0.3, 3), (0.1, 7), (0.7, 1000)):
        assert_allclose(theory.betting_lower([value] * number, delta=1 - 2**-53), value, rtol=1e-6)


def test_the_lower_bound_of_a_tiny_level_is_a_number():
    # Pr[Bin(10, p) >= 9] = 1e-300 at p = 4e-34; a bound of 0 is true, too.
    for hits, trials, delta in ((9, 10, 1e-300), (2, 5, 1e-200), (3, 5, 1e-120)):
        bound = float(theory.binomial_lower(hits, trials, delta=delta))
        assert 0 <= bound < 1e-24


def test_bounds_of_a_tiny_level_are_true_where_scipy_stops_early():
    # By mpmath with 60 digits the exact bounds are .1064996 and .00830781.
    lower = float(theory.binomial_lower(337, 354, delta=1e-300))
    upper = float(theory.binomial_upper(35, 100_000, delta=1e-300))
    assert 0.105 < lower < 0.1065
    assert 0.008307 < upper < 0.00835


# Guarantees, on laws that are hard for them

WORLDS = 400


def _violations_allowed(delta):
    """More of `WORLDS` violations than this have a probability below 1e-4 if each has delta."""
    return scipy.stats.binom.ppf(1 - 1e-4, WORLDS, delta)


def test_looking_after_each_trial_is_allowed_with_an_e_process_alone():
    delta, mean, most = 0.1, 0.6, 300
    trials = np.arange(1, most + 1)
    hits = np.cumsum(np.random.default_rng(1).random((WORLDS, most)) < mean, axis=1)
    wealth = theory.binary_log_wealth(hits, trials[None, :], mean)
    assert (wealth.max(axis=1) >= -math.log(delta)).sum() <= _violations_allowed(delta)
    fixed = theory.binomial_lower(hits, trials[None, :], delta=delta)
    assert (fixed.max(axis=1) > mean).sum() > 2 * delta * WORLDS


def test_no_false_certificate_more_often_than_delta():
    delta, number, target = 0.1, 200, 0.6
    true = np.array([0.45, 0.6, 0.6, 0.58, 0.6])  # none is above the target
    counts = np.random.default_rng(2).binomial(number, true, (WORLDS, true.size))
    for order in ("holm", "descending"):
        found = [
            theory.certify(row, number, target=target, delta=delta, order=order) for row in counts
        ]
        assert sum(choice.index is not None for choice in found) <= _violations_allowed(delta)
    # Without a correction some configuration is certified falsely in many worlds.
    assert sum((choice.p_values <= delta).any() for choice in found) > 1.5 * delta * WORLDS


def test_holm_goes_on_with_the_next_level():
    p = [0.04, 0.012, 0.5, 0.016]
    assert_array_equal(theory.reject(p, delta=0.05), [False, True, False, True])
    assert_array_equal(theory.reject([0.02, 0.2, 0.01], delta=0.05, order="descending"), [0, 0, 1])


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.betting_lower([0.5, 1.2], delta=0.05), r"values\[1\]=1.2: values lie in"),
        (lambda: theory.betting_lower([0.5, math.nan], delta=0.05), r"values\[1\]=nan"),
        (lambda: theory.betting_lower([], delta=0.05), r"values has shape \[0\]"),
        (lambda: theory.betting_upper([[0.5]], delta=0.05), r"values has shape \[1, 1\]"),
        (lambda: theory.betting_lower([0.5], delta=0.0), r"delta=0: .* in \(0, 1\)"),
        (lambda: theory.betting_lower([0.5], delta=1.0), r"delta=1: .* in \(0, 1\)"),
        (lambda: theory.paired_lower([-1.5], delta=0.05), r"values lie in \[-1, 1\]"),
        (lambda: theory.log_wealth([0.5], 1.0), r"mean=1: a mean in \(0, 1\)"),
        (lambda: theory.cost_upper([5.0], limit=4.0, delta=0.05), r"costs\[0\]=5: is above the"),
        (lambda: theory.binary_log_wealth(11, 10, 0.5), "successes=11: can't be more than trials"),
        (
            lambda: theory.binary_log_wealth(1.5, 10, 0.5),
            "successes=1.5: must be a finite whole number",
        ),
        (lambda: theory.certify([], 500, target=0.5, delta=0.05), "counts is empty: the grid"),
        (lambda: theory.certify([501], 500, target=0.5, delta=0.05), "counts"),
        (lambda: theory.selective_p(0, 0, 0.1), "answered=0: at least one trial"),
        (lambda: theory.cost_upper(5.0, limit=6.0, delta=0.05), r"costs has shape \[\]: a list"),
        (lambda: theory.cost_upper([], limit=6.0, delta=0.05), r"costs has shape \[0\]: a list"),
        (lambda: theory.cost_upper([5.0], limit=[6, 7], delta=0.05), r"limit has shape \[2\]: one"),
    ],
)
def test_what_breaks_an_assumption_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
