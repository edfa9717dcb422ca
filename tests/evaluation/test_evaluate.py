"""Evaluation on a scripted policy and PRM: the grid, grading, resuming, and what a search sees."""

import dataclasses
import errno
import importlib
import io
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import types

import forked
import made_runs
import pytest
import scripted
from rich.console import Console
from scipy import stats
from untrained import untrained

import learners
import search
from cats_jax.commands import progress, time_left
from cats_jax.controllers import checkpoint
from cats_jax.controllers.strategies import build_strategy
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate, tracking
from cats_jax.reporting import groups as grouping
from cats_jax.reporting import run_tables, statistics
from cats_jax.runs.folder import MANIFEST, RESULTS, TREES, RunWriter, read_run
from cats_jax.specs.recipe import parse_recipe, parse_strategy

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"

_QUESTIONS = 6


def _recipe(**changes):
    content = {
        "name": "sums",
        "strategies": ["greedy", "beam", "cats_random"],
        "num_candidates": [4],
        "prms": ["good"],
        "questions": {"world": "test", "count": _QUESTIONS},
        "max_depth": 6,
        # One slot, however many questions are left: the same shapes, so nothing compiles again
        # after an interruption.
        "in_flight": 1,
    }
    return parse_recipe({**content, **changes})


def _evaluate(folder, *, recipe=None, questions=None, models=None, observer=None):
    models = models or scripted.ScriptedModels()
    questions = questions or scripted.question_set(_QUESTIONS)
    evaluation = evaluate.prepare(recipe or _recipe(), models, questions)
    observers = () if observer is None else (observer,)
    return evaluate.evaluate(evaluation, models, folder, observers=observers)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run that the tests below look at and must not change."""
    return _evaluate(tmp_path_factory.mktemp("run"))


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


def test_a_controller_is_not_tested_on_what_it_was_trained_on():
    def prepare(split, **options):
        recipe = _recipe(
            strategies=["greedy", "cats"],
            questions={"world": split, "count": 3},
            calibration="none",
        )
        return evaluate.prepare(recipe, scripted.ScriptedModels(), **options)

    with pytest.raises(BadInputError, match=r"controller 'cats' was trained on 3 of these quest"):
        prepare("controller")
    assert prepare("controller", seen=True).cells
    assert prepare("test").cells


def test_bounds_hold(finished):
    run, _ = finished
    recipe = _recipe()
    evaluation = evaluate.prepare(
        recipe, scripted.ScriptedModels(), scripted.question_set(_QUESTIONS)
    )
    bounds = evaluate.cost_bounds(evaluation.recipe, evaluation.cells, _QUESTIONS)
    for cell, rows, candidates, tokens, prm_tokens in bounds:
        ledgers = [row.ledger for row in run.rows if row.strategy == cell.spec.label]
        assert rows == len(ledgers) == _QUESTIONS
        assert sum(ledger.candidates for ledger in ledgers) <= candidates
        assert sum(ledger.generated for ledger in ledgers) <= tokens
        assert sum(ledger.prm_computed for ledger in ledgers) <= prm_tokens
        assert (prm_tokens == 0) == (cell.prm is None)


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
    accuracy = grouping.groups(run.rows)[0].accuracy()
    assert accuracy.value == sum(row.correct for row in run.rows) / _QUESTIONS
    whole = {row.key: row.answer for row in finished[0].rows}
    assert all(row.answer == whole[row.key] for row in run.rows if row.question != "q2")


# Mathematics, tolerances, several data sets


def _math_set(tmp_path, name, golds):
    questions = scripted.question_set(len(golds)).questions
    rows = [
        {"id": f"{name}{i}", "question": question.text, "answer": gold}
        for i, (question, gold) in enumerate(zip(questions, golds, strict=True))
    ]
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"file": str(path), "label": name}


def test_answers_of_files_are_graded_as_mathematics(tmp_path):
    """However the gold answers are written."""
    sets = [
        _math_set(tmp_path, "one", [r"$\frac{18}{2}$", "x = 26.0", r"37\text{ cm}"]),
        _math_set(tmp_path, "two", ["9.5", r"\{26\}"]),
    ]
    recipe = _recipe(strategies=["greedy"], prms=[], questions=sets)
    models = scripted.ScriptedModels()
    evaluation = evaluate.prepare(recipe, models)
    run, _ = evaluate.evaluate(evaluation, models, tmp_path / "run")
    verdicts = {row.question: row.correct for row in run.rows}
    right = {row.question: row.answer for row in run.rows}
    assert right == {"one0": "9", "one1": "26", "one2": "37", "two0": "9", "two1": "26"}
    assert verdicts == {"one0": True, "one1": True, "one2": True, "two0": False, "two1": True}
    found = grouping.groups(run.rows)
    assert [(group.dataset, len(group.rows)) for group in found] == [("one", 3), ("two", 2)]
    assert list(grouping.by_dataset(found)) == ["one", "two"]
    assert run.manifest["versions"]["math-verify"]


# Seeds


def _group(correct):
    """A group of rows; `correct[seed][question]`, None for a row that is not there."""
    rows = [
        made_runs.row(question=f"q{number}", seed=seed, correct=right)
        for seed, found in enumerate(correct)
        for number, right in enumerate(found)
        if right is not None
    ]
    return grouping.groups(rows)[0]


def test_both_intervals_of_several_seeds():
    # Four questions: always, never, mostly and rarely right. Accuracies .5, .5, .75, .25.
    group = _group([
        [True, False, True, False],
        [True, False, True, False],
        [True, False, True, True],
        [True, False, False, False],
    ])  # fmt: skip
    over_seeds = group.accuracy_over_seeds()
    assert over_seeds is not None
    expected = stats.ttest_1samp([0.5, 0.5, 0.75, 0.25], 0.0).confidence_interval(0.95)
    assert over_seeds.value == group.accuracy().value == 0.5
    assert (over_seeds.low, over_seeds.high) == pytest.approx((expected.low, expected.high))
    # Over questions: the means are 1, 0, .75 and .25.
    assert group.accuracy() == statistics.bootstrap_mean([1.0, 0.0, 0.75, 0.25])


def test_seeds_do_not_narrow_the_interval_over_questions():
    few, many = (_group([[True, False, True, False] * 5] * seeds) for seeds in (2, 50))
    assert few.accuracy() == many.accuracy()
    assert few.accuracy_over_seeds() is many.accuracy_over_seeds() is None  # they do not vary


def test_a_seed_without_all_its_questions_is_left_out_of_the_interval_over_seeds():
    complete = [[True, False], [False, False], [True, True]]
    group, cut = _group(complete), _group([*complete, [True, None]])
    assert cut.accuracy_over_seeds() == group.accuracy_over_seeds()
    interval = group.accuracy_over_seeds()
    assert interval is not None
    assert (interval.low, interval.high) == (0.0, 1.0)  # Student's would be beyond
    assert _group([[True, False], [True, None]]).accuracy_over_seeds() is None
    assert _group([[True, False]]).accuracy_over_seeds() is None


def test_tables_have_a_column_for_seeds_where_there_are_several():
    def table(group):
        sheet = run_tables.accuracy_sheet([group], "title")
        return [column.title for column in sheet.columns], *sheet.rows()

    header, _ = table(_group([[True, False]]))
    assert "95 % over seeds" not in header
    header, row = table(_group([[True, False, True, False], [True, True, True, False]]))
    # Accuracies .5 and .75: .625 -+ 12.706 * .125, cut off.
    assert row[header.index("95 % over seeds")] == "0.000-1.000"


def test_a_tolerance_is_kept_with_its_row(tmp_path):
    questions = scripted.question_set(1)
    questions = dataclasses.replace(questions, answers={"q0": "9.05"}, tolerances={"q0": 0.1})
    recipe = _recipe(strategies=["greedy"], prms=[], questions={"file": "x.jsonl"})
    run, _ = _evaluate(tmp_path, recipe=recipe, questions=questions)
    assert [(row.answer, row.correct, row.tolerance) for row in run.rows] == [("9", True, 0.1)]


def test_the_ceiling_is_a_perfect_choice(tmp_path):
    recipe = _recipe(strategies=["majority"], prms=[], questions={"world": "test", "count": 20})
    run, _ = _evaluate(tmp_path, recipe=recipe, questions=scripted.question_set(20))
    for row in run.rows:
        answers = {path.answer for path in run.tree(row).paths}
        assert row.covered == (row.gold in answers)
        assert row.covered >= row.correct
    assert any(row.covered and not row.correct for row in run.rows)


def test_math_verify_missing_is_said_before_work_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    recipe = _recipe(questions=_math_set(tmp_path, "one", ["1"]))
    with pytest.raises(BadInputError, match=r"not installed: pip install 'cats-jax\[eval\]'"):
        evaluate.prepare(recipe, scripted.ScriptedModels())


@pytest.mark.parametrize(
    ("policy", "info", "said"),
    [
        ("weak", {"models": {"policy": {"name": "weak"}, "prm a": {"name": "good"}}}, None),
        ("weak", {"models": {"policy": {"name": "weak"}}}, "was not trained with prm good 'good':"),
        ("mine", {"models": {"prm good": {"name": "good"}}}, "was not trained with policy 'mine':"),
        ("mine", {}, "does not say which models it was trained with:"),
        ("weak", {}, None),  # as the shipped one, of the embedded world
    ],
)
def test_a_controller_of_other_models_is_named(tmp_path, policy, info, said):
    config = dataclasses.replace(learners.CATS, actor_hidden=(4,), critic_hidden=(4,))
    path = checkpoint.save(tmp_path / "it", untrained(config), config, info=info)
    strategies = ["greedy", {"name": "cats", "checkpoint": str(path)}]
    recipe = _recipe(strategies=strategies, policy=policy, calibration="none")
    notes = evaluate.prepare(recipe, scripted.ScriptedModels(), scripted.question_set(2)).notes
    assert [f"controller 'cats' {said}" in note for note in notes] == [True] * (said is not None)


# A disk that fails


_FULL = """
import resource, signal, sys
sys.path.append(sys.argv[1])
import scripted
from cats_jax.evaluation import evaluate
from cats_jax.specs.recipe import parse_recipe
from cats_jax.errors import RunStoppedError
recipe = parse_recipe({"name": "sums", "strategies": ["greedy", "beam", "cats_random"],
    "num_candidates": [4], "prms": ["good"], "questions": {"world": "test", "count": 6},
    "max_depth": 6, "in_flight": 2})
models = scripted.ScriptedModels()
evaluation = evaluate.prepare(recipe, models, scripted.question_set(6))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
try:
    evaluate.evaluate(evaluation, models, sys.argv[2])
except RunStoppedError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_full_disk_is_a_clean_stop_that_resumes(tmp_path, finished):
    folder = tmp_path / "run"
    child = subprocess.run(
        [sys.executable, "-c", _FULL, str(SUPPORT), str(folder)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.count("\n") == 1
    assert "can't be written any more (File too large): free space, and the same" in child.stdout
    done = len(read_run(folder).rows)
    assert 0 < done < 3 * _QUESTIONS
    run, _ = _evaluate(folder)
    assert made_runs.contents(run) == made_runs.contents(finished[0])


@pytest.mark.parametrize("path", ["/proc/run", "/dev/null/run"])
def test_a_folder_that_cannot_be_made(path):
    with pytest.raises(BadInputError, match=r"can't be written \(|is a file"):
        _evaluate(path)


# Curves


def test_curves_are_written_for_tensorboard(tmp_path, finished):
    event_type = importlib.import_module("tensorboardX.proto.event_pb2").Event

    rows = finished[0].rows
    with tracking.Tracker([tracking.TensorBoard(tmp_path)]) as tracker:
        tracker.begin_cell("beam N=4", 3, rows[:1])
        tracker.row("beam N=4", rows[1])
        tracker.begin_cell("beam N=8", 3, [])  # while the first is open
        tracker.row("beam N=8", rows[0])
        tracker.row("beam N=4", rows[2])
    (file,) = (tmp_path / tracking.FOLDER).iterdir()
    content, points = file.read_bytes(), []
    while content:
        # A record: length (8 bytes), its checksum (4), the event, its checksum (4).
        length = int.from_bytes(content[:8], "little")
        event = event_type.FromString(content[12 : 12 + length])
        points += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
        content = content[16 + length :]
    accuracy = [(step, value) for tag, step, value in points if tag == "beam_N_4/accuracy"]
    expected = [sum(row.correct for row in rows[:n]) / n for n in (2, 3)]
    assert accuracy == [(2, pytest.approx(expected[0])), (3, pytest.approx(expected[1]))]
    assert len(points) == 9


def test_curves_end_where_the_disk_is_full(tmp_path, monkeypatch):
    board = tracking.TensorBoard(tmp_path)
    board.scalar("accuracy", 0.5, 1)

    def full(event):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert board._writer is not None
    board._writer._py_recordio_writer.close()
    monkeypatch.setattr(board._writer, "write_event", full)
    board.scalar("accuracy", 0.5, 2)
    board.scalar("accuracy", 0.5, 3)
    board.close()


def test_weights_and_biases_must_be_installed():
    with pytest.raises(BadInputError, match="pip install wandb"):
        tracking.WeightsAndBiases("project", "name", {})


def test_cells_of_weights_and_biases_have_an_axis_each(monkeypatch):
    """Also those whose labels differ after a slash."""
    points = []
    begun = types.SimpleNamespace(log=points.append)
    wandb = types.SimpleNamespace(init=lambda **options: begun)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    curves = tracking.WeightsAndBiases("project", "name", {})
    for number, label in enumerate(("owner/a", "owner/b")):
        curves.scalar(f"beam N=4 {label} seed 0/accuracy", 0.5, number)
    assert [sorted(point) for point in points] == [
        [f"beam N=4 owner/{name} seed 0/{of}" for of in ("accuracy", "questions")] for name in "ab"
    ]


def _bars(console, *titles):
    cells = evaluate.grid(_recipe())[: len(titles)]
    named = [_Titled(title, cell) for title, cell in zip(titles, cells, strict=True)]
    return progress.ProgressBars(console, named, questions=4, in_flight=2)


class _Titled:
    """A cell of another title."""

    def __init__(self, title, cell):
        self.title, self.num_candidates, self.strategy = title, cell.num_candidates, cell.strategy


def test_the_progress_lines(finished):
    output = io.StringIO()
    rows = finished[0].rows
    with _bars(Console(file=output, width=80), "beam", "greedy") as bars:
        bars.begin_cell("beam", 4, rows[:1])
        bars.row("beam", rows[1])
        bars.begin_cell("greedy", 1, rows[:1])  # while the first is open
        for row in rows[2:4]:
            bars.row("beam", row)
    lines = output.getvalue().splitlines()
    assert re.fullmatch(r"\[2/2\] greedy: 1/1, accuracy [01]\.000, already there", lines[0])
    assert re.fullmatch(
        r"\[1/2\] beam: 4/4, accuracy [01]\.\d\d\d, 0\.\d s, \d+ tokens/s", lines[1]
    )


@pytest.mark.parametrize("width", [80, 100])
def test_bar_count_and_time_left_stay_in_a_narrow_terminal(finished, width):
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=True, color_system=None)
    title = "a_very_long_label_of_a_strategy N=64 math-shepherd-mistral-7b seed 0"
    with _bars(console, title) as bars:
        bars.begin_cell(title, 4, [])
        for row in finished[0].rows[:2]:
            bars.row(title, row)
        bars._bars.refresh()
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d?]*\w", "", output.getvalue()))
    assert all(len(line) <= width for line in lines)
    whole, cell = (line for line in lines[-3:] if "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in line)
    assert re.match(r"all 1 cells .* 50% .*\d:\d\d left", whole)
    assert re.match(r"\[1/1\] a_very_long.*\u2026.* 2/4 +acc\. [01]\.\d\d\d", cell)


def test_the_time_left_is_of_the_work_that_is_done():
    left = time_left.TimeLeft({"small": 1.0, "large": 8.0}, questions=100, in_flight=64)
    left.begin("small", 100, 0)
    left.end_question("small")
    assert left.seconds(25.0) is None  # of 900 parts at most 33 are done
    for _ in range(99):
        left.end_question("small")
    assert left.share == pytest.approx(1 / 9)
    assert left.seconds(25.0) == pytest.approx(200.0)
    left.begin("large", 100, 50)  # half of it was there before: no work of this process
    assert left.share == pytest.approx(5 / 9)
    # 50 questions are being searched, half done: 100 + 200 parts done, 200 left.
    assert left.seconds(60.0) == pytest.approx(40.0)
    for _ in range(50):
        left.end_question("large")
    assert (left.share, left.seconds(90.0)) == (1.0, 0.0)
    assert time_left.duration(3_671) == "1:01:11"


# No ground truth inside


def test_replacing_every_gold_answer_changes_no_tree(tmp_path, finished):
    questions = scripted.question_set(_QUESTIONS)
    replaced = dataclasses.replace(questions, answers=dict.fromkeys(questions.answers, "-1"))
    run, _ = _evaluate(tmp_path, questions=replaced)
    assert not any(row.correct for row in run.rows)
    ours, theirs = made_runs.contents(run), made_runs.contents(finished[0])
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

    def row(self, title, row):
        self.after -= 1
        if self.after == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 9])
def test_an_interrupted_run_ends_in_the_same_rows(tmp_path, finished, after):
    with pytest.raises(KeyboardInterrupt):
        _evaluate(tmp_path, observer=_Interrupt(after))
    done = len(read_run(tmp_path).rows)
    assert after <= done < 3 * _QUESTIONS
    observer = _Interrupt(0)
    run, _ = _evaluate(tmp_path, observer=observer)
    assert sum(before for *_, before in observer.begun) == done
    assert made_runs.contents(run) == made_runs.contents(finished[0])


def test_a_finished_run_loads_no_model(tmp_path, finished):
    models = scripted.ScriptedModels()
    run, _ = _evaluate(finished[0].folder, models=models)
    assert models.loaded == []
    assert len(run.rows) == 3 * _QUESTIONS


def test_going_on_with_a_former_rule_of_a_method_is_refused(tmp_path):
    recipe = _recipe(strategies=["mcts", "greedy"])
    questions = scripted.question_set(_QUESTIONS)
    manifest = evaluate.prepare(recipe, scripted.ScriptedModels(), questions).manifest
    assert manifest["revisions"] == {"mcts": 3}
    with RunWriter(tmp_path, {**manifest, "revisions": None}) as writer:
        writer.add(made_runs.row("mcts"), None)
    with pytest.raises(BadInputError, match=r'settings: revisions: null -> \{"mcts": 3\}'):
        _evaluate(tmp_path, recipe=recipe)


def test_the_path_score_of_a_prm_is_part_of_a_rule():
    recipe = _recipe(strategies=["rebase"], prms=[{"path": "good", "path_score": "product"}])
    found = evaluate.prepare(recipe, scripted.ScriptedModels(), scripted.question_set(1))
    assert found.manifest["revisions"] == {"rebase": 2}


def test_going_on_with_other_settings_is_refused(finished):
    with pytest.raises(BadInputError, match=r"config\.max_depth: 6 -> 7"):
        _evaluate(finished[0].folder, recipe=_recipe(max_depth=7))
    fewer = _recipe(questions={"world": "test", "count": 5})
    with pytest.raises(BadInputError, match=r"config\.questions\[0\]\.count: 6 -> 5"):
        _evaluate(finished[0].folder, recipe=fewer)
    questions = scripted.question_set(_QUESTIONS)
    questions = dataclasses.replace(questions, answers=dict.fromkeys(questions.answers, "1"))
    with pytest.raises(BadInputError, match=r"settings: questions: the gold answers changed\."):
        _evaluate(finished[0].folder, questions=questions)


def test_settings_that_change_no_result_may_change(finished):
    _evaluate(finished[0].folder, recipe=_recipe(in_flight=64))
    bounded = {"policy": {"kv_cache_gib": 0.5}, "prms": [{"path": "good", "kv_cache_gib": 2.0}]}
    _evaluate(finished[0].folder, recipe=_recipe(**bounded))


_KILLS = 20
_MANY_QUESTIONS = 40
_CHILD = """
import scripted
from cats_jax.evaluation import evaluate
from cats_jax.specs.recipe import parse_recipe
def run(folder, delay):
    strategies = ["greedy", "beam", "cats_random", "majority", "best_of_n"]
    recipe = parse_recipe({"name": "sums", "strategies": strategies,
        "num_candidates": [4], "prms": ["good"], "questions": {"world": "test", "count": 40},
        "max_depth": 6, "in_flight": 2})
    models = scripted.ScriptedModels(delay=float(delay))
    evaluation = evaluate.prepare(recipe, models, scripted.question_set(40))
    evaluate.evaluate(evaluation, models, folder)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # twenty-two processes that each compile the search
def test_killed_at_twenty_moments_a_run_ends_in_the_same_rows(tmp_path):
    """Also among rows that are answered from the paths of others."""
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla")}
    env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}
    folder = tmp_path / "run"
    rng = random.Random(0)
    seen = 0
    with forked.forks(_CHILD, env) as forks:
        forks.start(tmp_path / "undisturbed", 0.0)
        assert forks.ending() == 0
        whole = made_runs.contents(read_run(tmp_path / "undisturbed"))
        assert len(whole) == 5 * _MANY_QUESTIONS
        for _ in range(_KILLS):
            forks.start(folder, 0.05)  # the kill comes before the end
            _wait_for_writing(folder, rng)
            assert forks.kill() == -signal.SIGKILL
            rows = made_runs.contents(read_run(folder)) if (folder / MANIFEST).exists() else {}
            assert rows.items() <= whole.items()
            assert seen <= len(rows) < len(whole)
            seen = len(rows)
        assert seen > 0
        forks.start(folder, 0.0)
        assert forks.ending() == 0
    assert made_runs.contents(read_run(folder)) == whole


def _wait_for_writing(folder, rng):
    """Wait until the files grow, then a moment of random length."""
    results = folder / RESULTS
    before = results.stat().st_size if results.exists() else 0
    wanted = rng.choice(["rows", "trees", "early"])
    path = folder / (TREES if wanted == "trees" else RESULTS)
    deadline = time.monotonic() + 120
    if wanted == "early":
        time.sleep(rng.random() * 3)
    else:
        size = path.stat().st_size if wanted == "trees" and path.exists() else before
        while time.monotonic() < deadline:
            if path.exists() and path.stat().st_size != size:
                break
        time.sleep(rng.random() * 0.03)


# Recipes


def test_options_and_labels_of_strategies():
    beam = build_strategy(parse_strategy({"name": "beam", "expansion": 8, "beam_width": 3}))
    assert beam.strategy.width(64) == 3
    again = build_strategy(parse_strategy({"name": "beam", "expansion": 8, "beam_width": 3}))
    assert again == beam  # equal, so that nothing is compiled twice
    spec = parse_strategy(
        {"name": "cats_constant", "label": "few", "action": {"num_extra": 4}, "num_base": 3}
    )
    index = int(build_strategy(spec).params)
    assert search.cats.CATS.actions.rows[index][:2] == (4, 1)
    weighted = build_strategy(parse_strategy("best_of_n_weighted"), "last").strategy
    assert weighted.name == "best_of_n_weighted"
    assert weighted.aggregation == search.aggregations.AGGREGATIONS["last"]
