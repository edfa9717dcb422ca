"""Calibration of PRMs: the fit against Newton's method, groups against their definition."""

import collections
import json
import math
import types

import jax.numpy as jnp
import numpy as np
import pytest
import scripted_bank

import search
from cats_jax import cli
from cats_jax.bank import calibrate, siblings
from cats_jax.errors import BadInputError
from cats_jax.specs.calibrations import IDENTITY, NAMES, load_calibrations
from search.calibration import unscored_probability


def newton(inputs, target, weight):
    """Weighted logistic regression by iteratively reweighted least squares."""
    values = np.zeros(inputs.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-inputs @ values))
        curvature = (inputs * (weight * p * (1 - p))[:, None]).T @ inputs
        values = values + np.linalg.solve(curvature, inputs.T @ (weight * (target - p)))
    return values


def data(seed=0, size=4000, truth=(0.3, 0.8, 0.6)):
    rng = np.random.default_rng(seed)
    inputs = np.stack([np.ones(size), rng.normal(0, 2, size), rng.normal(0, 1, size)], axis=1)
    chance = 1 / (1 + np.exp(-inputs @ np.array(truth)))
    return inputs, (rng.random(size) < chance).astype(float), rng.uniform(0.1, 3, size)


@pytest.mark.parametrize("truth", [(0.3, 0.8, 0.6), (-2.0, 0.0, 0.0), (0.0, 1.0, 0.0)])
def test_the_fit_is_that_of_newtons_method(truth):
    inputs, target, weight = data(truth=truth)
    found = calibrate.fit_logistic(inputs, target, weight, (0, 1, 0))
    np.testing.assert_allclose(found, newton(inputs, target, weight), atol=2e-4)
    np.testing.assert_allclose(found, truth, atol=0.25)


def test_what_can_be_told_apart_perfectly_stays_finite():
    inputs = np.array([[1.0, -2.0, 0.0], [1.0, 2.0, 0.0]])
    found = calibrate.fit_logistic(inputs, np.array([0.0, 1.0]), np.ones(2), (0, 1, 0))
    assert np.all(np.isfinite(found))
    assert found[1] > 1


def fake_bank(*, score=None, prms=("a", "b"), ids=("q",)):
    """One question: a root with three children, two of them growing on; settings 0 and 1.

    Row: 0 root; 1 right (5 draws), 2 wrong (3), 3 blank (2); below 1: 4 right (2), 5 wrong (1);
    below 2: 6 wrong (1).
    """
    draws = np.array([[0, 0], [1, 5], [0, 3], [0, 2], [1, 2], [0, 1], [0, 1]])
    nodes = {
        "parent": np.array([-1, 0, 0, 0, 1, 1, 2]),
        "value": np.array([0.4, 2 / 3, 0.0, 0.0, 1.0, 0.0, 0.0]),
        "invalid": np.array([0, 0, 0, 1, 0, 0, 0], bool),
        "draws": draws,
        "text_class": np.array([0, 0, 1, 2, 0, 1, 0]),
    }
    if score is None:
        score = np.linspace(0.1, 0.7, 7)[:, None] * np.ones((1, len(prms)))
    arrays = types.SimpleNamespace(
        temperature=np.array([0.0, 1.0]),
        score=np.asarray(score, np.float32),
        log_prob=np.log(np.array([1, 0.5, 0.3, 0.2, 0.6, 0.4, 1])),
    )
    return types.SimpleNamespace(
        nodes=nodes, arrays=arrays, prms=prms, ids=ids, texts=ids, manifest={"models": {}}
    )


def test_groups_are_draws_without_replacement_of_nodes_that_can_be_right():
    groups = siblings.sample_candidates(fake_bank())
    tenths = np.rint(10 * groups.score[:, 0]).astype(int)
    sizes = set()
    for number in range(int(groups.group[-1]) + 1):
        rows = np.flatnonzero(groups.group == number)
        assert np.array_equal(rows, np.arange(rows[0], rows[-1] + 1))
        assert set(groups.num_siblings[rows]) == {rows.size}
        scores = collections.Counter(tenths[rows].tolist())
        # Of the root, 5 and 3 draws; of its right child, 2 and 1; the wrong child's are left out.
        at_root = {2: 5, 3: 3}
        below = {5: 2, 6: 1}
        limits = at_root if set(scores) <= set(at_root) else below
        assert all(scores[s] <= limits[s] for s in scores)
        for row in rows:
            assert groups.same_text[row] == scores[int(tenths[row])]
            assert groups.right[row] == (tenths[row] in (2, 5))
        # A path comes to the root always, to its right child with chance 5/10.
        reach = 1.0 if limits is at_root else 0.5
        assert groups.weight[rows].sum() == pytest.approx(reach)
        sizes.add((limits is at_root, rows.size))
    assert max(size for root, size in sizes if root) == 8
    assert max(size for root, size in sizes if not root) == 3


def test_probabilities_are_those_of_the_search():
    groups = siblings.sample_candidates(fake_bank())
    values = (0.4, 1.5, 0.7, 0.3, 0.0, 1.0)
    logit = calibrate._logit(groups, 0, values)
    expected = search.calibration.calibrated_score(
        jnp.asarray(groups.score[:, 0]),
        jnp.asarray(groups.same_text, jnp.float32),
        jnp.asarray(groups.num_siblings, jnp.float32),
        jnp.asarray(groups.log_prob, jnp.float32),
        search.Calibration(*values),
    )
    np.testing.assert_allclose(1 / (1 + np.exp(-logit)), expected, atol=1e-5)


def test_figures_by_hand():
    groups = siblings.Candidates(
        group=np.array([0, 0, 0, 1, 1, 2]),
        right=np.array([1, 0, 0, 1, 0, 1], bool),
        share=np.ones(6),
        trusted=np.ones(6, bool),
        log_prob=np.zeros(6),
        same_text=np.ones(6, int),
        num_siblings=np.array([3, 3, 3, 2, 2, 1]),
        score=np.zeros((6, 1)),
        weight=np.array([1 / 3, 1 / 3, 1 / 3, 1.0, 1.0, 5.0]),
    )
    logit = np.array([1.0, 0.0, 1.0, -1.0, 2.0, 0.0])
    figures = calibrate.figures(groups, logit)
    # Group 0 weighs 1: one win, one tie; group 1 weighs 2: lost; group 2 has no pair.
    assert figures.pair == pytest.approx((1 * 0.75 + 2 * 0) / 3)
    p = 1 / (1 + np.exp(-logit))
    nll = -np.log(np.where(groups.right, p, 1 - p))
    assert figures.cross_entropy == pytest.approx((groups.weight * nll).sum() / 8)


def test_without_pairs_there_is_no_pair_figure():
    groups = siblings.sample_candidates(fake_bank())
    right = siblings.Candidates(**{**vars(groups), "right": np.ones_like(groups.right)})
    assert np.isnan(calibrate.figures(right, np.zeros(right.right.size)).pair)


def bank_of_texts(right, score, chances=(1.0, 1.0, 1.0, 1.0)):
    """Questions bool[Q, 4] of four texts below a root, each drawn four times; scores f64[Q, 4, 2].

    `chances` are those of the texts under the policy.
    """
    number = len(right)
    roots = 5 * np.arange(number)[:, None]
    score = np.concatenate([np.full((number, 1, 2), 0.5), score], axis=1)
    bank = fake_bank(score=score.reshape(-1, 2))
    bank.nodes = {
        "parent": np.hstack([np.full_like(roots, -1), np.repeat(roots, 4, axis=1)]).ravel(),
        "value": np.hstack([np.full(roots.shape, 0.5), right]).ravel(),
        "invalid": np.zeros(5 * number, bool),
        "draws": np.tile([[0], [4], [4], [4], [4]], (number, 1)),
        "text_class": np.tile([0, 0, 1, 2, 3], number),
    }
    bank.arrays.temperature = np.array([1.0])
    bank.arrays.log_prob = np.log(np.tile([1.0, *chances], number))
    return bank


def test_the_better_prm_gets_the_larger_slope():
    rng = np.random.default_rng(0)
    right = rng.random((300, 4)) < 0.5
    good = 1 / (1 + np.exp(-(2.0 * right - 1 + 0.7 * rng.normal(size=right.shape))))
    bank = bank_of_texts(right, np.stack([good, rng.random(right.shape)], axis=2))
    content = calibrate.calibrate_bank(bank)
    good, bad = content["prms"]["a"], content["prms"]["b"]
    assert good["slope"] > 1 > 0.2 > abs(bad["slope"])
    assert good["cross_entropy"][1] < good["cross_entropy"][0]
    assert bad["cross_entropy"][1] == pytest.approx(np.log(2), abs=0.03)
    assert good["pair"][1] > 0.8
    assert bad["pair"][1] == pytest.approx(0.5, abs=0.08)


# With the likelihood


def test_shares_are_those_of_the_best_sibling():
    bank = fake_bank()
    # Below the root the best child is right in 3 of 10 completions: too few to go by.
    bank.nodes["value"] = np.array([0.4, 0.3, 0.2, 0.0, 0.9, 0.4, 0.1])
    groups = siblings.sample_candidates(bank)
    tenths = np.rint(10 * groups.score[:, 0]).astype(int)
    assert set(tenths) == {2, 3, 5, 6, 7}
    share = {2: 1.0, 3: 2 / 3, 5: 1.0, 6: 4 / 9, 7: 1.0}
    trusted = {2: False, 3: False, 5: True, 6: True, 7: False}
    assert groups.share.tolist() == pytest.approx([share[score] for score in tenths])
    assert groups.trusted.tolist() == [trusted[score] for score in tenths]
    np.testing.assert_array_equal(groups.log_prob, bank.arrays.log_prob[tenths - 1])
    # A step that is less than half as good as its sibling takes its children along.
    bank.nodes["value"] = np.array([0.4, 0.3, 0.9, 0.0, 0.9, 0.4, 0.8])
    groups = siblings.sample_candidates(bank)
    tenths = np.rint(10 * groups.score[:, 0]).astype(int)
    assert set(tenths[groups.trusted]) == {2, 3, 7}


def test_pairs_have_the_chance_of_one_right_and_one_wrong_completion():
    bank = fake_bank()
    bank.nodes["value"] = np.array([0.4, 0.6, 0.5, 0.0, 0.9, 0.4, 0.0])
    pairs = siblings.discordant_pairs(bank)
    found = {
        (first, second): weight
        for first, second, weight in zip(
            pairs.first.tolist(), pairs.second.tolist(), pairs.weight.tolist(), strict=True
        )
    }
    # Of the root 8 draws are no blanks: 5 and 3; half of the 10 draws come to the node below.
    assert found == pytest.approx(
        {
            (1, 2): 5 / 8 * 0.6 * 3 / 8 * 0.5,
            (2, 1): 3 / 8 * 0.5 * 5 / 8 * 0.4,
            (4, 5): 0.5 * (2 / 3 * 0.9 * 1 / 3 * 0.6),
            (5, 4): 0.5 * (1 / 3 * 0.4 * 2 / 3 * 0.1),
        }
    )
    # A node of which little is known has no pairs, nor has a wrong child of it.
    bank.nodes["value"][1:3] = 0.2, 0.45
    with pytest.raises(BadInputError, match="no node on a right path"):
        siblings.discordant_pairs(bank)


CHANCES = np.array([0.55, 0.25, 0.15, 0.05])
"""Of the four texts below each node, under the policy."""


def right_by_likelihood(questions=1500, lucky=0):
    """Nodes with the four texts, each right with odds of its likelihood; one PRM can tell.

    Of `lucky` questions more, all texts are right by luck, and both PRMs reject them.

    Also returns the chance of each text to be right where at least one is.
    """
    odds = np.log(CHANCES / (1 - CHANCES))
    chance = 1 / (1 + np.exp(-(0.5 + 0.8 * odds)))
    rng = np.random.default_rng(1)
    right = rng.random((questions, 4)) < chance
    signal = 1 / (1 + np.exp(-(2.0 * right - 1 + rng.normal(size=right.shape))))
    score = np.stack([signal, rng.random(right.shape)], axis=2)
    right = np.concatenate([right, np.ones((lucky, 4), bool)])
    score = np.concatenate([score, np.full((lucky, 4, 2), 0.01)])
    return bank_of_texts(right, score, CHANCES), chance / (1 - np.prod(1 - chance))


def test_the_likelihood_is_fitted_where_the_truth_is_known():
    bank, truth = right_by_likelihood()
    prms = calibrate.calibrate_bank(bank, likelihood=True)["prms"]
    good, bad = (search.Calibration(*(prms[name][n] for n in NAMES)) for name in ("a", "b"))
    assert good.agreement == bad.agreement == 0.0
    assert good.slope > 1 > 0.1 > abs(bad.slope)
    assert 0.4 < good.likelihood < 1.2
    assert good.unscored_likelihood == bad.unscored_likelihood > 0.4
    log_prob, one = jnp.asarray(np.log(CHANCES), jnp.float32), jnp.ones(4)
    unscored = unscored_probability(log_prob, good)
    np.testing.assert_allclose(unscored, truth, atol=0.06)
    # A PRM that can't tell says the same with its score as without.
    scored = search.calibration.calibrated_score(0.5 * one, one, 4 * one, log_prob, bad)
    np.testing.assert_allclose(scored, unscored, atol=0.06)
    # One that can tell says more.
    apart = [
        search.calibration.calibrated_score(s * one, one, 4 * one, log_prob, good)
        for s in (0.8, 0.2)
    ]
    assert (apart[0] > unscored).all()
    assert (apart[1] < unscored).all()


def test_what_siblings_share_does_not_change_the_weight_of_a_score():
    plain, lucky = (
        calibrate.calibrate_bank(right_by_likelihood(500, lucky)[0], likelihood=True)["prms"]["a"]
        for lucky in (0, 150)
    )
    weights = [row["slope"] / row["likelihood"] for row in (plain, lucky)]
    assert weights[0] == pytest.approx(weights[1], rel=1e-3)
    assert lucky["slope"] < 0.9 * plain["slope"]  # what the scores say is less sure


def odds(p):
    return math.log(p / (1 - p))


def test_the_fits_with_likelihood_are_those_of_newtons_method():
    bank, _ = right_by_likelihood(questions=200)
    nodes, arrays = bank.nodes, bank.arrays
    nodes["value"][500:] *= 0.4  # too few right completions to go by

    def both(row):
        score = min(max(float(arrays.score[row, 0]), 0.01), 0.99)
        return odds(score), odds(math.exp(arrays.log_prob[row]))

    # Each of the four texts is drawn four times, and is always right or always wrong.
    pairs = [
        np.subtract(both(first), both(second))
        for root in range(0, 500, 5)
        for first in range(root + 1, root + 5)
        for second in range(root + 1, root + 5)
        if nodes["value"][first] > nodes["value"][second]
    ]
    direction = newton(np.array(pairs), np.ones(len(pairs)), np.ones(len(pairs)))
    groups = siblings.sample_candidates(bank)
    rows = np.flatnonzero(groups.trusted)
    assert 0 < rows.size < groups.trusted.size
    inputs = []
    for row in rows.tolist():
        score = min(max(float(groups.score[row, 0]), 0.01), 0.99)
        likelihood = odds(math.exp(groups.log_prob[row]))
        inputs.append([1, direction @ [odds(score), likelihood], likelihood])
    inputs, target, weight = np.array(inputs), groups.share[rows], groups.weight[rows]
    row = calibrate.calibrate_bank(bank, likelihood=True)["prms"]["a"]
    intercept, scale = newton(inputs[:, :2], target, weight)
    found = [row[name] for name in ("intercept", "slope", "likelihood")]
    np.testing.assert_allclose(found, [intercept, *scale * direction], atol=2e-3)
    found = [row[name] for name in ("unscored_intercept", "unscored_likelihood")]
    np.testing.assert_allclose(found, newton(inputs[:, [0, 2]], target, weight), atol=2e-3)


def test_a_bank_without_nodes_to_go_by_is_refused_for_a_likelihood():
    bank = fake_bank()
    bank.nodes["value"] = np.array([0.4, 0.4, 0.0, 0.0, 0.4, 0.0, 0.0])
    with pytest.raises(BadInputError, match=r"no node on a right path with a child.*mostly right"):
        calibrate.calibrate_bank(bank, likelihood=True)
    calibrate.calibrate_bank(bank)


def test_the_command_fits_a_likelihood(tmp_path, capsys):
    folder = scripted_bank.collected(tmp_path)
    output = tmp_path / "c.json"
    assert cli.run(["calibrate", str(folder), "--likelihood", "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "unscored" in shown
    assert "agreement" not in shown
    for values in dict(load_calibrations(output)).values():
        assert values[2] == 0.0
        assert all(np.isfinite(values))


def test_the_file_is_what_recipes_read(tmp_path):
    content = calibrate.calibrate_bank(fake_bank())
    calibrate.write_calibration(tmp_path / "c.json", content)
    read = dict(load_calibrations(tmp_path / "c.json"))
    row = content["prms"]["b"]
    assert read["b"] == tuple(row[name] for name in NAMES)
    assert search.Calibration._fields == NAMES
    assert tuple(search.Calibration()) == IDENTITY
    assert json.loads((tmp_path / "c.json").read_text())["questions"] == 1


def test_bad_input(tmp_path, capsys):
    bank = fake_bank()
    bank.nodes["value"] = np.zeros(7)
    with pytest.raises(BadInputError, match="no node with a right answer"):
        calibrate.calibrate_bank(bank)
    bank.nodes["value"] = np.ones(7)
    with pytest.raises(BadInputError, match="no right step beside a wrong one"):
        calibrate.calibrate_bank(bank)
    with pytest.raises(BadInputError, match="held-out bank has the PRMs c, not a, b"):
        calibrate.calibrate_bank(fake_bank(), fake_bank(prms=("c",)))
    with pytest.raises(BadInputError, match="held-out bank overlap"):
        calibrate.calibrate_bank(fake_bank(), fake_bank())
    other = fake_bank(ids=("r",))
    other.manifest["models"]["prm b"] = {"name": "another"}
    with pytest.raises(BadInputError, match="different PRMs 'b': their fingerprints differ"):
        calibrate.calibrate_bank(fake_bank(), other)
    with pytest.raises(BadInputError, match="seed=-1: must be an integer from 0"):
        calibrate.calibrate_bank(fake_bank(), seed=-1)
    with pytest.raises(BadInputError, match="can't be written"):
        calibrate.write_calibration(tmp_path / "none" / "c.json", {})
    assert cli.run(["calibrate", str(tmp_path), "--output", str(tmp_path / "c.json")]) == 2
    assert "is no step bank" in capsys.readouterr().err
    # The output is looked at first: a bank can take minutes to read.
    assert cli.run(["calibrate", str(tmp_path), "--output", str(tmp_path / "none/c.json")]) == 2
    assert "none' does not exist: make it first" in capsys.readouterr().err
