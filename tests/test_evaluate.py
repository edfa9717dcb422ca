"""Evaluation on a scripted policy and PRM: the grid, grading, resuming, and what a search sees."""

import dataclasses
import importlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

import search
from cats_jax import config, evaluate, report, runs
from cats_jax.datasets import read_jsonl
from cats_jax.errors import BadInputError
from cats_jax.strategies import build_strategy

# Behind everything else, so that nothing here can stand before a package of the project.
sys.path.append(str(pathlib.Path(__file__).parent))
scripted = importlib.import_module("scripted")

_QUESTIONS = 6


def _recipe(**changes):
    content = {
        "name": "sums",
        "strategies": ["greedy", "beam", "cats_random"],
        "num_candidates": [4],
        "prms": ["good"],
        "questions": {"world": "test", "count": _QUESTIONS},
        "max_depth": 6,
        # One slot in each of the driver's two cohorts, however many questions are left: the same
        # shapes, so nothing compiles again after an interruption.
        "in_flight": 2,
    }
    return config.parse_recipe({**content, **changes})


def _evaluate(folder, *, recipe=None, questions=None, models=None, observer=None):
    models = models or scripted.ScriptedModels()
    questions = questions or scripted.question_set(_QUESTIONS)
    evaluation = evaluate.prepare(recipe or _recipe(), models, questions)
    return evaluate.evaluate(evaluation, models, folder, observer=observer)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run that the tests below look at and must not change."""
    return _evaluate(tmp_path_factory.mktemp("run"))


def _same(run):
    """What must be the same in two runs: all but the seconds and the places in the file."""
    rows = {}
    for row in run.rows:
        tree = run.tree(row)
        ledger = {n: v for n, v in row.ledger.as_dict().items() if not n.endswith("_seconds")}
        content = dataclasses.asdict(dataclasses.replace(row, tree=None))
        rows[row.key] = ({**content, "ledger": ledger}, tree.candidates, tree.decisions, tree.paths)
    return rows


# The grid


def test_cells_that_would_repeat_another_are_run_once():
    recipe = _recipe(
        strategies=["greedy", "majority", "beam"],
        num_candidates=[4, 16],
        prms=["good", "bad"],
        seeds=[0, 1],
    )
    evaluation = evaluate.prepare(
        recipe, scripted.ScriptedModels(), scripted.question_set(_QUESTIONS)
    )
    titles = [cell.title for cell in evaluation.cells]
    assert [title for title in titles if "greedy" in title] == ["greedy N=1 seed 0"]
    assert len([title for title in titles if "majority" in title]) == 4
    assert len([title for title in titles if "beam" in title]) == 8
    assert len(set(titles)) == len(titles)
    # PRMs one after another: only one is in memory.
    assert [cell.prm.label for cell in evaluation.cells if cell.prm] == ["good"] * 4 + ["bad"] * 4


def test_bounds_hold(finished):
    run, _ = finished
    recipe = _recipe()
    evaluation = evaluate.prepare(
        recipe, scripted.ScriptedModels(), scripted.question_set(_QUESTIONS)
    )
    for cell, rows, candidates, tokens in evaluation.bounds():
        ledgers = [row.ledger for row in run.rows if row.strategy == cell.spec.label]
        assert rows == len(ledgers) == _QUESTIONS
        assert sum(ledger.candidates for ledger in ledgers) <= candidates
        assert sum(ledger.generated for ledger in ledgers) <= tokens


# Rows


def test_every_question_has_one_row_in_every_cell(finished):
    run, times = finished
    assert len(run.rows) == len({row.key for row in run.rows}) == 3 * _QUESTIONS
    assert {row.key for row in run.rows if row.strategy == "beam"} == {
        f"beam|4|good|0|q{i}" for i in range(_QUESTIONS)
    }
    for row in run.rows:
        assert row.correct == (row.answer == row.gold)
        assert row.meta == {"level": 1}
        assert len(run.tree(row).candidates) == row.ledger.candidates
        assert bool(row.actions) == (row.strategy == "cats_random")
        decisions = run.tree(row).decisions
        assert sum(action[-1] for action in row.actions) == len(decisions)
    assert times.total >= times.searching + times.recording
    assert times.writing > 0
    assert any(row.correct for row in run.rows)


def test_manifest_says_what_was_run(finished):
    run, _ = finished
    manifest = run.manifest
    assert manifest["models"] == {"policy": {"name": "weak"}, "prm good": {"name": "good"}}
    assert manifest["questions"]["count"] == _QUESTIONS
    assert manifest["config"]["strategies"][1]["name"] == "beam"
    assert manifest["seeds"] == [0]


def test_trees_are_written_up_to_64_candidates_unless_told():
    recipe = _recipe(num_candidates=[64, 65])
    assert recipe.writes_trees(64)
    assert not recipe.writes_trees(65)
    assert _recipe(trees=True).writes_trees(256)
    assert not _recipe(trees=False).writes_trees(4)


def test_a_broken_prm_fails_its_question_and_no_other(tmp_path, finished):
    models = scripted.ScriptedModels(breaks_on="q2")
    recipe = _recipe(strategies=["beam"])
    run, _ = _evaluate(tmp_path, recipe=recipe, models=models)
    failed = {row.question: row for row in run.rows if row.status == "failed"}
    assert set(failed) == {"q2"}
    assert not failed["q2"].correct
    assert "q2" in failed["q2"].reason
    accuracy = report.groups(run.rows)[0].accuracy()
    assert accuracy.value == sum(row.correct for row in run.rows) / _QUESTIONS
    whole = {row.key: row.answer for row in finished[0].rows}
    assert all(row.answer == whole[row.key] for row in run.rows if row.question != "q2")


# No ground truth inside


def test_replacing_every_gold_answer_changes_no_tree(tmp_path, finished):
    questions = scripted.question_set(_QUESTIONS)
    replaced = dataclasses.replace(questions, answers=dict.fromkeys(questions.answers, "-1"))
    run, _ = _evaluate(tmp_path, questions=replaced)
    assert not any(row.correct for row in run.rows)
    ours, theirs = _same(run), _same(finished[0])
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key][1:] == theirs[key][1:]
        assert ours[key][0]["answer"] == theirs[key][0]["answer"]


# Resuming


class _Interrupt:
    """An observer that stops the evaluation after some rows."""

    def __init__(self, after):
        self.after = after
        self.begun = []

    def begin_cell(self, title, total, rows):
        self.begun.append((title, total, len(rows)))

    def row(self, row):
        self.after -= 1
        if self.after == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 9])
def test_an_interrupted_run_ends_in_the_same_rows(tmp_path, finished, after):
    with pytest.raises(KeyboardInterrupt):
        _evaluate(tmp_path, observer=_Interrupt(after))
    done = len(runs.read_run(tmp_path).rows)
    assert after <= done < 3 * _QUESTIONS
    observer = _Interrupt(0)
    run, _ = _evaluate(tmp_path, observer=observer)
    assert sum(before for *_, before in observer.begun) == done
    assert _same(run) == _same(finished[0])


def test_a_finished_run_loads_no_model(tmp_path, finished):
    models = scripted.ScriptedModels()
    run, _ = _evaluate(finished[0].folder, models=models)
    assert models.loaded == []
    assert len(run.rows) == 3 * _QUESTIONS


def test_going_on_with_other_settings_is_refused(finished):
    with pytest.raises(BadInputError, match=r"config\.max_depth: 6 -> 7"):
        _evaluate(finished[0].folder, recipe=_recipe(max_depth=7))
    questions = scripted.question_set(_QUESTIONS)
    questions = dataclasses.replace(questions, answers=dict.fromkeys(questions.answers, "1"))
    with pytest.raises(BadInputError, match=r"questions\.answers_sha256"):
        _evaluate(finished[0].folder, questions=questions)


def test_questions_in_flight_may_change(finished):
    _evaluate(finished[0].folder, recipe=_recipe(in_flight=64))


_CHILD = """
import sys
sys.path.append(sys.argv[1])
import scripted
from cats_jax import config, evaluate
recipe = config.parse_recipe({"name": "sums", "strategies": ["greedy", "beam", "cats_random"],
    "num_candidates": [4], "prms": ["good"], "questions": {"world": "test", "count": 6},
    "max_depth": 6, "in_flight": 2})
models = scripted.ScriptedModels(delay=0.01)
evaluation = evaluate.prepare(recipe, models, scripted.question_set(6))
print("ready", flush=True)
evaluate.evaluate(evaluation, models, sys.argv[2])
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment_a_run_ends_in_the_same_rows(tmp_path, finished):
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla")}
    env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}
    folder = tmp_path / "run"
    rng = random.Random(0)
    here = str(pathlib.Path(__file__).parent)
    seen = 0
    kills = 0
    code = None
    for attempt in range(60):
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, here, str(folder)],
            env=env,
            cwd=pathlib.Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if attempt < 50:
            _kill_during_writing(child, folder, rng)
        output = child.stdout.read()
        code = child.wait()
        child.stdout.close()
        if code == 0:
            assert output == "done\n"
            break
        assert code == -signal.SIGKILL
        kills += 1
        rows = len(runs.read_run(folder).rows) if (folder / runs.MANIFEST).exists() else 0
        assert rows >= seen
        seen = rows
    assert code == 0
    assert kills >= 5
    assert _same(runs.read_run(folder)) == _same(finished[0])


def _kill_during_writing(child, folder, rng):
    """Wait until the files grow, then a moment of random length, and kill."""
    results = folder / runs.RESULTS
    before = results.stat().st_size if results.exists() else 0
    wanted = rng.choice(["rows", "trees", "early"])
    path = folder / (runs.TREES if wanted == "trees" else runs.RESULTS)
    deadline = time.monotonic() + 120
    if wanted == "early":
        time.sleep(rng.random() * 3)
    else:
        size = path.stat().st_size if wanted == "trees" and path.exists() else before
        while time.monotonic() < deadline and child.poll() is None:
            if path.exists() and path.stat().st_size != size:
                break
        time.sleep(rng.random() * 0.03)
    child.kill()


# Questions and recipes


def test_jsonl_questions(tmp_path):
    path = tmp_path / "q.jsonl"
    rows = [
        {"id": "a", "question": "1+1", "answer": 2, "level": 3, "solution": "x" * 1000},
        {"id": 7, "question": "2+2", "answer": "4"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    questions = read_jsonl(path)
    assert [(q.id, q.text) for q in questions.questions] == [("a", "1+1"), ("7", "2+2")]
    assert questions.answers == {"a": "2", "7": "4"}
    assert questions.meta["a"] == {"level": 3}
    assert len(read_jsonl(path, 1).questions) == 1


def test_options_and_labels_of_strategies():
    beam, _ = build_strategy(config.parse_strategy({"name": "beam", "factor": 8, "width": 3}))
    assert beam.width(64) == 3
    again, _ = build_strategy(config.parse_strategy({"name": "beam", "factor": 8, "width": 3}))
    assert again == beam  # equal, so that nothing is compiled twice
    spec = config.parse_strategy(
        {"name": "cats_constant", "label": "few", "action": {"num_extra": 4}, "num_base": 3}
    )
    _, index = build_strategy(spec)
    assert search.CATS.actions.rows[int(index)][:2] == (4, 1)
    weighted, _ = build_strategy(config.parse_strategy("best_of_n_weighted"), "last")
    assert weighted.name == "best_of_n_weighted"
    assert weighted.aggregation == search.AGGREGATIONS["last"]
