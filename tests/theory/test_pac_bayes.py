"""PAC-Bayes, Occam and hold-out bounds against a reference in hundreds of digits."""

import hypothesis
import numpy as np
import pytest
import theory_reference as reference
from hypothesis import strategies as st
from mpmath import mpf
from theory_reference import assert_close

import theory

RISKS = (0.0, 1e-300, 1e-9, 0.02, 1 - 1e-9, 1.0)
KLS = (0.0, 1e-300, 1e-3, 1e4, 1e10)
COUNTS = (2, 100, 800_000, 10**15)
DELTAS = (1.0, 0.05, 1e-9, 1e-300)

risks = st.floats(0, 1, allow_subnormal=False)
kls = st.floats(0, 1e6)
counts = st.integers(2, 10**10)
deltas = st.floats(1e-12, 1)


@pytest.mark.parametrize("num_samples", COUNTS)
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("kl", KLS)
def test_gap_bounds(kl, delta, num_samples):
    data = {"num_samples": num_samples, "delta": delta}
    gap = reference.gap_bound(kl, num_samples, delta)
    assert_close(theory.generalization_gap_bound(kl, **data), gap)
    rate = reference.maurer_rate(kl, num_samples, delta)
    for risk in RISKS:
        assert_close(theory.mcallester_bound(risk, kl, **data), mpf(risk) + gap)
        assert_close(theory.dirac_bound(risk, kl, **data), mpf(risk) + gap)
        assert_close(
            theory.occam_bound(risk, kl, **data), reference.occam(risk, kl, num_samples, delta)
        )
        assert_close(
            theory.maurer_pinsker_bound(risk, kl, **data),
            mpf(risk) + reference.mpmath.sqrt(rate / 2),
        )
        assert_close(
            theory.tolstikhin_seldin_bound(risk, kl, **data),
            reference.tolstikhin_seldin(risk, kl, num_samples, delta),
        )


@pytest.mark.parametrize("num_samples", [1, 2, 3])
@pytest.mark.parametrize("delta", DELTAS)
def test_occam_holds_from_one_example_on(num_samples, delta):
    for cost in KLS:
        for risk in RISKS:
            assert_close(
                theory.occam_bound(risk, cost, num_samples=num_samples, delta=delta),
                reference.occam(risk, cost, num_samples, delta),
            )
    # The formula, and that it is true: all atoms of a prior together err at most delta often.
    for prior in ((1.0,), (0.5, 0.25, 0.25), (0.9, 0.1), (0.01,) * 100):
        assert reference.occam_violations(prior, num_samples, delta) <= delta * (1 + 1e-12)


@pytest.mark.parametrize("num_samples", [2, 800_000, 7_980_000_000])
@pytest.mark.parametrize("kl", [0.0, 1e-3, 1e4])
@pytest.mark.parametrize("risk", RISKS)
def test_bounds_with_a_parameter(risk, kl, num_samples):
    data = {"num_samples": num_samples, "delta": 0.05}
    for c in (1e-300, 1e-9, 0.5, 3.0, 1e4):
        assert_close(
            theory.catoni_bound(risk, kl, c=c, **data),
            reference.catoni(risk, kl, num_samples, 0.05, c),
        )
    values = []
    for lam in (1e-9, 0.1, 1.0, 1.5, 2 - 1e-9):
        values.append(theory.lambda_bound(risk, kl, lam=lam, **data))
        assert_close(values[-1], reference.lambda_bound(risk, kl, num_samples, 0.05, lam))
    assert theory.lambda_bound(risk, kl, **data) <= min(values) * (1 + 1e-15)


def test_the_best_lambda_is_the_best():
    data = {"num_samples": 1000, "delta": 0.05}
    grid = theory.lambda_bound(0.1, 7.0, lam=np.linspace(1e-3, 2 - 1e-3, 20_001), **data)
    assert theory.lambda_bound(0.1, 7.0, **data) == pytest.approx(grid.min(), rel=1e-7)


@pytest.mark.parametrize("q", [0.0, 1e-300, 1e-12, 1e-3, 0.02, 0.3, 0.5, 0.9, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("c", [0.0, 1e-300, 1e-20, 1e-9, 1e-4, 0.01, 0.3, 1.0, 10.0, 50.0, 1e5])
def test_kl_inverse(q, c):
    value = theory.kl_inverse(q, c)
    reference.assert_kl_inverse(value, q, c)
    if q == 0:
        assert_close(value, 1 - reference.mpmath.exp(-mpf(c)))


@hypothesis.given(risks, st.floats(0, 100, allow_subnormal=False))
def test_kl_inverse_everywhere(q, c):
    reference.assert_kl_inverse(theory.kl_inverse(q, c), q, c)


@hypothesis.given(risks, st.floats(0, 1, exclude_max=True, allow_subnormal=False))
def test_kl_and_its_inverse_undo_each_other(q, p):
    q, p = min(q, p), max(q, p)
    divergence = theory.kl_bernoulli(q, p)
    assert_close(divergence, reference.kl_bernoulli(q, p))
    assert theory.kl_inverse(q, divergence) == pytest.approx(p, rel=1e-7)


def test_kl_of_what_can_not_be():
    assert theory.kl_bernoulli(0.5, 1.0) == np.inf
    assert theory.kl_bernoulli(0.5, 0.0) == np.inf
    assert theory.kl_bernoulli(1.0, 1.0) == theory.kl_bernoulli(0.0, 0.0) == 0
    assert theory.kl_bernoulli(0.5, 0.25) == pytest.approx(np.log(2) - np.log(3) / 2)


@pytest.mark.parametrize("num_samples", COUNTS)
@pytest.mark.parametrize("kl", KLS)
def test_seeger(kl, num_samples):
    for risk in RISKS:
        value = theory.seeger_bound(risk, kl, num_samples=num_samples, delta=0.05)
        reference.assert_kl_inverse(value, risk, reference.maurer_rate(kl, num_samples, 0.05))


def test_infinite_kl():
    data = {"num_samples": 100, "delta": 0.05}
    assert theory.generalization_gap_bound(np.inf, **data) == np.inf
    for bound in (
        theory.mcallester_bound,
        theory.dirac_bound,
        theory.occam_bound,
        theory.maurer_pinsker_bound,
        theory.tolstikhin_seldin_bound,
        theory.lambda_bound,
    ):
        for risk in (0.0, 0.1, 1.0):
            assert bound(risk, np.inf, **data) == np.inf
    assert theory.seeger_bound(0.1, np.inf, **data) == 1
    assert theory.catoni_bound(0.1, np.inf, c=1.0, **data) == pytest.approx(1 / (1 - np.exp(-1)))


@pytest.mark.parametrize(
    ("errors", "m"), [(0, 1), (1, 1), (0, 7), (3, 7), (7, 7), (5, 100), (500, 10_000), (0, 10**9)]
)
@pytest.mark.parametrize("delta", [1.0, 0.5, 0.05, 1e-9])
def test_holdout(errors, m, delta):
    data = {"num_samples": m, "delta": delta}
    risk = errors / m
    assert_close(
        theory.holdout_bound(risk, method="hoeffding", **data), reference.occam(risk, 0, m, delta)
    )
    reference.assert_kl_inverse(
        theory.holdout_bound(risk, method="kl", **data), risk, -reference.mpmath.log(mpf(delta)) / m
    )
    exact = theory.holdout_bound(risk, method="clopper-pearson", **data)
    if errors == m:
        assert exact == 1
    elif errors == 0:
        assert_close(exact, 1 - mpf(delta) ** (mpf(1) / m))
    elif delta < 1 and m <= 100:
        reference.assert_clopper_pearson(exact, errors, m, delta)
    assert exact <= theory.holdout_bound(risk, **data) + 1e-12


def test_extreme_values_are_numbers():
    data = {"num_samples": 1000, "delta": 1e-290}
    assert theory.holdout_bound(0.996, method="clopper-pearson", **data) == 1
    assert theory.kl_inverse(0.3, 1.7e308) == theory.kl_inverse(5e-324, 1.7e308) == 1
    assert theory.kl_inverse(5e-324, 5e-324) < 1e-322


def test_clopper_pearson_of_a_large_set():
    value = theory.holdout_bound(0.05, num_samples=10_000, delta=0.05, method="clopper-pearson")
    reference.assert_clopper_pearson(value, 500, 10_000, 0.05)


def test_losses_between_0_and_1_are_refused_in_a_large_set():
    with pytest.raises(ValueError, match="losses that are 0 or 1"):
        theory.holdout_bound(0.6 + 0.37e-6, num_samples=10**6, delta=0.05, method="clopper-pearson")


def test_figures():
    """The table of docs/theory/statements.md, section 1: n = 800 000, delta = 0.05."""
    data = {"num_samples": 800_000, "delta": 0.05}
    table = [  # risk, KL, the paper's, Maurer-Pinsker, kl
        (0.0, 0.0, 0.00322, 0.00256, 1.31e-5),
        (0.0, 1e4, 0.0791, 0.0791, 0.0124),
        (0.02, 1e4, 0.0991, None, 0.0506),
        (0.1, 1e5, 0.350, None, 0.309),
    ]
    for risk, kl, paper, pinsker, seeger in table:
        assert theory.mcallester_bound(risk, kl, **data) == pytest.approx(paper, rel=5e-3)
        assert theory.seeger_bound(risk, kl, **data) == pytest.approx(seeger, rel=5e-3)
        if pinsker is not None:
            value = theory.maurer_pinsker_bound(risk, kl, **data)
            assert value == pytest.approx(pinsker, rel=5e-3)
    held_out = {"num_samples": 10_000, "delta": 0.05}
    assert theory.holdout_bound(0.05, **held_out) == pytest.approx(0.0555, abs=5e-5)
    hoeffding = theory.holdout_bound(0.05, method="hoeffding", **held_out)
    assert hoeffding == pytest.approx(0.0622, abs=5e-5)


def test_what_a_risk_says_about_paths():
    value = theory.deviation_probability(7.8e-5, 0.1, num_candidates=64)
    assert value == pytest.approx(0.05, rel=2e-3)
    assert theory.deviation_probability(0.1, 0.0, num_candidates=4) == np.inf
    assert theory.deviation_probability(0.0, 0.1, num_candidates=4) == 0


@hypothesis.given(risks, kls, counts, deltas)
def test_order_of_the_bounds(risk, kl, num_samples, delta):
    data = {"num_samples": num_samples, "delta": delta}
    slack = 1 + 1e-12
    paper = theory.mcallester_bound(risk, kl, **data)
    pinsker = theory.maurer_pinsker_bound(risk, kl, **data)
    seeger = theory.seeger_bound(risk, kl, **data)
    assert pinsker <= paper * slack
    assert seeger <= pinsker * slack
    assert seeger <= theory.tolstikhin_seldin_bound(risk, kl, **data) * slack
    assert seeger <= theory.lambda_bound(risk, kl, **data) * slack
    assert theory.occam_bound(risk, kl, **data) <= theory.dirac_bound(risk, kl, **data) * slack
    kl_test = theory.holdout_bound(risk, **data)
    assert risk <= kl_test * slack
    assert kl_test <= theory.holdout_bound(risk, method="hoeffding", **data) * slack
    # Maurer's constant costs ln(2 sqrt(n)) nats on top of a test set.
    assert kl_test <= seeger * slack


@hypothesis.given(kls, st.floats(0, 1e6), counts, deltas)
def test_more_divergence_is_worse_and_more_data_is_better(kl, more, num_samples, delta):
    bound = theory.generalization_gap_bound
    value = bound(kl, num_samples=num_samples, delta=delta)
    assert bound(kl + more, num_samples=num_samples, delta=delta) >= value
    assert bound(kl, num_samples=2 * num_samples, delta=delta) <= value


def test_moment_behind_the_kl_bound():
    """E exp(n kl(mean || mu)) <= 2 sqrt(n), on which the kl bounds rest, for n up to 300."""
    for n in (2, 3, 7, 8, 50, 300):
        k = np.arange(n + 1)
        log_share = np.array([float(reference.log_binomial(n, i)) for i in range(n + 1)])
        with np.errstate(divide="ignore", invalid="ignore"):
            log_share += np.nan_to_num(k * np.log(k / n)) + np.nan_to_num(
                (n - k) * np.log(1 - k / n)
            )
        assert np.exp(log_share).sum() <= 2 * np.sqrt(n)
