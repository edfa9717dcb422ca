"""Runs from Python: what `cats_jax.evaluate` returns and writes is what the command does."""

import json
import shutil
import sys
from typing import Any

import numpy
import pandas
import pytest
import scripted
import yaml

import cats_jax
from cats_jax import cli
from cats_jax.batch.planning import plan_run
from cats_jax.batch.recipes import Changes, read_recipe
from cats_jax.errors import BadInputError
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.evaluate import prepare
from cats_jax.runs.folder import RunWriter

RECIPE = {
    "name": "few",
    "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
    "prms": ["exact"],
    "strategies": ["greedy", {"name": "beam", "label": "wide"}],
    "num_candidates": [2, 4],
    "questions": {"world": "validation", "count": 2},
    "max_depth": 6,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(output of the command, its folder, the run from Python) of one recipe of the world."""
    folder = tmp_path_factory.mktemp("runs")
    file = folder / "few.yaml"
    file.write_text(yaml.safe_dump(RECIPE))
    by_command = folder / "command"
    assert cli.run(["evaluate", str(file), "--output", str(by_command)]) == 0
    return file, by_command, cats_jax.evaluate(RECIPE, folder / "python")


def _lines(folder):
    """The rows of a results file without what differs between two runs."""
    lines = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    rows = {row["key"]: row for row in lines}
    return {
        key: {name: row[name] for name in row if not name.endswith("seconds") and name != "tree"}
        for key, row in rows.items()
    }


def test_the_rows_are_those_of_the_command(runs):
    _, by_command, run = runs
    assert _lines(run.folder) == _lines(by_command)
    table = run.rows()
    assert len(table) == 2 * 3
    for row in table.astype(object).where(table.notna(), None).to_dict("records"):
        expected = _lines(by_command)[row["key"]]
        found = {name: row[name] for name in row if not name.endswith("seconds")}
        assert json.loads(json.dumps(found)) == expected
    assert (table["seconds"] > 0).all()
    assert table.groupby("strategy")["generated"].sum()["wide"] == sum(
        row["generated"] for row in _lines(by_command).values() if row["strategy"] == "wide"
    )


def test_the_folder_is_that_of_the_command(runs):
    _, by_command, run = runs

    def names(folder):
        found = {path.relative_to(folder) for path in folder.rglob("*")}
        return {path for path in found if "tensorboard" not in path.parts[:1]}

    assert names(run.folder) == names(by_command)
    assert repr(run) == f"Run({str(run.folder)!r}: 6 rows)"
    other = cats_jax.load_run(by_command)
    for entry in ("config", "models", "questions"):
        assert run.manifest[entry] == other.manifest[entry]


def test_the_report_is_what_is_printed(runs, capsys, monkeypatch):
    _, by_command, _ = runs
    run = cats_jax.load_run(by_command)
    assert cli.run(["report", str(by_command)]) == 0
    printed, report = capsys.readouterr().out, run.report()
    assert printed.startswith(report)
    assert all(line.startswith("figure: ") for line in printed[len(report) :].splitlines())
    assert "wide" in report
    monkeypatch.setattr("cats_jax.reporting.run_report.write_overview", lambda run: [])
    assert cli.run(["report", str(by_command), "--cost", "flops"]) == 0
    assert capsys.readouterr().out.startswith(run.report("flops"))
    with pytest.raises(BadInputError, match=r"cost='time': must be 'tokens' or 'flops'"):
        run.report("time")  # pyright: ignore[reportArgumentType]


def test_a_tree_is_that_of_its_row(runs):
    _, by_command, run = runs
    other = cats_jax.load_run(by_command)
    for row in other.stored.rows:
        found = run.tree(row.question, row.strategy, row.num_candidates, row.prm, row.seed)
        expected = other.stored.tree(row)
        assert found.candidates == expected.candidates
        assert (found.paths, found.answer) == (expected.paths, expected.answer)
    # What a run has once need not be named.
    question = run.stored.rows[0].question
    assert run.tree(question, "greedy").candidates == run.tree(question, "greedy", 1).candidates


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), r"--question 'nothing' is not in the run: known are "),
        (("w-",), r"is the beginning of 2 ids"),
        ((3,), r"question=3: must be a text"),
        ((None, "wide"), r"has 2 such rows, as \(wide, N=2, exact, seed 0\) and \(wide, N=4"),
        ((None, "wid"), r"--strategies: 'wid' is not in the run: did you mean 'wide'"),
        ((None, "wide", 4, "exact", 7), "has no row of such a strategy, N, PRM and seed"),
    ],
)
def test_which_tree_must_be_said(runs, arguments, message):
    _, _, run = runs
    questions = [row.question for row in run.stored.rows]
    first, *others = arguments
    with pytest.raises(BadInputError, match=message):
        run.tree(first or questions[0], *others)


def test_a_file_and_a_mapping_are_the_same(runs):
    file, _, _ = runs
    recipe = read_recipe(RECIPE)
    assert read_recipe(file) == read_recipe(str(file)) == recipe
    changes = Changes(("wide",), (8,), ("exact",), (3, 4), 5, 7)
    changed = read_recipe(RECIPE, changes)
    assert read_recipe(file, changes) == changed
    assert [spec.label for spec in changed.strategies] == ["wide"]
    assert (changed.num_candidates, changed.seeds, changed.in_flight) == ((8,), (3, 4), 7)
    assert [spec.count for spec in changed.questions] == [5]
    assert read_recipe({**RECIPE, "strategies": ("greedy", "wide")}).strategies[0].name == "greedy"


def test_an_interrupted_run_resumes_by_command_or_by_call(runs, tmp_path, monkeypatch):
    file, by_command, run = runs
    for name in ("reporting.run_report.show_run", "batch.api.write_overview"):
        monkeypatch.setattr(f"cats_jax.{name}", lambda *_: None)  # figures take seconds
    whole = _lines(by_command)
    folder = shutil.copytree(run.folder, tmp_path / "resumed")
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    assert len(cats_jax.load_run(folder).rows()) == 3
    assert cli.run(["evaluate", str(file), "--output", str(folder)]) == 0
    assert _lines(folder) == whole
    (folder / "results.jsonl").write_text("".join(lines[:5]))
    assert len(cats_jax.evaluate(file, folder).rows()) == 6
    assert _lines(folder) == whole
    with pytest.raises(BadInputError, match=r"models\.policy"):
        cats_jax.evaluate(RECIPE, folder, models=scripted.ScriptedModels())


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"strategies": [{"name": "beam", "expansion": numpy.int64(2)}]}, {}, "of the type int64"),
        ({"num_candidate": [4]}, {}, r"recipe: unknown key 'num_candidate'"),
        ({"name": None}, {}, r"name=None: must be a text"),
        ({"strategies": ["os:getcwd"]}, {"functions": False}, "--no-functions refuses code"),
        ({}, {"strategies": "narrow"}, r"--strategies: 'narrow' is not in the recipe"),
        ({}, {"strategies": [["wide"]]}, r"--strategies: \['wide'\] is not in the recipe"),
        ({}, {"seeds": 1.5}, r"seeds=1.5: must be a list of values"),
        ({}, {"ray": 3}, r"ray=3: must be the address of a cluster as a text, or 'local'"),
        (
            {},
            {"ray": "local", "ray_workers": 0},
            r"ray_workers=0: must be an integer of at least 1",
        ),
        ({}, {"bank": 3}, r"bank=3: must be a name or a path"),
        ({}, {"models": "folder"}, r"models='folder': must be an object with the methods finger"),
        ({}, {"models": {"policy": "weak"}}, r"fingerprint, footprint, check, policy, prm;"),
        ({}, {"ray_workers": 2}, r"--ray-workers 2: this process searches"),
        ({}, {"bank": "nothing", "ray": "local"}, r"--bank asks no model: give it without --ray"),
        ({}, {"ray": "127.0.0.1:1"}, r"--ray 127\.0\.0\.1:1: no cluster answers there \(.*refused"),
    ],
)
def test_bad_input_is_refused_before_a_folder_is_made(tmp_path, changes, options, message):
    with pytest.raises(BadInputError, match=message) as refused:
        cats_jax.evaluate({**RECIPE, **changes}, tmp_path / "run", **options)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_integers_may_be_those_of_numpy(monkeypatch):
    monkeypatch.setattr("cats_jax.batch.api.plan_run", lambda recipe, *_, **__: recipe)
    monkeypatch.setattr("cats_jax.batch.api.run_plan", lambda plan, **_: (plan, None))
    monkeypatch.setattr("cats_jax.batch.api.write_overview", lambda run: None)
    two = numpy.int64(2)
    numbers = {"num_candidates": two, "questions": two, "in_flight": two, "seeds": numpy.arange(3)}
    planned: Any = cats_jax.evaluate(RECIPE, strategies="wide", **numbers).stored
    changes = Changes(("wide",), (2,), None, (0, 1, 2), 2, 2)
    assert planned == read_recipe(RECIPE, changes)
    assert type(planned.num_candidates[0]) is int


def test_other_bad_recipes(tmp_path):
    with pytest.raises(BadInputError, match=r"recipe=3: must be the path of a YAML file"):
        cats_jax.evaluate(3, tmp_path)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadInputError, match="key 'name' is missing: add it"):
        cats_jax.evaluate({key: RECIPE[key] for key in RECIPE if key != "name"}, tmp_path)
    with pytest.raises(BadInputError, match=r"no such recipe|does not exist"):
        cats_jax.evaluate(tmp_path / "no.yaml")
    with pytest.raises(BadInputError, match="is no run folder"):
        cats_jax.load_run(tmp_path)
    for value in (3, None, b"runs", ["runs"], ""):
        with pytest.raises(BadInputError, match=r"folder=.*: must be a name or a path"):
            cats_jax.load_run(value)


def test_a_folder_with_rows_may_be_refused(runs):
    file, by_command, _ = runs
    with pytest.raises(BadInputError, match="has results already"):
        cats_jax.evaluate(file, by_command, resume=False)


def test_without_pandas_the_way_out_is_named(runs, monkeypatch):
    _, _, run = runs
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInputError, match=r"pandas is not installed: .*cats-jax\[eval\]"):
        run.rows()


def test_a_run_without_rows(tmp_path):
    recipe = read_recipe(RECIPE)
    plan = plan_run(recipe, scripted.ScriptedModels(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with RunWriter(plan.folder, plan.evaluation.manifest):
        pass
    run = cats_jax.load_run(plan.folder)
    table = run.rows()
    assert isinstance(table, pandas.DataFrame)
    assert table.empty
    assert {"question", "correct", "generated", "seconds"} <= set(table.columns)
    with pytest.raises(BadInputError, match="has no rows yet"):
        run.report()
    # There is nothing to resume, so that nothing is refused.
    assert plan_run(recipe, scripted.ScriptedModels(), plan.folder, resume=False).runner


def test_the_grid_of_a_plan_is_that_of_its_resolved_recipe():
    """It is built once, of the recipe as it was read."""
    recipe = read_recipe({**RECIPE, "prms": ["exact", "strong-errors"], "seeds": [0, 1]})
    evaluation = prepare(recipe, scripted.ScriptedModels())
    again = grid(evaluation.recipe)
    assert evaluation.recipe != recipe
    assert [cell.title for cell in evaluation.cells] == [cell.title for cell in again]
    for cell, other in zip(evaluation.cells, again, strict=True):
        assert (cell.spec, cell.prm, cell.pool) == (other.spec, other.prm, other.pool)
        assert (cell.calibration, cell.price) == (other.calibration, other.price)
        assert any(cell.spec is spec for spec in evaluation.recipe.strategies)


def test_the_models_of_a_local_run_are_checked_once_in_memory(tmp_path, monkeypatch):
    asked = []

    class Counting(scripted.ScriptedModels):
        def footprint(self, spec, work):
            asked.append(spec.name)
            return None

    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "1+2", "answer": "3"}\n')
    recipe = {**RECIPE, "questions": {"file": str(tmp_path / "q.jsonl")}, "num_candidates": [2]}
    monkeypatch.setattr("cats_jax.batch.api.write_overview", lambda run: [])
    cats_jax.evaluate(recipe, tmp_path / "run", models=Counting())
    assert asked == ["weak", "exact"]
