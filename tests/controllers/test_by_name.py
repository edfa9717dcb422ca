"""Search methods from Python: by name, with their calibration, and refused without one."""

import dataclasses
import json
import pathlib
import re
import warnings
from typing import Any

import pytest
from letters import QUESTIONS, HashScorer, LetterPolicy
from scripted import ScriptedPolicy, ScriptedPrm
from untrained import untrained

import cats_jax
import learners
import search
from cats_jax import Searcher, cli, world
from cats_jax.commands.terminal import make_console
from cats_jax.controllers import checkpoint
from cats_jax.controllers.strategies import FACTORIES, default_calibrations, foreign_models
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.live.method import Origin, SearchMethod
from cats_jax.models.source import ModelFolders
from cats_jax.reporting.draw import describe_result, draw_search
from cats_jax.specs.calibrations import IDENTITY, load_calibrations
from cats_jax.specs.recipe import StrategySpec, parse_recipe

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
WEAK = dict(load_calibrations("weak"))


def _named(kind, name):
    model = kind()
    model.name = name
    return model


def _searcher(strategy, policy="weak", prm="exact", **options):
    models = {"policy": _named(LetterPolicy, policy), "scorer": _named(HashScorer, prm)}
    return Searcher(strategy=strategy, num_candidates=16, **models, **options)


def _context(searcher):
    return searcher.job(QUESTIONS[0]).inputs.context


@pytest.fixture(scope="module")
def cats():
    return cats_jax.load_controller()


def _calibration(searcher):
    return pytest.approx(tuple(_context(searcher).calibration))


@pytest.mark.parametrize("value", [3, None, b"cats", ["cats"]])
def test_a_name_of_a_wrong_type_is_named(value):
    for load in (cats_jax.load_controller, cats_jax.search_method):
        with pytest.raises(
            BadInputError, match=f"name={re.escape(repr(value))}: must be a name or"
        ):
            load(value)


def test_a_controller_brings_calibration_parameters_and_price(cats):
    searcher = _searcher(cats)
    assert tuple(WEAK["exact"]) == _calibration(searcher)
    assert searcher._params is cats.params
    assert float(_context(searcher).price) == pytest.approx(cats.price)
    assert cats.price > 0.0
    dear = cats_jax.load_controller("cats", price=0.06, beam_width=2)
    assert float(_context(_searcher(dear)).price) == pytest.approx(0.06)
    assert dear.strategy.width(16) == 2
    # As in `solve`, the shipped one beside another policy of the world.
    with pytest.warns(UserWarning, match="was not trained with policy 'strong': its lead"):
        strong = _searcher(cats, policy="strong")
    assert tuple(dict(load_calibrations("strong"))["exact"]) == _calibration(strong)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("weak", WEAK["sparse"]), ("none", IDENTITY), ((1.0, 2.0, 3.0), (1, 2, 3, 0, 0, 1))],
)
def test_a_calibration_that_is_given_is_taken(cats, given, expected):
    assert tuple(expected) == _calibration(_searcher(cats, prm="sparse", calibration=given))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"prm": "mine"},
            "calibration of PRM 'mine' beside policy 'weak', but there are only those of exact",
        ),
        ({"policy": "mine"}, "beside policy 'mine', but there is none: give calibration="),
        ({"calibration": "no-such.json"}, "calibration 'no-such.json': no such file"),
        ({"calibration": "weak", "prm": "mine"}, "PRM 'mine' has no calibration"),
        ({"calibration": (1.0, float("nan"))}, "give at most 6 finite numbers"),
        ({"params": (1,)}, "a search method has its own"),
    ],
)
def test_a_controller_without_a_calibration_is_refused(cats, options, message):
    with pytest.raises(BadInputError, match=message):
        _searcher(cats, **options)


def test_every_strategy_that_reads_a_calibration_is_refused_without_one():
    loaded = checkpoint.load(world.ASSETS / "controllers" / "cats")
    by_hand = search.cats.cats(checkpoint.make_controller(loaded), loaded.config)
    for strategy in (by_hand, search.beam(calibrated=True, path_score="product")):
        with pytest.raises(BadInputError, match="reads the calibration of PRM 'exact'"):
            _searcher(strategy)
    # Policies that read no feature need none, however the strategy was made.
    for name in ("cats_random", "cats_constant"):
        assert not search.methods.DEFAULTS[name].needs_calibration
    assert not search.cats.cats(search.cats.sample_while_below("max")).needs_calibration
    assert search.cats.cats(search.cats.sample_while_below("calibration_slope")).needs_calibration


def test_other_models_are_said_once(cats):
    with pytest.warns(UserWarning, match="controller 'cats' was not trained with") as said:
        _searcher(cats, policy="mine", prm="own", calibration="none")
    assert len(said) == 1
    assert "policy 'mine', prm own 'own'" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _searcher(cats)
    spec = StrategySpec("cats", "mine")
    known = cats.origin.models
    assert foreign_models([spec, StrategySpec("beam")], known) == ()
    changed = {**known, "policy": {"name": "weak", "sha256": {"model.safetensors": "0"}}}
    (line,) = foreign_models([spec], changed)
    assert line.startswith("controller 'mine' was not trained with policy 'weak'")


def test_origins_treat_the_unknown_sensibly():
    unknown = Origin("own")
    assert unknown.warning({"policy": {"name": "weak"}}) is None
    assert "does not say which models" in str(unknown.warning({"policy": {"name": "mine"}}))
    assert unknown.calibrations_for("weak") == load_calibrations("weak")
    models = {"policy": {"name": "big"}, "prm label": {"name": "folder"}}
    own = Origin("own", models, (("label", IDENTITY),))
    # A PRM is known by its label in the training and by the name of its folder.
    assert dict(own.calibrations_for("big")) == {"label": IDENTITY, "folder": IDENTITY}
    assert own.calibrations_for("small") == ()
    with pytest.raises(BadInputError, match="damaged"):
        checkpoint.origin_of("own", {"calibration": {"exact": ["x"]}})
    with pytest.raises(BadInputError, match="damaged"):
        checkpoint.origin_of("own", {"models": 3})


def test_likelihood_and_votes_are_not_mixed_up():
    """Where a controller learned by likelihood, its calibration is of that kind."""
    spec = StrategySpec("cats", options=(("checkpoint", "cats-tokens"),))
    for policy in world.POLICY_NAMES:
        assert default_calibrations(spec, policy) == load_calibrations(f"{policy}-likelihood")
        assert default_calibrations(StrategySpec("beam"), policy) == load_calibrations(policy)
    assert default_calibrations(spec, "models/mine") == ()


def test_an_own_controller_is_loaded_by_its_folder(tmp_path):
    config = dataclasses.replace(learners.CATS, actor_hidden=(4,), critic_hidden=(4,))
    models = {"policy": {"name": "scripted"}, "prm a": {"name": "scripted-prm"}}
    info = {"models": models, "calibration": {"a": [0.1, 0.9, 0.2]}}
    folder = checkpoint.save(tmp_path / "own", untrained(config), config, info=info)
    method = cats_jax.load_controller(folder)
    models = {"policy": ScriptedPolicy(), "scorer": ScriptedPrm()}
    searcher = Searcher(strategy=method, num_candidates=4, **models)
    assert _calibration(searcher) == (0.1, 0.9, 0.2, 0.0, 0.0, 1.0)


def test_every_name_of_a_recipe_is_found_everywhere():
    options = {
        "cats_constant": {"action": {"num_extra": 4}},
        "cats_rule": {"threshold": 0.6, "sample": {"num_extra": 8}},
    }
    # A stopper is in a folder: tests/controllers/test_stopper.py.
    for name in FACTORIES.keys() - {"learned_stopping"}:
        assert isinstance(cats_jax.search_method(name, **options.get(name, {})), SearchMethod)
    needing = {"cats", "cats_rule", "learned_stopping"}
    assert set(search.methods.DEFAULTS) | needing == set(FACTORIES)
    for name, call in (("cats", "load_controller"), ("cats_rule", "search_method")):
        with pytest.raises(KeyError) as caught:
            search.methods.DEFAULTS[name]
        assert f"cats_jax.{call}('{name}'" in str(caught.value)
    with pytest.raises(KeyError) as caught:
        search.methods.DEFAULTS["bean"]
    assert "cats_rule" in str(caught.value)
    assert search.methods.DEFAULTS.get("cats") is None
    with pytest.raises(BadInputError, match=r"cats_jax.load_controller\(\), not the name 'cats'"):
        _searcher("cats")
    with pytest.raises(BadInputError, match="K=32 paths kept, but N=16"):
        _searcher(cats_jax.search_method("beam", beam_width=32))
    with pytest.raises(BadInputError, match="unknown option 'factr'"):
        cats_jax.search_method("beam", factr=2)


@pytest.mark.slow  # compiles a search with a controller
def test_python_solve_and_recipe_give_one_tree(tmp_path, capsys):
    """The lines of the README, `cats-jax solve`, and a recipe with the same settings."""
    section = README.read_text().split("## CATS from Python")[1]
    names: dict[str, Any] = {}
    block = re.search(r"```python\n(.*?)```", section, re.S)
    assert block is not None
    exec(block[1], names)
    result = names["result"]
    text = result.question.text
    assert f'cats-jax solve "{text}" --strategy cats`' in section
    capsys.readouterr()

    make_console().print(draw_search(result, 2))
    drawn = capsys.readouterr().out
    assert cli.run(["solve", text, "--strategy", "cats"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(drawn)
    assert describe_result(result).split("seconds:")[0] in printed

    file = tmp_path / "one.jsonl"
    row = {"id": result.question.id, "question": text, "answer": "194"}
    file.write_text(json.dumps(row) + "\n")
    content = {
        "name": "one",
        "prms": ["exact"],
        "calibration": "weak",
        "strategies": ["cats"],
        "num_candidates": [16],
        "questions": {"file": str(file)},
    }
    models = ModelFolders()
    evaluation = evaluate.prepare(parse_recipe(content), models)
    assert evaluation.notes == ()
    run, _ = evaluate.evaluate(evaluation, models, tmp_path / "run")
    (found,) = run.rows
    assert found.answer == result.answer
    assert _costs(found.ledger) == _costs(result.ledger)
    assert _tree(run.tree(found)) == _tree(result)


def _costs(ledger):
    return {key: value for key, value in ledger.as_dict().items() if "seconds" not in key}


def _tree(result):
    return [(c.parent, c.text, c.kept, c.invalid, c.answer) for c in result.candidates]
