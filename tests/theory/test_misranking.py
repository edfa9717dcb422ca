"""Mis-ranking probabilities against enumeration, quadrature and closed forms in many digits."""

from fractions import Fraction

import hypothesis
import numpy as np
import pytest
import theory_reference as reference
from hypothesis import strategies as st
from mpmath import mpf
from theory_reference import assert_close

import theory

# Pairs whose squares underflow or overflow, exact scores, both sides of gap = 2 epsilon.
PAIRS = (
    (0.0, 0.1),
    (1e-12, 0.1),
    (0.1, 0.1),
    (0.15, 0.1),
    (0.2, 0.1),
    (np.nextafter(0.2, 0), 0.1),
    (1.0, 0.1),
    (1e-200, 1e-200),
    (3e-200, 2e-200),
    (1e-300, 1e-301),
    (1e200, 7e199),
    (0.5, 1e-300),
    (0.5, 0.0),
)
BOUNDS = (
    theory.misranking_paper,
    theory.misranking_hoeffding,
    theory.misranking_worst_case,
    theory.misranking_worst_case_dependent,
    theory.misranking_any_number,
)
LAWS = (theory.misranking_rademacher, theory.misranking_uniform)

ratios = st.floats(0, 9)


@pytest.mark.parametrize(("gap", "epsilon"), PAIRS)
def test_exponential_bounds(gap, epsilon):
    assert_close(theory.misranking_paper(gap, epsilon), reference.exponential(gap, epsilon, 8))
    assert_close(theory.misranking_hoeffding(gap, epsilon), reference.exponential(gap, epsilon, 4))
    if gap > 0 and epsilon > 0:
        for share in (1e-9, 0.1, 1.0):
            spread = share * epsilon
            assert_close(
                theory.misranking_bernstein(gap, epsilon, standard_deviation=spread),
                reference.bernstein(gap, epsilon, spread),
            )
    assert theory.misranking_bernstein(0.0, 0.1, standard_deviation=0.0) == 1
    assert theory.misranking_bernstein(0.1, 0.0, standard_deviation=0.0) == 0


@pytest.mark.parametrize("epsilon", [0.0, 5e-324, 1e-300, 0.1, 0.3, 1.0, 1e300])
def test_a_standard_deviation_is_at_most_epsilon(epsilon):
    # Equality is the law of +epsilon and -epsilon; one unit in the last place is its rounding.
    following = np.nextafter(epsilon, np.inf)
    for spread in (0.0, epsilon / 2, epsilon, following):
        assert theory.misranking_bernstein(1.0, epsilon, standard_deviation=spread) <= 1
    for spread in (np.nextafter(following, np.inf), 2 * epsilon + 0.1):
        with pytest.raises(ValueError, match=r"^standard_deviation=.*at most epsilon"):
            theory.misranking_bernstein(1.0, epsilon, standard_deviation=spread)


def test_a_standard_deviation_computed_from_the_extreme_law_passes():
    for epsilon in np.linspace(0.01, 1, 100):
        spread = np.std([epsilon, -epsilon, epsilon, -epsilon])
        value = theory.misranking_bernstein(0.5, epsilon, standard_deviation=spread)
        assert_close(value, reference.bernstein(0.5, epsilon, epsilon), rel=1e-10)


def test_the_standard_deviation_that_is_too_large_is_named_where_it_stands():
    spreads, epsilons = [0.1, 0.2, 0.3], [[0.4], [0.2]]
    with pytest.raises(ValueError, match=r"^standard_deviation\[1, 2\]=0.3: "):
        theory.misranking_bernstein(1.0, epsilons, standard_deviation=spreads)
    values = theory.misranking_bernstein(1.0, epsilons, standard_deviation=spreads[:2])
    assert np.shape(values) == (2, 2)
    with pytest.raises(ValueError, match=r"^standard_deviation\[2\]=0.3: "):
        theory.misranking_bernstein([1.0, 2.0, 0.0], 0.2, standard_deviation=[0.1, 0.2, 0.3])


@pytest.mark.parametrize(("gap", "epsilon"), PAIRS)
@pytest.mark.parametrize("n", [1, 2, 3, 256, 7_980_000_000])
def test_uniform(gap, epsilon, n):
    value = theory.misranking_uniform(gap, epsilon, num_candidates=n)
    assert_close(value, reference.misranking_uniform(gap, epsilon, n))


@pytest.mark.parametrize("slack", [1e-15, 1e-9, 1e-4, 0.003, 0.1])
@pytest.mark.parametrize("n", [2, 3, 16, 256, 10**6])
def test_uniform_just_below_two_epsilon(slack, n):
    gap = 2 - slack
    value = theory.misranking_uniform(gap, 1.0, num_candidates=n)
    assert_close(value, reference.misranking_uniform(gap, 1.0, n))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "gap", [Fraction(0), Fraction(1, 9), Fraction(1), Fraction(2), Fraction(3)]
)
def test_rademacher(gap, n):
    exact = reference.misranking_discrete((1, -1), (Fraction(1, 2),) * 2, gap, n)
    value = theory.misranking_rademacher(float(gap), 1.0, num_candidates=n)
    assert_close(value, mpf(exact.numerator) / exact.denominator)


@pytest.mark.parametrize("n", [1, 2, 256])
@pytest.mark.parametrize("scale", [0.03, 0.3, 1.0, 50.0])
@pytest.mark.parametrize("gap", [0.0, 0.05, 0.7, 1.9, 1.99999, 2.1])
def test_truncated_gaussian(gap, scale, n):
    value = theory.misranking_truncated_gaussian(gap, 1.0, scale=scale, num_candidates=n)
    assert_close(value, reference.misranking_truncated_gaussian(gap, 1.0, scale, n))


def test_truncated_gaussian_limits():
    flat = theory.misranking_truncated_gaussian(0.7, 1.0, scale=1e300)
    assert flat == pytest.approx(theory.misranking_uniform(0.7, 1.0), rel=1e-12)
    # Far narrower than its truncation it is a Gaussian: Pr[N(0, 2 scale**2) >= gap].
    narrow = theory.misranking_truncated_gaussian(0.02, 1.0, scale=0.01)
    assert_close(narrow, reference.mpmath.ncdf(-mpf(0.02) / (mpf(0.01) * reference.mpmath.sqrt(2))))
    assert theory.misranking_truncated_gaussian(1e-200, 1e-200, scale=1e-200) == pytest.approx(
        theory.misranking_truncated_gaussian(1.0, 1.0, scale=1.0), rel=1e-12
    )
    for scale in (1e-7, 1e-200):
        narrow = theory.misranking_truncated_gaussian(2 * scale, 1.0, scale=scale)
        assert_close(narrow, reference.mpmath.ncdf(-reference.mpmath.sqrt(2)))
    values = np.asarray(
        theory.misranking_truncated_gaussian([[0.5], [3.0]], 1.0, scale=[0.1, 0.2, 0.3])
    )
    assert values.shape == (2, 3)
    assert (values[1] == 0).all()


def test_worst_cases():
    t = np.array([0.0, 0.5, 1.0, 1.5, 2.0, np.nextafter(2, 3)])
    expected = [1, 1 / 1.5, 1 / 2, 1 / 3, 1 / 4, 0]
    np.testing.assert_allclose(theory.misranking_worst_case(t, 1.0), expected, rtol=1e-15)
    expected = [1, 2 / 2.5, 2 / 3, 2 / 3.5, 1 / 2, 0]
    np.testing.assert_allclose(theory.misranking_worst_case_dependent(t, 1.0), expected, rtol=1e-15)
    expected = [np.inf, 2, 1, 1 / 1.5, 1 / 2, 0]
    np.testing.assert_allclose(theory.misranking_any_number(t, 1.0), expected, rtol=1e-15)


@pytest.mark.parametrize("bound", [*BOUNDS, *LAWS])
def test_scale_does_not_matter(bound):
    for gap in (0.3, 1.0, 1.7, 2.0, 2.3):
        expected = bound(gap, 1.0)
        for scale in (2.0**-1000, 2.0**1000):
            assert bound(gap * scale, scale) == expected


@pytest.mark.parametrize("bound", [*BOUNDS, *LAWS])
def test_exact_scores_are_never_misranked(bound):
    assert bound(1e-300, 0.0) == 0


@pytest.mark.parametrize("bound", [*BOUNDS[2:], *LAWS])
def test_a_tie_at_two_epsilon_is_possible(bound):
    # Uniform deviations meet it with probability 0.
    assert bound(2.0, 1.0) > 0 or bound is theory.misranking_uniform
    assert bound(np.nextafter(2.0, 3), 1.0) == 0


@hypothesis.given(ratios, st.floats(0.01, 3), st.integers(2, 64))
def test_order_of_pairs(t, scale, n):
    slack = 1 + 1e-12
    worst = theory.misranking_worst_case(t, 1.0)
    assert worst <= theory.misranking_hoeffding(t, 1.0) * slack
    assert worst <= theory.misranking_worst_case_dependent(t, 1.0)
    assert theory.misranking_hoeffding(t, 1.0) <= theory.misranking_paper(t, 1.0)
    assert theory.misranking_worst_case_dependent(t, 1.0) <= theory.misranking_paper(t, 1.0)
    gaussian = theory.misranking_truncated_gaussian(t, 1.0, scale=scale, num_candidates=n)
    for law, spread in (
        (theory.misranking_uniform(t, 1.0, num_candidates=n), 1 / np.sqrt(3)),
        (theory.misranking_rademacher(t, 1.0, num_candidates=n), 1.0),
        (gaussian, min(scale, 1.0)),
    ):
        # From below the bounds for n: the worst pair, Bernstein's, and the one without n.
        bernstein = theory.misranking_bernstein(t, 1.0, standard_deviation=spread)
        assert law <= (n - 1) * min(worst, bernstein) * slack
        assert law <= theory.misranking_any_number(t, 1.0) * slack


def test_sum_over_competitors():
    gaps = np.array([0.1, 0.2, 0.2001, 5.0])
    value = theory.misranking_sum(gaps, 0.1)
    assert_close(value, sum(reference.exponential(gap, 0.1, 4) for gap in gaps[:2]))
    paper = theory.misranking_sum(gaps, 0.1, pair=theory.misranking_paper)
    assert_close(paper, sum(reference.exponential(gap, 0.1, 8) for gap in gaps[:2]))
    # Never above the nearest competitor's bound times their number.
    assert value <= 4 * theory.misranking_hoeffding(0.1, 0.1)
    batch = theory.misranking_sum(np.stack([gaps, gaps]), [0.1, 0.0])
    assert np.asarray(batch).tolist() == [value, 0.0]
    assert np.asarray(theory.misranking_sum(np.zeros((3, 0)), 0.1)).tolist() == [0, 0, 0]
