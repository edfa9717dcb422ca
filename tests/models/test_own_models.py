"""Policies and PRMs of the user's own: named in a recipe as module:function."""

import dataclasses
import importlib
import sys

import pytest
import scripted

from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import StepGenerator, StepScorer
from cats_jax.specs.recipe import PolicySpec, PrmSpec, parse_recipe

_QUESTIONS = 3

_MODULE = """
import scripted

asked = []


def policy(spec):
    asked.append(spec)
    return scripted.ScriptedPolicy()


def prm(spec):
    asked.append(spec)
    return scripted.ScriptedPrm(noise=0.0)


def wrong(spec):
    return 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_models"
    sys.modules.pop("my_models", None)


def _recipe(**changes):
    content = {
        "name": "own",
        "strategies": ["best_of_n"],
        "num_candidates": [4],
        "questions": {"world": "test", "count": _QUESTIONS},
        "max_depth": 6,
    }
    return parse_recipe({**content, **changes})


def test_a_recipe_runs_them_like_the_same_models_from_elsewhere(tmp_path, module):
    policy = {"path": f"{module}:policy", "max_step_tokens": 99}
    prm = {"path": f"{module}:prm", "label": "mine", "dtype": "bfloat16"}
    recipe = _recipe(policy=policy, prms=[prm])
    questions = scripted.question_set(_QUESTIONS)

    def answers(models, recipe, folder):
        evaluation = evaluate.prepare(recipe, models, questions)
        run, _ = evaluate.evaluate(evaluation, models, tmp_path / folder)
        return run, sorted((row.question, row.answer, row.correct) for row in run.rows)

    run, own = answers(ModelFolders(), recipe, "own")
    assert len(own) == _QUESTIONS
    assert {row.prm for row in run.rows} == {"mine"}
    assert {row.ledger.policy_calls > 0 and row.ledger.prm_calls > 0 for row in run.rows} == {True}

    class Scripted(scripted.ScriptedModels):
        def policy(self, spec):
            return scripted.ScriptedPolicy()

        def prm(self, spec):
            return scripted.ScriptedPrm(noise=0.0)

    _, others = answers(Scripted(), recipe, "scripted")
    assert own == others
    # The manifest says by which functions; the functions see the recipe's settings.
    models = run.manifest["models"]
    assert models["policy"] == {"function": f"{module}:policy"}
    assert models["prm mine"] == {"function": f"{module}:prm"}
    asked = sys.modules[module].asked
    assert dataclasses.replace(recipe.policy, num_threads=1) in asked
    assert dataclasses.replace(recipe.prms[0], num_threads=1) in asked


def test_a_function_that_takes_no_spec_is_named(module, monkeypatch):
    monkeypatch.setattr(importlib.import_module(module), "wrong", lambda: None)
    with pytest.raises(BadInputError, match=r"wrong' is called with one argument, the PolicySpec"):
        ModelFolders().policy(PolicySpec(f"{module}:wrong"))


def test_what_a_function_returns_is_checked(module):
    with pytest.raises(BadInputError, match=r"wrong' returned a int, which is not a StepGenerator"):
        ModelFolders().policy(PolicySpec(f"{module}:wrong"))
    with pytest.raises(BadInputError, match=r"wrong' returned a int, which is not a StepScorer"):
        ModelFolders().prm(PrmSpec(f"{module}:wrong"))
    # A policy is no PRM, and a PRM no policy.
    with pytest.raises(BadInputError, match="ScriptedPrm, which is not a StepGenerator"):
        ModelFolders().policy(PolicySpec(f"{module}:prm"))
    with pytest.raises(BadInputError, match="ScriptedPolicy, which is not a StepScorer"):
        ModelFolders().prm(PrmSpec(f"{module}:policy"))
    assert isinstance(ModelFolders().policy(PolicySpec(f"{module}:policy")), StepGenerator)
    assert isinstance(ModelFolders().prm(PrmSpec(f"{module}:prm")), StepScorer)


@pytest.mark.parametrize("key", ["policy", "prms"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:policy", "cannot import the module 'no_such_module'.*PYTHONPATH"),
        ("my_models:no_such_function", "module 'my_models' has no function 'no_such_function'"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_function_that_is_not_there_is_noticed_before_the_run(key, name, message):
    recipe = _recipe(**{"prms": ["exact"], key: name if key == "policy" else [name]})
    with pytest.raises(BadInputError, match=message):
        evaluate.prepare(recipe, ModelFolders(), scripted.question_set(_QUESTIONS))
