"""From a data set to a controller that refuses its questions; settings of actions, all the way."""

import dataclasses
import json

import numpy as np
import pytest
from scripted import ScriptedModels, question_set
from untrained import untrained

import learners
import search
from cats_jax import cli
from cats_jax.bank.build import collect_bank
from cats_jax.bank.recipe import BankRecipe
from cats_jax.bank.trees import Allocation, SettingDraws
from cats_jax.controllers import checkpoint
from cats_jax.controllers.strategies import build_strategy
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.runs.folder import read_run
from cats_jax.specs.recipe import PolicySpec, PrmSpec, QuestionSpec, parse_recipe
from cats_jax.training import train
from cats_jax.training.ablations import load_ablations
from cats_jax.training.collect import collect_decisions
from cats_jax.training.comparison import PolicyResults, RivalComparison
from cats_jax.training.options import TrainingOptions
from cats_jax.training.questions import bank_questions

QUESTIONS = 6


@pytest.fixture
def files(tmp_path):
    """The training split, the 5000 test questions and MATH-500, each in its layout, in small.

    Four of the six training questions are test questions of MATH, none is one of MATH-500. Copies
    differ in white space.
    """
    rows = [(f"{i + 2} + {i + 3} + 4", str(2 * i + 9)) for i in range(QUESTIONS + 4)]
    taught, others = rows[:QUESTIONS], rows[QUESTIONS:]
    columns = {
        "math12k": [
            {"problem": f" {text}\n", "answer": answer, "unique_id": f"test/algebra/{i}0.json"}
            for i, (text, answer) in enumerate(taught)
        ],
        "math": [
            {"problem": text.replace(" ", "  "), "solution": rf"\boxed{{{answer}}}"}
            for text, answer in (*taught[:4], *others)
        ],
        "math500": [
            {"problem": text, "answer": answer, "unique_id": f"test/algebra/{i}1.json"}
            for i, (text, answer) in enumerate(others)
        ],
    }
    for name, table in columns.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in table))
    return tmp_path


def _prepare(files, controller, dataset):
    recipe = parse_recipe(
        {
            "name": "test",
            "policy": "policy",
            "prms": ["good"],
            "strategies": [{"name": "cats", "checkpoint": str(controller)}],
            "calibration": "none",
            "num_candidates": 4,
            "questions": {"dataset": dataset, "file": str(files / f"{dataset}.jsonl")},
        }
    )
    return evaluate.prepare(recipe, ScriptedModels())


def _check_refusals(files, controller):
    with pytest.raises(BadInputError, match=r"'cats' was trained on 4 of these .* as 'math/0'"):
        _prepare(files, controller, "math")
    with pytest.raises(BadInputError, match="was trained on 6 of these"):
        _prepare(files, controller, "math12k")
    assert _prepare(files, controller, "math500").cells


def _bank(files):
    recipe = BankRecipe(
        policy=PolicySpec("policy"),
        prms=(PrmSpec("good"),),
        questions=(QuestionSpec(dataset="math12k", file=str(files / "math12k.jsonl")),),
        allocation=Allocation(
            tuple(SettingDraws(search.Sampling(t), 4 if t else 1, 1) for t in (0.0, 0.6, 1.0)),
            1,
            4.0,
        ),
        max_depth=6,
    )
    return collect_bank(recipe, ScriptedModels(), files / "bank", grader=BoxedIntegerGrader())


def _trajectories(files, **options):
    recipe = parse_recipe(
        {
            "name": "trajectories",
            "policy": "policy",
            "prms": ["good"],
            "strategies": [{"name": "cats_random", **options}],
            "num_candidates": 4,
            "questions": {"dataset": "math12k", "file": str(files / "math12k.jsonl")},
            "max_depth": 6,
        }
    )
    folder = files / "trajectories"
    return collect_decisions(recipe, ScriptedModels(), folder, grader=BoxedIntegerGrader())


def test_a_controller_from_a_bank_is_not_asked_what_it_was_taught(files):
    config = learners.CATS
    validation = files / "elsewhere"
    validation.mkdir()
    (validation / "math12k.jsonl").write_text(
        json.dumps({"problem": "1 + 1 + 1", "answer": "3", "unique_id": "train/1"}) + "\n"
    )
    questions = bank_questions(
        _bank(files), validation=_bank(validation), sampling=config.cats.sampling
    )
    controller = checkpoint.save(
        files / "controller", untrained(config), config, info=questions.info
    )
    _check_refusals(files, controller)


TINY = (
    "actor_hidden=4",
    "critic_hidden=4",
    "num_episodes=2",
    "num_iterations=2",
    "num_candidates=4",
)


def _nothing_played(config, questions, actors, key, *, rivals):
    """In place of a thousand searches of each controller, of which nothing is looked at here."""
    zeros = np.zeros((1, len(config.prices), 1))
    figures = PolicyResults(zeros, zeros, zeros, zeros[..., 0], zeros[:, 0, 0], zeros[:, 0, 0])
    return RivalComparison(config.num_candidates, config.prices, figures, {})


@pytest.mark.slow
@pytest.mark.parametrize("config", ["offline", "paper"])
def test_a_controller_from_trajectories_is_not_asked_what_it_was_taught(files, config, monkeypatch):
    monkeypatch.setattr(train, "compare", _nothing_played)
    actions = "top-k" if config == "paper" else "temperature"
    folder = _trajectories(files, actions=actions)
    options = TrainingOptions(
        files / "out",
        config=config,
        actions=actions,
        trajectories=folder,
        settings=TINY,
        num_seeds=1,
        rivals=False,
    )
    paths = train.run(options, report=lambda line: None)
    info = checkpoint.read_info(paths[0])
    assert info["source"] == "trajectories"
    assert info["prms"] == ["good"]
    assert list(info["models"]) == ["policy", "prm good"]
    assert len(info["texts"]) == len(info["questions"]) == QUESTIONS
    assert checkpoint.load(paths[0]).config.actions == search.cats.ACTION_TABLES[actions]
    _check_refusals(files, paths[0])


def test_a_controller_that_knows_no_texts_has_a_note(monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint, "read_info", lambda path: {"questions": ["1"]})
    (note,) = evaluate._check_unseen("old", tmp_path, question_set(1))
    assert "'old' names its training questions by id only" in note
    monkeypatch.setattr(checkpoint, "read_info", lambda path: {})
    assert evaluate._check_unseen("old", tmp_path, question_set(1)) == ()


def test_trajectories_and_the_questions_to_compare_on_are_different(files):
    folder = _trajectories(files)
    with pytest.raises(
        BadInputError, match=r"trajectories and validation overlap: 1 are in both, such as 'math12k"
    ):
        train.run(
            TrainingOptions(
                files / "out",
                config="offline",
                bank=_bank(files),
                calibration="none",
                trajectories=folder,
            ),
            report=lambda line: None,
        )
    assert not (files / "out").exists()


# Top-k and top-p, from a bank to a live search


RECIPE = """
policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}
prms: [exact]
questions: {world: controller, count: 5}
max_depth: 6
actions: top-k
sampling:
"""


@pytest.mark.slow
def test_top_k_and_top_p_travel_from_the_bank_to_live_searches(tmp_path, monkeypatch):
    table = search.cats.ACTION_TABLES["top-k"]
    settings = [dataclasses.astuple(each) for each in table.sampling_settings()]
    lines = [
        f"  - {{temperature: {t}, top_p: {p}, top_k: {k}, root_draws: 4}}" for t, p, k in settings
    ]
    (tmp_path / "bank.yaml").write_text(RECIPE + "\n".join(lines) + "\n")
    asked = set()
    generate = HuggingFaceGenerator.generate

    def spy(self, requests):
        asked.update((one.temperature, one.top_p, one.top_k) for one in requests)
        return generate(self, requests)

    monkeypatch.setattr(HuggingFaceGenerator, "generate", spy)
    monkeypatch.setattr(train, "compare", _nothing_played)
    bank = tmp_path / "bank"
    assert cli.run(["bank", str(tmp_path / "bank.yaml"), "--output", str(bank)]) == 0
    assert asked == set(settings)
    asked.clear()

    arguments = ["--config", "paper", "--actions", "top-k", "--bank", str(bank), "--no-rivals"]
    arguments += ["--num-seeds", "1", "--output", str(tmp_path / "train"), "--set", *TINY]
    assert cli.run(["train", *arguments]) == 0
    controller = tmp_path / "train" / "seed-0"
    assert checkpoint.load(controller).config.actions == table

    recipe = tmp_path / "live.yaml"
    content = {
        "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
        "prms": ["exact"],
        "strategies": [{"name": "cats", "checkpoint": str(controller), "mode": "sample"}],
        "num_candidates": [16],
        "questions": {"world": "test", "count": 12},
        "max_depth": 6,
    }
    recipe.write_text(json.dumps(content))
    folder = tmp_path / "run"
    assert cli.run(["evaluate", str(recipe), "--output", str(folder)]) == 0
    taken = {tuple(action[2:5]) for row in read_run(folder).rows for action in row.actions}
    # A controller that has hardly learnt draws every setting, in float32, and nothing else.
    for found in (asked, taken):
        assert {tuple(round(value, 4) for value in setting) for setting in found} == set(settings)


def test_a_rule_and_a_constant_action_take_a_table_by_name():
    sample = {"num_extra": 4, "num_retain": 2, "temperature": 0.6, "top_p": 0.9, "top_k": 20}
    content = {
        "name": "named",
        "prms": ["exact"],
        "calibration": "none",
        "num_candidates": 4,
        "questions": {"world": "test", "count": 1},
        "strategies": [
            {"name": "cats_random", "actions": "top-k"},
            {"name": "cats_constant", "actions": "top-k", "action": sample},
            {"name": "cats_rule", "actions": "top-k", "threshold": 0.5, "sample": sample},
            {"name": "cats_random", "label": "paper", "config": "paper"},
        ],
    }
    recipe = parse_recipe(content)
    built = [build_strategy(spec) for spec in recipe.strategies]
    tables = [method.strategy.config.actions for method in built]
    assert tables == [
        search.cats.ACTION_TABLES[name] for name in ("top-k", "top-k", "top-k", "top-p")
    ]
    row = search.cats.ACTION_TABLES["top-k"].rows.index((4, 2, 0.6, 0.9, 20))
    assert int(built[1].params) == int(built[2].params.sample) == row
    assert search.cats.ACTION_TABLES["top-k"].rows[int(built[2].params.stop)][:2] == (0, 1)
    for wrong, message in (
        ({"actions": "paper"}, "unknown action table 'paper': choose one of temperature"),
        ({"actions": "temperature"}, "not in the action table: choose num_extra, .* by 'actions'"),
    ):
        content["strategies"] = [{"name": "cats_constant", "action": sample, **wrong}]
        with pytest.raises(BadInputError, match=message):
            build_strategy(parse_recipe(content).strategies[0])


def test_a_training_takes_a_table_by_name():
    for name in ("paper", "cats", "offline"):
        config = train.configure(name, actions="top-k", settings=("num_episodes=8",))
        assert config.cats.actions == search.cats.ACTION_TABLES["top-k"]
        assert config.num_episodes == 8
    assert train.configure("paper", actions="temperature") == train.CONFIGS["paper-bank"]
    row = load_ablations()["sparsity"][0]
    assert row.configuration().cats.actions == search.cats.ACTION_TABLES["temperature"]
    assert row.configuration(actions="top-k").cats.actions == search.cats.ACTION_TABLES["top-k"]
    with pytest.raises(BadInputError, match="unknown action table 'best': choose one of"):
        train.configure("paper", actions="best")
