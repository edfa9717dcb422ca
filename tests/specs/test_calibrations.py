"""Files of calibrations: what is read, and what is refused by name."""

import dataclasses
import json

import pytest

import learners
import search
from cats_jax import world
from cats_jax.controllers.strategies import SearchMethod
from cats_jax.errors import BadInputError
from cats_jax.evaluation.cells import grid
from cats_jax.specs.calibrations import (
    IDENTITY,
    calibration_of,
    load_calibrations,
    shipped_calibrations,
)
from cats_jax.specs.recipe import load_recipe
from cats_jax.training.train import check_calibration, configure
from search.cats import features as cats_features


def write(path, rows):
    path.write_text(json.dumps({"prms": rows}), encoding="utf-8")
    return path


def recipe(tmp_path, **keys):
    lines = {
        "prms": ["exact"],
        "strategies": ["beam"],
        "num_candidates": [4],
        "questions": {"world": "validation", "count": 1},
        **keys,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(lines), encoding="utf-8")  # JSON is YAML
    return load_recipe(path)


ROW = {"intercept": 0.5, "slope": 0.25, "agreement": 1.5, "cross_entropy": 0.1}
CALIBRATED = {"name": "beam", "path_score": "product", "calibrated": True}


def test_a_recipe_hands_each_prm_its_calibration(tmp_path):
    file = write(tmp_path / "c.json", {"exact": ROW, "other": {**ROW, "slope": 9}})
    assert dict(load_calibrations(file))["other"] == (0.5, 9.0, 1.5, 0.0, 0.0, 1.0)
    cells = grid(recipe(tmp_path, calibration=str(file), strategies=[CALIBRATED]))
    assert [cell.calibration for cell in cells] == [(0.5, 0.25, 1.5, 0.0, 0.0, 1.0)]
    assert [cell.calibration for cell in grid(recipe(tmp_path))] == [IDENTITY]


def test_a_path_is_not_the_name_of_a_shipped_file(tmp_path):
    file = write(tmp_path / "mine", {"exact": ROW})
    write(tmp_path / "mine.json", {"exact": {**ROW, "slope": 9}})
    assert dict(load_calibrations(file))["exact"][1] == 0.25


LIKELIHOOD = {"likelihood": 0.75, "unscored_intercept": -0.5, "unscored_likelihood": 1.25}


def test_a_file_with_likelihood_has_all_six_values(tmp_path):
    file = write(tmp_path / "c.json", {"exact": {**ROW, **LIKELIHOOD}})
    assert load_calibrations(file) == (("exact", (0.5, 0.25, 1.5, 0.75, -0.5, 1.25)),)
    for name in LIKELIHOOD:
        row = {**ROW, **LIKELIHOOD}
        del row[name]
        with pytest.raises(BadInputError, match=f"is not a file of `cats-jax calibrate`.*{name}"):
            load_calibrations(write(tmp_path / "c.json", {"exact": row}))


def test_a_strategy_that_needs_a_calibration_says_so(tmp_path):
    with pytest.raises(BadInputError, match=r"'exact' has no calibration.*cats-jax calibrate"):
        grid(recipe(tmp_path, strategies=[CALIBRATED]))
    file = write(tmp_path / "c.json", {"exakt": ROW})
    with pytest.raises(BadInputError, match="exakt"):
        grid(recipe(tmp_path, calibration=str(file), strategies=[CALIBRATED]))
    assert calibration_of("exact", (), required=False) == IDENTITY


def test_none_leaves_scores_as_they_are_and_must_be_said(tmp_path):
    assert load_calibrations("none", ["a", "b"]) == (("a", IDENTITY), ("b", IDENTITY))
    cells = grid(recipe(tmp_path, calibration="none", strategies=[CALIBRATED]))
    assert [cell.calibration for cell in cells] == [IDENTITY]


ACTION = {"num_extra": 1, "temperature": 0.6}
HAND_MADE = [
    {"name": "cats_random"},
    {"name": "cats_constant", "action": ACTION},
    {"name": "cats_rule", "threshold": 0.5, "sample": ACTION},
]


@pytest.mark.parametrize("strategy", HAND_MADE, ids=[each["name"] for each in HAND_MADE])
def test_a_hand_made_policy_needs_a_calibration_only_to_rank_by_it(tmp_path, strategy):
    cells = grid(recipe(tmp_path, strategies=[strategy]))
    assert [cell.calibration for cell in cells] == [IDENTITY]
    ranking = {**strategy, "calibrated": True, "path_score": "product"}
    with pytest.raises(BadInputError, match="has no calibration"):
        grid(recipe(tmp_path, strategies=[ranking]))


def test_a_controller_that_sees_the_calibration_needs_one(tmp_path, monkeypatch):
    with pytest.raises(BadInputError, match="has no calibration"):
        grid(recipe(tmp_path, strategies=["cats"]))
    rule = {"name": "cats_rule", "feature": "calibration_slope", "threshold": 1, "sample": ACTION}
    with pytest.raises(BadInputError, match="has no calibration"):
        grid(recipe(tmp_path, strategies=[rule]))
    blind = dataclasses.replace(
        search.cats.CATS, excluded_features=cats_features.CALIBRATION_FEATURES
    )
    policy = learners.make_policy(learners.make_actor(len(blind.actions)).apply, "argmax")
    assert search.cats.cats(policy, search.cats.CATS).needs_calibration
    strategy = search.cats.cats(policy, blind)
    monkeypatch.setattr(
        "cats_jax.evaluation.cells.build_strategy", lambda *_: SearchMethod(strategy)
    )
    cells = grid(recipe(tmp_path, strategies=["cats"]))
    assert [cell.calibration for cell in cells] == [IDENTITY]


def test_a_training_on_a_bank_needs_the_calibration_it_would_look_at():
    for config in ("cats", "calibrated", "offline"):
        with pytest.raises(BadInputError, match="no --calibration"):
            check_calibration(configure(config), None)
        check_calibration(configure(config), "none")
    check_calibration(configure("paper"), None)


def test_the_world_has_calibrations_of_all_its_prms():
    assert "weak" in shipped_calibrations()
    labels = {name: set(dict(load_calibrations(name))) for name in shipped_calibrations()}
    family = set(world.PRM_FAMILY)
    assert labels == {
        "weak": family,
        "strong": family,
        "weak-likelihood": set(world.PRM_NAMES),
        "strong-likelihood": {"exact", "on-policy", "strong-errors"},
    }


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"prms": 1}', '{"prms": {"exact": {"slope": 1}}}', "[" * 9999]
)
def test_another_kind_of_file_is_refused(tmp_path, content):
    path = tmp_path / "c.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadInputError, match="is not a file of `cats-jax calibrate`") as error:
        load_calibrations(path)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_number_that_is_none_are_refused(tmp_path):
    with pytest.raises(BadInputError, match="no such file"):
        load_calibrations(tmp_path / "none.json")
    with pytest.raises(BadInputError, match="finite"):
        load_calibrations(write(tmp_path / "c.json", {"exact": {**ROW, "slope": float("nan")}}))
