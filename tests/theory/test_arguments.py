"""Every undefined input raises, and says which argument, which value and which assumption."""

import jax.numpy as jnp
import numpy as np
import pytest

import theory
from theory import _arguments

DATA = {"num_samples": 100, "delta": 0.05}
SETTING = {"num_candidates": 4, "delta": 0.05}
GAP = {"gap": 1.0, "epsilon": 0.1}
GAPS = {"gaps": [0.1, 0.2], "epsilon": 0.1}

# Every public function with arguments that are fine.
CALLS = {
    "generalization_gap_bound": ({"kl": 1.0}, DATA),
    "mcallester_bound": ({"empirical_risk": 0.1, "kl": 1.0}, DATA),
    "maurer_pinsker_bound": ({"empirical_risk": 0.1, "kl": 1.0}, DATA),
    "seeger_bound": ({"empirical_risk": 0.1, "kl": 1.0}, DATA),
    "catoni_bound": ({"empirical_risk": 0.1, "kl": 1.0, "c": 1.0}, DATA),
    "lambda_bound": ({"empirical_risk": 0.1, "kl": 1.0, "lam": 1.0}, DATA),
    "tolstikhin_seldin_bound": ({"empirical_risk": 0.1, "kl": 1.0}, DATA),
    "dirac_bound": ({"empirical_risk": 0.1, "neg_log_prior": 1.0}, DATA),
    "occam_bound": ({"empirical_risk": 0.1, "neg_log_prior": 1.0}, DATA),
    "occam_kl_bound": ({"empirical_risk": 0.1, "neg_log_prior": 1.0}, DATA),
    "holdout_bound": ({"empirical_risk": 0.1}, DATA),
    "sparsity_bound": ({"num_nonzero": 5, "num_params": 10, "c": 1.0}, DATA),
    "support_code_length": ({"num_nonzero": 5, "num_params": 10, "bits_per_value": 16}, {}),
    "support_code_c": ({"num_nonzero": 5, "num_params": 10, "bits_per_value": 16}, {}),
    "kl_inverse": ({"q": 0.1, "c": 0.1}, {}),
    "kl_bernoulli": ({"q": 0.1, "p": 0.2}, {}),
    "deviation_probability": ({"risk": 0.1, "epsilon": 0.1, "num_candidates": 4}, {}),
    "misranking_paper": (GAP, {}),
    "misranking_hoeffding": (GAP, {}),
    "misranking_bernstein": ({**GAP, "standard_deviation": 0.1}, {}),
    "misranking_rademacher": ({**GAP, "num_candidates": 4}, {}),
    "misranking_uniform": ({**GAP, "num_candidates": 4}, {}),
    "misranking_truncated_gaussian": ({**GAP, "scale": 0.1, "num_candidates": 4}, {}),
    "misranking_worst_case": (GAP, {}),
    "misranking_worst_case_dependent": (GAP, {}),
    "misranking_any_number": (GAP, {}),
    "misranking_sum": (GAPS, {}),
    "coverage": ({"p1": 0.3, "num_candidates": 4}, {}),
    "accuracy_lower_bound": ({"coverage": 0.3, **GAP}, SETTING),
    "accuracy_lower_bound_union": ({"coverage": 0.3, **GAP}, SETTING),
    "accuracy_lower_bound_averaged": ({**GAPS, "covered": [True, False]}, SETTING),
    "accuracy_lower_bound_threshold": ({"probability": 0.3, **GAP}, SETTING),
    "accuracy_lower_bound_margin": ({"p1": 0.3, **GAP}, SETTING),
    "accuracy_lower_bound_margin_dependent": ({"p1": 0.3, **GAP}, SETTING),
    "accuracy_lower_bound_pairs": ({"p1": 0.3, "misranking": 0.1}, SETTING),
    "accuracy_two_level_rademacher": ({"p1": 0.3, **GAP, "num_candidates": 4}, {}),
    "accuracy_two_level_uniform": ({"p1": 0.3, **GAP, "num_candidates": 4}, {}),
    "required_coverage": ({"target": 0.8, **GAP}, SETTING),
    "optimal_num_candidates": ({"p1": 0.3, **GAP, "delta": 0.05}, {}),
    "smallest_budget": ({"target": 0.8, "p1": 0.3, **GAP, "delta": 0.0}, {}),
    "largest_budget": ({"target": 0.8, "p1": 0.3, **GAP, "delta": 0.0}, {}),
    "smallest_budget_margin": ({"target": 0.8, "p1": 0.3, **GAP, "delta": 0.0}, {}),
    "is_best_certified": ({"observed_gap": 0.1, "epsilon": 0.1}, {}),
    "is_correct_certified": ({"score": 0.1, "threshold": 0.1, "epsilon": 0.1}, {}),
    "is_vacuous_upper": ({"bound": 0.1}, {}),
    "is_vacuous_lower": ({"bound": 0.1}, {}),
}

PAC_BAYES = (
    "generalization_gap_bound",
    "mcallester_bound",
    "maurer_pinsker_bound",
    "seeger_bound",
    "catoni_bound",
    "lambda_bound",
    "tolstikhin_seldin_bound",
    "dirac_bound",
    "sparsity_bound",
)
# From one example on.
ONE_EXAMPLE = ("occam_bound", "occam_kl_bound", "holdout_bound")

# What takes samples and counts has its rules in `test_betting.py`, `test_sequential.py` and
# `test_stopping.py`.
ELSEWHERE = ("checks", "estimators", "betting", "selective", "sequential", "stopping", "testing")

# Arguments that may be 0. A ratio of -0 would be minus infinity.
ZEROS = ("gap", "epsilon", "kl", "observed_gap", "p1", "risk")

# Argument -> values outside its range, and what the error has to say.
BAD = {
    "kl": ([-1e-9, np.nan], "divergence"),
    "neg_log_prior": ([-1e-9], "density"),
    "empirical_risk": ([1.0001], "cross-entropy"),
    "risk": ([1.0001], "cross-entropy"),
    "target": ([-0.1, 1.1], r"\[0, 1\]"),
    "p1": ([-0.1, 1.1, np.inf], r"\[0, 1\]"),
    "coverage": ([-0.1, 1.1], r"\[0, 1\]"),
    "probability": ([-0.1, 1.1], r"\[0, 1\]"),
    "misranking": ([-0.1, 1.1], r"\[0, 1\]"),
    "q": ([-0.1, 1.1], r"\[0, 1\]"),
    "p": ([-0.1, 1.1], r"\[0, 1\]"),
    "gap": ([-0.1], "negative"),
    "epsilon": ([-0.1], "negative"),
    "observed_gap": ([-0.1], "negative"),
    "standard_deviation": ([-0.1], "negative"),
    "bits_per_value": ([-1], "negative"),
    "scale": ([0, np.inf], "positive"),
    "num_candidates": ([0], "N >= 1"),
    "num_nonzero": ([-1], "negative"),
    "num_params": ([0], "at least one"),
    "lam": ([0, 2], r"lambda in \(0, 2\)"),
}


def call(name, **changes):
    own, common = CALLS[name]
    return getattr(theory, name)(**{**own, **common, **changes})


def arguments(name):
    own, common = CALLS[name]
    return {**own, **common}


def test_the_list_is_complete():
    functions = {
        name
        for name in vars(theory)
        if not name.startswith("_")
        and callable(getattr(theory, name))
        and getattr(theory, name).__module__.split(".")[1] not in ELSEWHERE
    }
    assert functions - {"Sparsity", "measure_sparsity"} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_fine_as_they_are(name):
    result = call(name)
    assert isinstance(result, np.float64 | np.bool_)
    assert np.isfinite(result)


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, argument) for name in CALLS for argument in arguments(name) if argument in BAD],
)
def test_out_of_range(name, argument):
    values, words = BAD[argument]
    good = arguments(name)[argument]
    for value in values:
        with pytest.raises(ValueError, match=rf"^{argument}={value}"):
            call(name, **{argument: value})
        with pytest.raises(ValueError, match=rf"^{argument}\[1\]={value}"):
            call(name, **{argument: [good, value]})
    with pytest.raises(ValueError, match=words):
        call(name, **{argument: values[0]})


@pytest.mark.parametrize("name", PAC_BAYES)
def test_pac_bayes_needs_two_examples_and_a_confidence(name):
    with pytest.raises(ValueError, match=r"^num_samples=1: .*n >= 2"):
        call(name, num_samples=1)
    _asks_for_a_confidence(name)
    assert np.isfinite(call(name, delta=1.0, num_samples=2))


@pytest.mark.parametrize("name", ONE_EXAMPLE)
def test_these_need_one_example_and_a_confidence(name):
    for samples, place in ((0, ""), ([1, 0], r"\[1\]")):
        with pytest.raises(ValueError, match=rf"^num_samples{place}=0: at least one"):
            call(name, num_samples=samples)
    _asks_for_a_confidence(name)
    assert np.isfinite(call(name, delta=1.0, num_samples=1))


def _asks_for_a_confidence(name):
    for value in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"^delta=.*\(0, 1\]"):
            call(name, delta=value)


@pytest.mark.parametrize(
    "name",
    [name for name in CALLS if "delta" in arguments(name) and name not in PAC_BAYES + ONE_EXAMPLE],
)
def test_delta_of_accuracy_and_budget(name):
    for value in (1.0, -0.1):
        with pytest.raises(ValueError, match=rf"^delta={value:g}.*\[0, 1\)"):
            call(name, delta=value)
    assert np.isfinite(call(name, delta=0.0))


@pytest.mark.parametrize("name", [name for name in CALLS if "gap" in arguments(name)])
def test_zero_over_zero(name):
    with pytest.raises(ValueError, match=r"^gap=0: .*0 / 0"):
        call(name, gap=0.0, epsilon=0.0)
    with pytest.raises(ValueError, match=r"^gap\[2\]=0: "):
        call(name, gap=[0.1, 0.0, 0.0], epsilon=[0.0, 0.1, 0.0])


def test_other_rules():
    for value in (2.5, np.inf):
        with pytest.raises(
            ValueError, match=rf"num_samples={value}: must be a finite whole number"
        ):
            theory.generalization_gap_bound(0.0, num_samples=value, delta=0.05)
    with pytest.raises(ValueError, match=r"num_samples=10{60,80}: a number .* within float64"):
        theory.generalization_gap_bound(0.0, num_samples=10**400, delta=0.05)
    with pytest.raises(ValueError, match=r"num_params=1e\+300: float64 counts exactly up to"):
        theory.support_code_length(5, 1e300, bits_per_value=16)
    with pytest.raises(ValueError, match=r"empirical_risk=0.055: .*0 or 1"):
        theory.holdout_bound(0.055, num_samples=100, delta=0.05, method="clopper-pearson")
    with pytest.raises(ValueError, match=r"num_nonzero\[1\]=11: no more than num_params"):
        theory.sparsity_bound([10, 11], 10, **DATA)
    with pytest.raises(ValueError, match=r"c=0: must be positive"):
        theory.catoni_bound(0.1, 1.0, c=0.0, **DATA)
    with pytest.raises(ValueError, match=r"risk=0: risk / epsilon is 0 / 0"):
        theory.deviation_probability(0.0, 0.0, num_candidates=4)
    with pytest.raises(ValueError, match=r"gaps\[0, 1\]=-0.1"):
        theory.misranking_sum([[0.1, -0.1]], 0.1)
    with pytest.raises(ValueError, match=r"gaps\[1\]=0: gap / epsilon is 0 / 0"):
        theory.misranking_sum([0.1, 0.0], 0.0)
    with pytest.raises(ValueError, match=r"gaps=0.1: an array"):
        theory.misranking_sum(0.1, 0.1)
    with pytest.raises(ValueError, match=r"gaps=\[\]: .*at least one draw"):
        theory.accuracy_lower_bound_averaged([], [], 0.1, **SETTING)
    with pytest.raises(ValueError, match=r"p1='many': a number"):
        theory.coverage("many", 4)
    with pytest.raises(ValueError, match=r"kl\[1\]=nan: is not a number"):
        theory.generalization_gap_bound([0.0, None], **DATA)


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, argument) for name in CALLS for argument in arguments(name) if argument in ZEROS],
)
def test_a_negative_zero_is_zero(name, argument):
    exact = {"standard_deviation": 0.0} if name == "misranking_bernstein" else {}
    negative, positive = (call(name, **{**exact, argument: zero}) for zero in (-0.0, 0.0))
    assert negative == positive


def test_every_kind_of_number():
    expected = theory.coverage(0.25, 2)
    for p1 in (np.float32(0.25), jnp.float32(0.25), np.array(0.25), [0.25], (0.25,)):
        for n in (2, np.int32(2), jnp.int32(2), np.array([2]), 2.0):
            value = theory.coverage(p1, n)
            assert np.asarray(value).dtype == np.float64
            assert np.all(value == expected)
    assert isinstance(theory.coverage(0.25, 2), np.float64)
    assert theory.coverage(np.zeros((3, 1)), np.ones(2)).shape == (3, 2)


@pytest.mark.parametrize("value", [[], [0.1, 0.2], [[0.1]] * 3])
def test_an_argument_that_is_one_number_refuses_a_list_by_name(value):
    # The run-time checks of the tests refuse a list in the public functions, whose hint is float.
    with pytest.raises(ValueError, match=r"delta has shape \[.*\]: one number is needed"):
        _arguments.one_error_rate(value)
    with pytest.raises(ValueError, match=r"target has shape \[.*\]: one number is needed"):
        _arguments.one_inner_mean("target", value)


def test_an_argument_that_is_one_number():
    with pytest.raises(ValueError, match=r"target=1e-320: 1 - target is 1 in float64"):
        _arguments.one_target(1e-320)
    assert _arguments.one_error_rate(np.array([0.1])) == 0.1
    assert _arguments.one_inner_mean("target", jnp.float32(0.5)) == 0.5
