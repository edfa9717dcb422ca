"""Budgets against brute force and the definition in hundreds of digits."""

import fractions

import hypothesis
import numpy as np
import pytest
import theory_reference as reference
from hypothesis import strategies as st
from mpmath import mpf
from theory_reference import assert_close

import theory

targets = st.floats(0.001, 0.999)
shares = st.floats(0.01, 0.99)
ratios = st.floats(0.1, 12)
deltas = st.sampled_from([0.0, 0.01, 0.05, 0.3])


@pytest.mark.parametrize("n", [1, 2, 8, 256, 7_980_000_000])
@pytest.mark.parametrize("t", [0.0, 2.1, 7.0, 40.0])
@pytest.mark.parametrize("delta", [0.0, 0.05, 0.999])
def test_required_coverage(t, n, delta):
    value = theory.required_coverage(0.9, t, 1.0, num_candidates=n, delta=delta)
    bracket = reference.paper_accuracy(1, t, 1, n, delta)
    if bracket <= 0:
        assert value == np.inf
    else:
        assert_close(value, mpf(0.9) / bracket)


def test_a_negative_denominator_is_no_small_demand():
    # N = 8, t = 2.1: target / bracket is -.292, which any coverage would "satisfy".
    assert theory.required_coverage(0.9, 2.1, 1.0, num_candidates=8, delta=0.05) == np.inf
    value = theory.required_coverage(0.5, 2.1, 1.0, num_candidates=2, delta=0.05)
    assert value == pytest.approx(1.338, abs=2e-3)
    assert theory.is_vacuous_upper(value)
    assert theory.required_coverage(0.9, 7.0, 1.0, num_candidates=256, delta=0.05) > 1


@pytest.mark.parametrize("p1", [1e-300, 1e-9, 0.05, 0.3, 1 - 1e-15])
@pytest.mark.parametrize("t", [0.0, 2.0, 6.0, 20.0, 80.0, 1e5])
@pytest.mark.parametrize("delta", [0.0, 0.05, 1 - 1e-9])
def test_optimum_is_where_the_derivative_vanishes(p1, t, delta):
    value = mpf(float(theory.optimal_num_candidates(p1, t, 1.0, delta=delta)))
    if t == 1e5 and p1 == 1e-300:
        assert value == np.inf
        return
    if t == 1e5:
        # c is below any float64, but the optimum grows only with its logarithm. There
        # exp(k N) = B - k N with B = 1 + k (1 - delta + c) / c of 5e8 digits.
        rate = -reference.mpmath.log(1 - mpf(p1))
        exponent = mpf(t) ** 2 / 8
        log_b = exponent + reference.mpmath.log(rate * (1 - mpf(delta)))
        assert abs(value * rate / log_b - 1) < 1e-11
        return
    width = mpf(1e-11)
    before = reference.paper_derivative(value * (1 - width), p1, t, 1, delta)
    after = reference.paper_derivative(value * (1 + width), p1, t, 1, delta)
    assert before > 0 > after


def test_optimum_at_the_ends():
    optimum = theory.optimal_num_candidates
    assert optimum(0.3, 0.1, 0.0, delta=0.05) == np.inf
    assert optimum(1.0, 6.0, 1.0, delta=0.05) == 0
    limit = optimum(0.0, 6.0, 1.0, delta=0.05)
    assert optimum(1e-12, 6.0, 1.0, delta=0.05) == pytest.approx(limit, rel=1e-9)
    assert optimum(0.3, 9e-200, 1.5e-200, delta=0.05) == pytest.approx(
        optimum(0.3, 6.0, 1.0, delta=0.05), rel=1e-12
    )


def test_figures():
    """The table of docs/theory/statements.md, section 7: delta = .05, target .8."""
    table = [  # t, p1, N*, largest bound, N with a positive bound, N_lo, N_hi, repaired
        (2, 0.3, 1, 0.285, 2, np.inf, 0, 12),
        (3, 0.3, 2, 0.319, 3, np.inf, 0, 6),
        (5, 0.3, 6, 0.644, 22, np.inf, 0, 6),
        (6, 0.3, 9, 0.826, 86, 7, 14, 6),
        (7, 0.05, 59, 0.783, 435, np.inf, 0, 37),
        (8, 0.05, 97, 0.911, 2832, 38, None, 37),
        (10, 0.3, 32, 0.950, 254_921, 6, None, 6),
    ]
    for t, p1, best, top, positive, low, high, repaired in table:
        setting = (p1, t, 1.0)
        n = np.arange(1, 300)
        bound = theory.accuracy_lower_bound(
            theory.coverage(p1, n), t, 1.0, num_candidates=n, delta=0.05
        )
        assert n[bound.argmax()] == best
        assert abs(theory.optimal_num_candidates(*setting, delta=0.05) - best) < 1
        assert bound.max() == pytest.approx(top, abs=6e-4)
        assert theory.largest_budget(0.0, *setting, delta=0.05) == positive
        assert theory.smallest_budget(0.8, *setting, delta=0.05) == low
        if high is not None:
            assert theory.largest_budget(0.8, *setting, delta=0.05) == high
        assert theory.smallest_budget_margin(0.8, *setting, delta=0.05) == repaired
    assert theory.optimal_num_candidates(0.3, 6, 1, delta=0.05) == pytest.approx(9.393, abs=5e-4)
    assert theory.optimal_num_candidates(0.05, 8, 1, delta=0.05) == pytest.approx(96.53, abs=5e-3)
    values = theory.smallest_budget_margin(0.9, 0.3, [1.05, 1.2, 1.5, 1.9, 2.0, 2.01], 1.0, delta=0)
    assert values.tolist() == [161, 45, 22, 16, 15, 7]


@hypothesis.given(targets, shares, ratios, deltas)
def test_paper_budgets_against_brute_force(target, p1, t, delta):
    n = np.arange(1, 20_001)
    bound = theory.accuracy_lower_bound(
        theory.coverage(p1, n), t, 1.0, num_candidates=n, delta=delta
    )
    certified = n[(bound >= target) & (bound < 1 - delta)]
    smallest = theory.smallest_budget(target, p1, t, 1.0, delta=delta)
    largest = theory.largest_budget(target, p1, t, 1.0, delta=delta)
    if certified.size:
        assert smallest == certified[0]
        assert largest == certified[-1] or (certified[-1] == n[-1] and largest > n[-1])
    else:
        assert (smallest, largest) == (np.inf, 0) or smallest > n[-1]


@hypothesis.given(targets, shares, st.floats(1.01, 3), deltas)
def test_repaired_budget_by_its_definition(target, p1, t, delta):
    n = theory.smallest_budget_margin(target, p1, t, 1.0, delta=delta)
    if target + delta > 1:
        assert n == np.inf
        return
    assert reference.margin_accuracy(p1, t, 1, n, delta) >= target * (1 - 1e-13)
    if n > 1:
        assert reference.margin_accuracy(p1, t, 1, n - 1, delta) < target


@hypothesis.given(targets, shares, ratios, deltas)
def test_repaired_budget_is_the_smaller_one(target, p1, t, delta):
    # From three candidates on: with one or two the paper's bound can be positive without a margin.
    paper = theory.smallest_budget(target, p1, t, 1.0, delta=0.0)
    repaired = theory.smallest_budget_margin(target, p1, t, 1.0, delta=0.0)
    assert repaired <= paper or paper <= 2
    assert theory.smallest_budget(target, p1, t, 1.0, delta=delta) >= paper


@hypothesis.given(targets, shares, ratios, st.floats(1, 2))
def test_larger_deviations_take_more(target, p1, t, factor):
    for budget in (theory.smallest_budget, theory.smallest_budget_margin):
        near = budget(target, p1, t, 1.0, delta=0.0)
        assert budget(target, p1, t / factor, 1.0, delta=0.0) >= near


@pytest.mark.parametrize("n", range(1, 7))
def test_targets_met_to_the_last_digit(n):
    """As decimals: two candidates with p1 = .1 reach .19, whatever float64 makes of it."""
    p1 = [fractions.Fraction(percent, 100) for percent in range(1, 100)]
    target = np.array([float(1 - (1 - p) ** n) for p in p1])
    p1 = np.array([float(p) for p in p1])
    assert n == 1 or (theory.coverage(p1, n) < target).any()
    assert (theory.smallest_budget_margin(target, p1, 3.0, 1.0, delta=0) == n).all()
    assert (theory.smallest_budget(target, p1, 1.0, 0.0, delta=0) == n).all()


def test_budgets_at_the_ends():
    for budget in (theory.smallest_budget, theory.smallest_budget_margin):
        # Nothing but certainty reaches what delta leaves.
        assert budget(0.95, 0.3, 1.0, 0.0, delta=0.05) == np.inf
        assert budget(0.95, 1.0, 1.0, 0.0, delta=0.05) == 1
        assert budget(0.96, 1.0, 1.0, 0.0, delta=0.05) == np.inf
        assert budget(1.0, 0.3, 1.0, 0.0, delta=0.0) == np.inf
        assert budget(1.0, 1.0, 1.0, 0.0, delta=0.0) == 1
        assert budget(0.5, 0.0, 1.0, 0.0, delta=0.0) == np.inf
        assert budget(0.0, 0.0, 1.0, 0.0, delta=0.0) == 1
    # Also where p_N (1 - delta - (N - 1) c) rounds to 1 - delta long before N*.
    assert theory.smallest_budget(0.95, 0.3, 20.0, 1.0, delta=0.05) == np.inf
    # Exact scores: ln(1 - .9) / ln(1 - p1), without end.
    assert theory.smallest_budget(0.9, 0.3, 1.0, 0.0, delta=0.0) == 7
    assert theory.largest_budget(0.9, 0.3, 1.0, 0.0, delta=0.0) == np.inf
    assert theory.largest_budget(0.96, 0.3, 1.0, 0.0, delta=0.05) == 0
    # One candidate is never misranked, whatever the gap.
    assert theory.smallest_budget(0.2, 0.3, 0.0, 1.0, delta=0.0) == 1
    assert theory.smallest_budget_margin(0.2, 0.3, 0.5, 1.0, delta=0.0) == np.inf
    rare = theory.smallest_budget_margin(0.9, 1e-12, 3.0, 1.0, delta=0.0)
    assert rare == pytest.approx(np.log(10) * 1e12, rel=1e-11)
    rare = theory.smallest_budget(0.9, 1e-12, 40.0, 1.0, delta=0.0)
    assert rare == pytest.approx(np.log(10) * 1e12, rel=1e-11)


def test_arrays():
    targets, ratios = [[0.5], [0.8]], [4.0, 6.0, 8.0]
    values = np.asarray(theory.smallest_budget(targets, 0.3, ratios, 1.0, delta=0.05))
    assert values.shape == (2, 3)
    assert values[1, 1] == 7
    values = np.asarray(theory.largest_budget(targets, 0.3, ratios, 1.0, delta=0.05))
    assert values[1, 1] == 14
    assert np.shape(theory.optimal_num_candidates([0.1, 0.2], 6.0, 1.0, delta=0)) == (2,)
