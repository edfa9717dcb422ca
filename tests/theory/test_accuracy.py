"""Accuracy bounds and exact laws against enumeration and a reference in hundreds of digits."""

import itertools
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
import theory_reference as reference
from hypothesis import strategies as st
from mpmath import mpf
from theory_reference import assert_close

import theory

PROBABILITIES = (0.0, 1e-300, 1e-9, 0.05, 0.3, 1 - 1e-12, 1.0)
COUNTS = (1, 2, 16, 256, 7_980_000_000)
# On both sides of gap = epsilon and gap = 2 epsilon; exact scores; squares that underflow.
PAIRS = (
    *((gap, 0.1) for gap in (0.0, 0.05, 0.1, 0.13, 0.2, np.nextafter(0.2, 1), 0.21, 1.0)),
    (0.1, 0.0),
    (9e-300, 1e-300),
    (1e-200, 1e-200),
)

shares = st.floats(0, 1)
counts = st.integers(1, 300)
ratios = st.floats(0, 9)


@pytest.mark.parametrize("p1", PROBABILITIES)
def test_coverage(p1):
    for n in COUNTS:
        assert_close(theory.coverage(p1, n), reference.coverage(p1, n))


@pytest.mark.parametrize(("gap", "epsilon"), PAIRS)
@pytest.mark.parametrize("delta", [0.0, 0.05, 0.999])
def test_paper_and_margin(gap, epsilon, delta):
    for n, p in itertools.product(COUNTS, PROBABILITIES):
        setting = {"num_candidates": n, "delta": delta}
        paper = theory.accuracy_lower_bound(p, gap, epsilon, **setting)
        assert_close(paper, reference.paper_accuracy(p, gap, epsilon, n, delta), scale=p * delta)
        union = theory.accuracy_lower_bound_union(p, gap, epsilon, **setting)
        expected = reference.paper_accuracy(p, gap, epsilon, n, 0) - mpf(delta)
        assert_close(union, expected, scale=delta)
        margin = theory.accuracy_lower_bound_margin(p, gap, epsilon, **setting)
        expected = reference.margin_accuracy(p, gap, epsilon, n, delta)
        assert_close(margin, expected, scale=delta)


def test_dependent_margin_and_pairs():
    setting = {"num_candidates": 16, "delta": 0.05}
    value = theory.accuracy_lower_bound_margin_dependent(0.3, 1.5, 1.0, **setting)
    assert_close(value, reference.coverage(0.3, 16) / 3 - mpf(0.05))
    value = theory.accuracy_lower_bound_pairs(0.3, 0.001, **setting)
    p, missed = mpf(0.3), 1 - mpf(0.3)
    wrong = 16 * missed * (1 - missed**15)
    assert_close(value, 1 - missed**16 - mpf(0.001) * wrong - mpf(0.05))
    assert theory.accuracy_lower_bound_pairs(p1=0.3, misranking=1, num_candidates=1, delta=0) == p


def test_averaged_and_threshold():
    gaps, covered = np.array([0.5, 0.1, 0.9, 0.9]), np.array([True, True, True, False])
    value = theory.accuracy_lower_bound_averaged(gaps, covered, 0.1, num_candidates=3, delta=0.05)
    brackets = [1 - mpf(0.05) - 2 * reference.exponential(gap, 0.1, 8) for gap in (0.5, 0.1, 0.9)]
    assert_close(value, sum(max(bracket, 0) for bracket in brackets) / 4)
    both = theory.accuracy_lower_bound_averaged(
        np.stack([gaps, gaps]), covered, [0.1, 0.2], num_candidates=[3, 2], delta=0.05
    )
    assert np.shape(both) == (2,)
    assert np.asarray(both)[0] == value
    value = theory.accuracy_lower_bound_threshold(0.6, 0.5, 0.1, num_candidates=3, delta=0.05)
    assert_close(value, mpf(0.6) * (1 - 2 * reference.exponential(0.5, 0.1, 4)) - mpf(0.05))


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(
    "gap", [Fraction(0), Fraction(1, 9), Fraction(1), Fraction(2), Fraction(3)]
)
@pytest.mark.parametrize("p1", [Fraction(0), Fraction(1, 8), Fraction(3, 4), Fraction(1)])
def test_two_level_rademacher(p1, gap, n):
    exact = reference.two_level_discrete(p1, gap, n)
    value = theory.accuracy_two_level_rademacher(float(p1), float(gap), 1.0, num_candidates=n)
    assert_close(value, mpf(Fraction(exact).numerator) / Fraction(exact).denominator)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("gap", [0.0, 0.1, 1.3, 1.99, 2.0, 2.5])
@pytest.mark.parametrize("p1", [0.0, 1e-9, 0.3, 1.0])
def test_two_level_uniform(p1, gap, n):
    value = theory.accuracy_two_level_uniform(p1, gap, 1.0, num_candidates=n)
    assert_close(value, reference.two_level_uniform(p1, gap, 1.0, n))


@pytest.mark.parametrize("n", [256, 10**9])
@pytest.mark.parametrize("slack", [0.0, 1e-12, 1e-3, 1.0])
@pytest.mark.parametrize("p1", [1e-12, 0.3])
def test_two_level_uniform_with_many(p1, slack, n):
    # 0.3 is no binary fraction: the ratio rounds, and the rounding counts n times.
    for epsilon in (1.0, 0.3):
        gap = (2 - slack) * epsilon
        value = theory.accuracy_two_level_uniform(p1, gap, epsilon, num_candidates=n)
        p, s = mpf(p1), mpf(gap) / (2 * mpf(epsilon))
        assert_close(value, 1 - (1 - p) * (1 - p * s) ** n - p * ((1 - p) * s) ** n)


def test_figures():
    """Section 4 of docs/theory/statements.md: how tight the margin bound is, and below it."""
    exact = theory.accuracy_two_level_rademacher(0.3, 2.0, 1.0, num_candidates=16)
    bound = theory.accuracy_lower_bound_margin(0.3, 2.0, 1.0, num_candidates=16, delta=0)
    assert exact == pytest.approx(0.925764, abs=5e-7)
    assert bound == pytest.approx(0.925749, abs=5e-7)
    # t = 6, p1 = .3: the paper's bound turns, the truth does not.
    n = np.array([8, 16, 64, 256])
    paper = theory.accuracy_lower_bound(
        theory.coverage(0.3, n), 6.0, 1.0, num_candidates=n, delta=0.05
    )
    np.testing.assert_allclose(paper, [0.822, 0.781, 0.250, -1.88], atol=6e-3)
    np.testing.assert_allclose(theory.coverage(0.3, n[:2]), [0.942, 0.997], atol=6e-4)


@hypothesis.given(shares, ratios, st.integers(3, 300), st.floats(0, 0.99))
def test_order_of_the_bounds(p1, t, n, delta):
    setting = {"num_candidates": n, "delta": delta}
    covered = theory.coverage(p1, n)
    paper = theory.accuracy_lower_bound(covered, t, 1.0, **setting)
    union = theory.accuracy_lower_bound_union(covered, t, 1.0, **setting)
    margin = theory.accuracy_lower_bound_margin(p1, t, 1.0, **setting)
    rounding = 1e-12
    assert union <= paper + rounding
    assert union <= margin + rounding
    dependent = theory.accuracy_lower_bound_margin_dependent(p1, t, 1.0, **setting)
    assert dependent <= margin + rounding
    assert margin <= covered - delta + rounding
    pairs = theory.accuracy_lower_bound_pairs(p1, theory.misranking_worst_case(t, 1.0), **setting)
    for law in (theory.accuracy_two_level_rademacher, theory.accuracy_two_level_uniform):
        exact = law(p1, t, 1.0, num_candidates=n)
        for bound in (union, margin, dependent, pairs, paper):
            assert bound <= exact + rounding
        assert exact <= covered + rounding


@hypothesis.given(shares, ratios, counts)
def test_more_candidates_never_hurt_the_repaired_bound(p1, t, n):
    less = theory.accuracy_lower_bound_margin(p1, t, 1.0, num_candidates=n, delta=0.05)
    more = theory.accuracy_lower_bound_margin(p1, t, 1.0, num_candidates=n + 1, delta=0.05)
    assert less <= more + 1e-15


def test_certificates():
    assert theory.is_best_certified([0.2, 0.21, 0.0], 0.1).tolist() == [False, True, False]
    assert theory.is_best_certified(1e-300, 0.0)
    assert theory.is_correct_certified(0.9, 0.8, [0.05, 0.1, 0.2]).tolist() == [True, True, False]
    assert theory.is_best_certified(0.3, 0.1).dtype == np.bool_


def test_vacuity():
    assert theory.is_vacuous_upper([0.999, 1.0, np.inf]).tolist() == [False, True, True]
    assert theory.is_vacuous_lower([1e-9, 0.0, -np.inf]).tolist() == [False, True, True]
    assert theory.is_vacuous_lower(-0.1).dtype == np.bool_


@hypothesis.given(
    st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=2),
    st.floats(1, 2.2, exclude_min=True),
    st.integers(1, 5),
    st.sampled_from([0.1, 0.5, 0.9]),
)
def test_margin_holds_for_two_point_laws(laws, t, n, p1):
    """Correct and wrong paths with two-point deviations: the accuracy by enumerating ranks."""
    (low, high), (wrong_low, wrong_high) = laws
    levels = [
        (t + high, p1 * low / (low + high), True),
        (t - low, p1 * high / (low + high), True),
        (wrong_high, (1 - p1) * wrong_low / (wrong_low + wrong_high), False),
        (-wrong_low, (1 - p1) * wrong_high / (wrong_low + wrong_high), False),
    ]
    # The highest of n is this level: all are at or below it less all are below it; ties go wrong.
    levels.sort(key=lambda level: (level[0], not level[2]))
    below, accuracy = 0.0, 0.0
    for _, weight, correct in levels:
        accuracy += ((below + weight) ** n - below**n) * correct
        below += weight
    bound = theory.accuracy_lower_bound_margin(p1, t, 1.0, num_candidates=n, delta=0)
    assert bound <= accuracy + 1e-12
