"""Estimators against slow references, exact coverage of the intervals, and the paper's table."""

import fractions
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from theory import estimators, paper

unit = st.floats(0, 1)


def binomial(k, n, p):
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


# Intervals


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (3, 7), (7, 7), (1, 1), (40, 1000)])
def test_clopper_pearson_inverts_the_binomial_tails(successes, trials):
    value, low, high = estimators.clopper_pearson(successes, trials, confidence=0.9)
    assert value == successes / trials
    if successes > 0:
        tail = sum(binomial(k, trials, low) for k in range(successes, trials + 1))
        assert tail == pytest.approx(0.05, rel=1e-6)
    if successes < trials:
        tail = sum(binomial(k, trials, high) for k in range(successes + 1))
        assert tail == pytest.approx(0.05, rel=1e-6)
    assert low == 0 if successes == 0 else low > 0
    assert high == 1 if successes == trials else high < 1


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 0.5, 0.97, 1.0])
def test_bounded_mean_holds_the_mean_as_often_as_it_says(n, p):
    held = 0.0
    for k in range(n + 1):
        _, low, high = estimators.bounded_mean([1.0] * k + [0.0] * (n - k), confidence=0.8)
        held += binomial(k, n, p) * (low - 1e-12 <= p <= high + 1e-12)
    assert held >= 0.8


def test_bounded_mean_ends_where_chernoff_says():
    values = [0.2, 0.9, 0.4, 0.5, 0.1]
    mean, low, high = estimators.bounded_mean(values, confidence=0.9)
    for end in (low, high):
        divergence = mean * math.log(mean / end) + (1 - mean) * math.log((1 - mean) / (1 - end))
        assert len(values) * divergence == pytest.approx(math.log(2 / 0.1))


@given(st.lists(unit, min_size=1, max_size=30))
def test_bounded_mean_is_never_wider_than_hoeffding(values):
    value, low, high = estimators.bounded_mean(values)
    half = math.sqrt(math.log(2 / 0.05) / (2 * len(values)))
    assert 0 <= low <= value <= high <= 1
    assert high - value <= half + 1e-9
    assert value - low <= half + 1e-9


@pytest.mark.parametrize("values", [[], [0.5, 1.1], [-0.1], [math.nan], [[0.1]]])
def test_values_outside_the_unit_interval_are_refused(values):
    with pytest.raises(ValueError, match="values"):
        estimators.bounded_mean(values)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan])
def test_a_confidence_outside_its_range_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        estimators.bounded_mean([0.5], confidence=confidence)


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (3, 2), (-1, 2)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="successes"):
        estimators.clopper_pearson(successes, trials)


# Coverage


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations(range(n), k))
        share = sum(any(i < c for i in subset) for subset in subsets) / len(subsets)
        assert estimators.pass_at_k(c, n, k) == pytest.approx(share, abs=1e-12)


@given(
    st.lists(
        st.tuples(st.sampled_from([-np.inf, 0.2, 0.5, 0.7]), st.booleans()), min_size=1, max_size=6
    )
)
def test_best_at_k_is_the_share_of_subsets_whose_best_sample_is_correct(samples):
    scores, correct = [score for score, _ in samples], [int(right) for _, right in samples]
    for k in range(1, len(samples) + 1):
        subsets = list(itertools.combinations(range(len(samples)), k))
        best = [max(subset, key=lambda i: (scores[i], -i)) for subset in subsets]
        share = sum(correct[i] for i in best) / len(subsets)
        found = estimators.best_at_k([scores, scores], [correct, correct], k)
        np.testing.assert_allclose(found, [share, share], atol=1e-12)
        assert share <= estimators.pass_at_k(sum(correct), len(samples), k) + 1e-12


@pytest.mark.parametrize(
    ("scores", "correct", "k", "message"),
    [
        ([0.5, 0.2], [1], 1, "need the same"),
        ([0.5, np.nan], [1, 0], 1, "must not be NaN"),
        ([0.5, 0.2], [1, 0.5], 1, "must be 0 or 1"),
        ([0.5, 0.2], [1, 0], 3, "k=3: must be an integer from 1 to n=2"),
        ([0.5, 0.2], [1, 0], True, "k=True"),
    ],
)
def test_best_at_k_refuses_what_it_can_not_rank(scores, correct, k, message):
    with pytest.raises(ValueError, match=message):
        estimators.best_at_k(scores, correct, k)


def test_pass_at_k_is_unbiased():
    p, n, k = 0.13, 12, 5
    mean = sum(binomial(c, n, p) * float(estimators.pass_at_k(c, n, k)) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_pass_at_k_broadcasts_and_stays_exact_for_large_counts():
    found = estimators.pass_at_k([[1], [0]], 100_000, [1, 50_000])
    assert found.shape == (2, 2)
    np.testing.assert_allclose(found, [[1e-5, 0.5], [0, 0]], rtol=1e-8)


@pytest.mark.parametrize(
    ("c", "n", "k", "name"), [(3, 2, 1, "num_correct"), (0.5, 2, 1, "num_correct"), (1, 4, 5, "k:")]
)
def test_impossible_samples_are_refused(c, n, k, name):
    with pytest.raises(ValueError, match=name):
        estimators.pass_at_k(c, n, k)


def test_coverage_is_the_mean_over_questions():
    value, low, high = estimators.estimate_coverage([0, 4, 1, 0], 4, 2)
    assert value == pytest.approx((0 + 1 + 0.5 + 0) / 4)
    assert low < value < high


# Risk


def test_a_unit_is_one_observation_however_many_steps_it_has():
    steps = estimators.estimate_risk([1.0, 1.0, 1.0, 0.0], units=["a", "a", "a", "b"])
    assert steps == estimators.estimate_risk([1.0, 0.0])
    assert steps.high - steps.low > estimators.bounded_mean([1, 1, 1, 0]).high - 0.75


def test_a_cross_entropy_is_no_loss_of_the_bounds():
    with pytest.raises(ValueError, match="cross-entropy"):
        estimators.estimate_risk([0.2, 2.3])


# epsilon


@pytest.mark.parametrize("n", [1, 5, 40, 300])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_the_interval_of_epsilon_holds_for_any_law(n, level):
    # With deviations 1/(n+1), 2/(n+1), ... in order, `low` and `high` name order statistics; the
    # chance that they enclose the quantile is binomial, whatever the law.
    deviations = np.arange(1, n + 1) / (n + 1)
    _, low, high = estimators.estimate_epsilon(deviations, np.zeros(n), level=level, confidence=0.9)
    under, above = round(low * (n + 1)), round(high * (n + 1))  # 0 and n + 1: no bound
    missed_low = sum(binomial(k, n, level) for k in range(under)) if under else 0.0
    missed_high = sum(binomial(k, n, level) for k in range(above, n + 1)) if above <= n else 0.0
    assert missed_low <= 0.05 + 1e-12
    assert missed_high <= 0.05 + 1e-12
    # And no more cautious than it needs to be: the next order statistic would not do.
    if above > 1:
        assert sum(binomial(k, n, level) for k in range(above - 1, n + 1)) > 0.05
    if under < n:
        assert sum(binomial(k, n, level) for k in range(under + 1)) > 0.05


def test_epsilon_takes_the_largest_deviation_of_each_question():
    scores, truths = [0.9, 0.2, 0.6, 0.5], [1.0, 0.0, 1.0, 0.5]
    units = ["a", "a", "b", "b"]
    assert estimators.estimate_epsilon(scores, truths).value == pytest.approx(0.4)
    half = estimators.estimate_epsilon(scores, truths, level=0.5, units=units)
    assert half.value == pytest.approx(0.2)
    assert estimators.exceedance(0.3, scores, truths, units=units).value == 0.5
    assert estimators.exceedance(0.5, scores, truths, units=units).value == 0.0


def test_no_sample_bounds_a_supremum():
    assert estimators.estimate_epsilon([0.5] * 1000, [0.5] * 1000).high == 1.0


@pytest.mark.parametrize(("level", "number"), [(0.55, 100), (0.07, 100), (0.5, 3), (1e-9, 5)])
def test_epsilon_is_the_smallest_deviation_that_a_share_of_units_does_not_exceed(level, number):
    deviations = np.arange(1, number + 1) / 1000
    rank = math.ceil(fractions.Fraction(str(level)) * number)
    found = estimators.estimate_epsilon(deviations, np.zeros(number), level=level)
    assert found.value == rank / 1000


@pytest.mark.parametrize(
    ("scores", "truths", "options", "name"),
    [
        ([0.1], [0.1, 0.2], {}, "truths"),
        ([0.1], [2.0], {}, "truths"),
        ([0.1], [0.1], {"level": 0.0}, "level"),
        ([0.1], [0.1], {"units": ["a", "b"]}, "units"),
    ],
)
def test_bad_deviations_are_refused(scores, truths, options, name):
    with pytest.raises(ValueError, match=name):
        estimators.estimate_epsilon(scores, truths, **options)


# Calibration

SCORES = [0.1, 0.4, 0.4, 0.8, 0.95, 0.3, 0.8]
LABELS = [0, 0, 1, 1, 1, 1, 0]
PARENTS = ["a", "a", "a", "b", "b", "c", "b"]


def test_log_loss_has_the_sign_of_a_loss():
    losses = estimators.negative_log_likelihood([0.9, 0.9, 0.5], [1, 0, 0.5])
    np.testing.assert_allclose(losses, [-math.log(0.9), -math.log(0.1), math.log(2)])
    np.testing.assert_array_equal(
        estimators.negative_log_likelihood([0.0, 1.0, 0.0], [0, 1, 1]), [0, 0, math.inf]
    )


def test_figures_agree_with_loops():
    pairs = list(zip(SCORES, LABELS, strict=True))
    log_loss = -sum(math.log(r if y else 1 - r) for r, y in pairs) / 7
    assert estimators.mean_log_loss(SCORES, LABELS) == pytest.approx(log_loss)
    right = [r for r, y in pairs if y]
    wrong = [r for r, y in pairs if not y]
    won = sum((a > b) + (a == b) / 2 for a in right for b in wrong)
    auc = won / (len(right) * len(wrong))
    assert estimators.area_under_curve(SCORES, LABELS) == pytest.approx(auc)
    bins = [[pair for pair in pairs if min(int(pair[0] * 5), 4) == b] for b in range(5)]
    error = sum(abs(sum(r - y for r, y in b)) for b in bins) / 7
    assert estimators.expected_calibration_error(SCORES, LABELS, num_bins=5) == pytest.approx(error)
    table = estimators.reliability(SCORES, LABELS, num_bins=5)
    assert [row.num for row in table] == [len(b) for b in bins if b]
    assert [row.share_right.value for row in table] == pytest.approx(
        [sum(y for _, y in b) / len(b) for b in bins if b]
    )
    assert table[-1].mean_score == pytest.approx((0.8 + 0.95 + 0.8) / 3)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)),
        min_size=1,
        max_size=20,
    )
)
def test_pairs_and_weights_agree_with_loops(rows):
    scores = [row[0] / 4 for row in rows]
    labels, parents, weights = ([row[i] for row in rows] for i in (1, 2, 3))
    won = drawn = 0.0
    for i, j in itertools.product(range(len(rows)), repeat=2):
        if labels[i] == 1 and labels[j] == 0 and parents[i] == parents[j]:
            count = weights[i] * weights[j]
            drawn += count
            won += count * ((scores[i] > scores[j]) + (scores[i] == scores[j]) / 2)
    if drawn:
        found = estimators.pair_accuracy(scores, labels, parents, weights)
        assert found == pytest.approx(won / drawn)
    else:
        with pytest.raises(ValueError, match=r"siblings|weights"):
            estimators.pair_accuracy(scores, labels, parents, weights)


@pytest.mark.parametrize(
    ("figure", "arguments", "message"),
    [
        ("area_under_curve", ([0.1, 0.5], [0, 1], [math.inf, 1]), "weights: must be finite"),
        ("mean_log_loss", ([0.1, 0.5], [0, 1], ["a", 1]), r"weights=\['a', 1\]: a number or"),
        ("area_under_curve", (["a", 0.5], [0, 1]), r"scores=\['a', 0.5\]: a number or"),
        ("pass_at_k", ("a", 2, 1), "num_correct='a': a number or"),
        ("pearson", ([1, 2, 3], [1, 2, 10**400]), r"y=\[1, 2, 10+: a number or"),
        ("bootstrap", ({"a": np.sum}, []), r"units has shape \(0,\)"),
    ],
)
def test_values_that_are_no_numbers_are_refused_by_name(figure, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(estimators, figure)(*arguments)


def test_a_score_on_an_edge_is_in_the_bin_above_it():
    for number in (10, 49, 100):
        for edge in np.arange(number) / number:
            (found,) = estimators.reliability([edge], [1], num_bins=number)
            assert found.low <= edge < found.high
    (last,) = estimators.reliability([1.0], [1], num_bins=10)
    assert last.high == 1.0


def test_weights_are_repetitions():
    weights = [1, 2, 0, 1, 1, 3, 1]
    repeated = [i for i, w in enumerate(weights) for _ in range(w)]
    scores, labels = [SCORES[i] for i in repeated], [LABELS[i] for i in repeated]
    for figure in (
        estimators.mean_log_loss,
        estimators.expected_calibration_error,
        estimators.area_under_curve,
    ):
        assert figure(SCORES, LABELS, weights) == pytest.approx(figure(scores, labels))


def test_auc_does_not_tell_verifying_from_knowing_which_questions_are_hard():
    # A score that is the question's difficulty: high AUC, and no better than chance for siblings.
    scores = [0.9] * 10 + [0.1] * 10
    labels = [1] * 9 + [0] + [1] + [0] * 9
    parents = ["easy"] * 10 + ["hard"] * 10
    assert estimators.area_under_curve(scores, labels) == 0.9
    assert estimators.pair_accuracy(scores, labels, parents) == 0.5


def test_bootstrap_draws_whole_questions():
    rng = np.random.default_rng(1)
    truth = rng.random(300)
    labels = (rng.random(300) < truth).astype(float)
    siblings = np.arange(300) // 10

    def figures(r, y):
        return {
            "log loss": lambda w: estimators.mean_log_loss(r, y, w),
            "AUC": lambda w: estimators.area_under_curve(r, y, w),
        }

    pair = {"pair": lambda w: estimators.pair_accuracy(truth, labels, siblings, np.sqrt(w))}
    alone = estimators.bootstrap(figures(truth, labels) | pair, np.arange(300))
    copied = estimators.bootstrap(
        figures(np.repeat(truth, 9), np.repeat(labels, 9)), np.repeat(np.arange(300), 9)
    )
    for name in ("log loss", "AUC"):
        value, low, high = alone[name]
        assert low < value < high
        assert copied[name].value == pytest.approx(value)
        # Copies add no information: the interval must not shrink by a factor of 3.
        assert copied[name].high - copied[name].low > 0.7 * (high - low)
    assert alone["pair"].low < alone["pair"].value < alone["pair"].high
    assert alone == estimators.bootstrap(figures(truth, labels) | pair, np.arange(300))


@pytest.mark.parametrize("labels", [[0, 0.5], [0, 2], [0]])
def test_labels_are_zero_or_one(labels):
    with pytest.raises(ValueError, match="label"):
        estimators.area_under_curve([0.5, 0.5], labels)


# Correlations


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=7).filter(
        lambda pairs: all(len({pair[side] for pair in pairs}) > 1 for side in (0, 1))
    )
)
def test_correlations_agree_with_scipy(pairs):
    x, y = (np.array([float(pair[side]) for pair in pairs]) for side in (0, 1))
    found = estimators.rank_correlations(x, y)
    assert found["pearson"].value == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-9)
    assert found["spearman"].value == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)
    assert found["kendall"].value == pytest.approx(stats.kendalltau(x, y)[0], abs=1e-9)
    if len(x) <= 5:
        as_far = [
            abs(stats.spearmanr(x, order)[0]) >= abs(found["spearman"].value) - 1e-9
            for order in itertools.permutations(y)
        ]
        assert found["spearman"].p_value == pytest.approx(np.mean(as_far))
    assert all(result.exact for result in found.values())


def test_many_pairs_are_permuted_at_random():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    strong, none = (
        estimators.spearman(x, x + 0.3 * rng.normal(size=30)),
        estimators.spearman(x, rng.normal(size=30)),
    )
    assert not strong.exact
    assert 0 < strong.p_value < 1e-3
    assert strong.low > 0.7
    assert none.p_value > 0.05
    assert none.low < 0 < none.high


# The table of docs/theory/statements.md, section 9: Spearman, Kendall and Pearson for the five rows
# of tab:sparse, Spearman and Pearson without the second of its two equal rows. After each
# coefficient the number of orders, of 120 and of 24, in which it is as large: its p-value.
@pytest.mark.parametrize(
    ("predictor", "of_five", "of_four"),
    [
        ("total_sparsity", [-0.684, 26, -0.556, 26, -0.884, 6], [-0.8, 8, -0.880, 2]),
        ("last_layer_sparsity", [-1.0, 2, -1.0, 2, -0.884, 2], [-1.0, 2, -0.885, 1]),
        ("nonzero_parameters", [-0.053, 108, 0.111, 100, -0.551, 48], [-0.2, 22, -0.661, 12]),
        ("parameters", [-0.158, 98, -0.111, 100, -0.571, 46], [-0.4, 18, -0.679, 11]),
    ],
)
def test_the_papers_table(predictor, of_five, of_four):
    values = [getattr(row, predictor) for row in paper.SPARSITY]
    error = [row.test_error for row in paper.SPARSITY]
    five = estimators.sparsity_against_error({predictor: values}, error)[predictor]
    distinct = [0, 1, 3, 4]
    four = estimators.rank_correlations([values[i] for i in distinct], [error[i] for i in distinct])
    names = ("spearman", "kendall", "pearson"), ("spearman", "pearson")
    for found, kinds, table, orders in zip(
        (five, four), names, (of_five, of_four), (120, 24), strict=True
    ):
        for name, coefficient, as_large in zip(kinds, table[::2], table[1::2], strict=True):
            assert found[name].exact
            assert found[name].value == pytest.approx(coefficient, abs=6e-4)
            assert found[name].p_value == pytest.approx(as_large / orders, abs=1e-12)


@pytest.mark.parametrize(("rows", "expected"), [(range(5), 4 / 120), ((0, 1, 3, 4), 4 / 24)])
def test_the_largest_correlation_of_both_sparsities(rows, expected):
    rows = [paper.SPARSITY[i] for i in rows]
    columns = {
        name: [getattr(row, name) for row in rows]
        for name in ("total_sparsity", "last_layer_sparsity")
    }
    error = [row.test_error for row in rows]
    found = estimators.sparsity_max_p(columns, error)
    assert found == pytest.approx(expected)
    # Each order once more, by SciPy's coefficient.

    def largest(order):
        found: list[Any] = [stats.spearmanr(column, order) for column in columns.values()]
        return max(abs(each.statistic) for each in found)

    observed = largest(error) - 1e-9
    orders = [largest(order) >= observed for order in itertools.permutations(error)]
    assert found == pytest.approx(np.mean(orders))
    # At least the smallest p of one predictor, and at most the sum of both.
    alone = [estimators.spearman(column, error).p_value for column in columns.values()]
    assert min(alone) <= found <= sum(alone)
    with pytest.raises(ValueError, match="predictors is empty: need one or more"):
        estimators.sparsity_max_p({}, error)
    with pytest.raises(ValueError, match="error has 9 PRMs: at most 8"):
        estimators.sparsity_max_p({"x": [float(i) for i in range(9)]}, [float(i) for i in range(9)])


@pytest.mark.parametrize(
    ("x", "y", "name"),
    [
        ([1, 2], [1, 2], "3 or more"),
        ([1, 2, 3], [1, 2], "equally long"),
        ([1, 1, 1], [1, 2, 3], "x is constant"),
        ([1, 2, 3], [1, math.nan, 3], "y holds"),
    ],
)
def test_undefined_correlations_are_refused(x, y, name):
    with pytest.raises(ValueError, match=name):
        estimators.kendall(x, y)


def test_the_permutation_tests_of_the_papers_table_by_scipy():
    """The p-values once more, by another implementation of coefficients and permutations."""
    error = np.array([row.test_error for row in paper.SPARSITY])
    for predictor in ("total_sparsity", "last_layer_sparsity", "nonzero_parameters"):
        values = np.array([getattr(row, predictor) for row in paper.SPARSITY])
        found = estimators.rank_correlations(values, error)
        for name, function in (
            ("spearman", stats.spearmanr),
            ("kendall", stats.kendalltau),
            ("pearson", stats.pearsonr),
        ):
            observed = abs(function(values, error)[0])
            as_far = [
                abs(function(values, error[list(order)])[0]) >= observed - 1e-9
                for order in itertools.permutations(range(5))
            ]
            assert found[name].p_value == pytest.approx(np.mean(as_far)), (predictor, name)
