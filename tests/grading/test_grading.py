"""The grader: labelled pairs, laws of an equivalence, limits, and the file command."""

import concurrent.futures
import importlib
import json
import math
import multiprocessing
import os
import pathlib
import re
import signal
import sys
import time

import pytest
from hostile_answers import HOSTILE

from cats_jax import cli
from cats_jax.datasets import read_questions
from cats_jax.datasets.layout import answer_text
from cats_jax.errors import BadInputError
from cats_jax.evaluation.grade_file import count_rows, grade_file
from cats_jax.grading import MathGrader, workers
from cats_jax.grading.graders import grade_answer
from cats_jax.grading.math_grader import Grade
from cats_jax.grading.workers import WorkerFailure, WorkerPool
from cats_jax.live.tree import AnswerClasses, SearchTree
from cats_jax.protocols import AnswerGrader, Question, Step, StepSample

ROOT = pathlib.Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "benchmarks"))
answer_renderings = importlib.import_module("answer_renderings")


@pytest.fixture(scope="module")
def grader():
    with MathGrader(workers=1, seconds=2.0) as grader:
        yield grader


# Labelled pairs


def rows_of(file):
    return map(json.loads, file.read_text().splitlines())


@pytest.mark.parametrize(
    "file",
    [
        "benchmarks/labelled_answers.jsonl",
        "tests/grading/exact_pairs.jsonl",
        "tests/grading/spelled_pairs.jsonl",
    ],
)
def test_labelled_pairs(grader, file):
    wrong = [
        row
        for row in rows_of(ROOT / file)
        for pair in ((row["first"], row["second"]), (row["second"], row["first"]))
        if grader.compare(*pair) != Grade(row["same"])
    ]
    assert wrong == []


def test_solutions(grader):
    """Marks, prose, units, lists, boxes and thinking."""
    wrong = [
        row
        for row in rows_of(ROOT / "tests" / "grading" / "graded_solutions.jsonl")
        if grader.grade(row["prediction"], row["answer"]).correct != row["correct"]
    ]
    assert wrong == []


def test_cases_of_real_use(grader, shared):
    """Rows without a verdict are matters of taste."""
    wrong = []
    for row in rows_of(shared("cases/grading.jsonl")):
        gold = answer_text(row["answer"], "answer")
        grade = grader.grade(row["prediction"], gold)
        if row["expected"] is not None and grade.correct != row["expected"]:
            wrong.append(row)
    assert wrong == []


def test_votes_of_real_use(grader, shared):
    for row in rows_of(shared("cases/votes.jsonl")):
        classes = AnswerClasses(grader)
        votes = [classes.number(answer) for answer in row["answers"]]
        winner = row["answers"][votes.index(max(votes, key=votes.count))]
        assert grader.equivalent(winner, row["expected"])


# The two units' powers that are dropped with their unit; see docs/evaluate/grading.md.
_KNOWN = {r"864 \mbox{ inches}^3", r"15\mbox{ cm}^3"}
_FILES = {
    "math500.jsonl": "math500",
    "aime24.jsonl": "aime24",
    "amc23.jsonl": "amc23",
    "gsm8k_test.jsonl": "gsm8k",
    "olympiadbench_oe_to_maths_en_comp.jsonl": "olympiadbench",
}


@pytest.mark.parametrize("file", _FILES)
def test_gold_answers_of_real_data(grader, file, real_data):
    questions = read_questions(real_data(file), layout=_FILES[file])
    golds = dict.fromkeys(questions.answers.values())
    assert len(golds) > 20
    wrong = []
    for gold in golds:
        pairs = [("itself", gold, True)]
        pairs += [(kind, text, True) for kind, text in answer_renderings.renderings(gold)]
        pairs += [(kind, text, False) for kind, text in answer_renderings.near_misses(gold)]
        for kind, text, same in pairs:
            if grader.grade(text, gold).correct != same and text not in _KNOWN:
                wrong.append((kind, text, gold))
    assert wrong == []


def test_a_gold_answer_may_be_a_solution(grader):
    assert grader.grade("It is 18. The answer is $18", "16 - 3 - 4 = 9\n9 * 2\n#### 18").correct
    assert grader.grade("#### 1,080", "1080").correct
    assert not grader.grade("I do not know.\nSorry.", "1").correct
    assert not grader.grade("", "1").correct


def test_a_grade_of_a_run_compares_names(grader):
    """As `grade`; a vote does not."""
    assert not grade_answer(grader, "x=5", "y=5", None).correct
    assert not grade_answer(grader, r"x \le 5", r"y \le 5", None).correct
    assert not grade_answer(grader, "f(x)<3", "x<3", None).correct
    assert not grade_answer(grader, "f(x)>=3", "x>=3", None).correct
    assert not grade_answer(grader, "x≤3", "y≤3", None).correct
    assert not grade_answer(grader, "$0<x<5$", "5>y>0", None).correct
    assert not grade_answer(grader, "x_1<3", "x<3", None).correct
    assert grade_answer(grader, "x_{1}<3", "3>x_1", None).correct
    assert grade_answer(grader, "f(y)=5", "g(y)=5", None).correct
    assert grade_answer(grader, "x=5", "5", None).correct
    assert grade_answer(grader, "f(x)=5", "y=5", None).correct
    assert grader.equivalent("x=5", "y=5")


@pytest.mark.parametrize(
    ("prediction", "gold", "tolerance", "correct"),
    [
        ("4.25", "4.2", 0.1, True),
        ("4.3", "4.2", 0.1, True),
        ("4.31", "4.2", 0.1, False),
        (r"\sqrt{2}", "1.41", 0.01, True),
        (r"\sqrt{2}", "1.41", None, False),
        ("4.2, 1.3", "1.25, 4.25", 0.1, True),
        ("(1, 2)", "(1.05, 2)", 0.1, True),
        ("x", "4.2", 0.1, False),
        ("52_8", "52", 100.0, False),
        # Exact numbers have none.
        (r"2^{100}-1", r"2^{100}", 2.0, False),
        (r"\frac{1}{3}", r"\frac{33}{100}", 0.1, False),
        (r"\frac{1}{3}", "0.33", 0.01, True),
        ("101", "100", 1.0, True),
    ],
)
def test_tolerances(grader, prediction, gold, tolerance, correct):
    assert grader.grade(prediction, gold, tolerance).correct == correct


# An equivalence, and its use as a grader


def test_the_judge_keeps_its_contract(grader):
    as_protocol: AnswerGrader = grader
    texts = ["1/2", "0.5", r"\frac{2}{4}", "x+1", "1+x", "2", "(1,2)", "1,2", "2,1", r"\pi"]
    classes = [[0, 1, 2], [3, 4], [5], [6], [7, 8], [9]]
    of = {index: number for number, members in enumerate(classes) for index in members}
    for i, first in enumerate(texts):
        for j, second in enumerate(texts):
            assert as_protocol.equivalent(first, second) == (of[i] == of[j])
    assert as_protocol.extract([]) is None
    assert as_protocol.extract([r"\boxed{1}", "then"]) is None
    assert as_protocol.extract(["then", r"\boxed{1}"]) == "1"


def test_votes_take_far_fewer_than_all_comparisons(grader, monkeypatch):
    ask, asked = grader._pool.ask, []
    monkeypatch.setattr(grader._pool, "ask", lambda each: asked.append(each) or ask(each))
    tree = SearchTree(Question("q", "?"), grader)
    answers = [rf"\frac{{x+{index % 60}}}{{{2 + index % 2}}}" for index in range(120)]
    answers += [rf"\frac{{{index % 60}+x}}{{{2 + index % 2}}}" for index in range(120)]
    classes = [tree.answer_class(answer) for answer in answers]
    assert classes[:120] == classes[120:]
    assert len(set(classes)) == 60
    # 240 votes of 120 spellings in 60 classes; all pairs would be 28,680.
    assert 0 < len(asked) < 250
    assert tree.answer_class("  1/2. ") != tree.answer_class(r"\frac12 + 1")


def test_a_path_ends_with_its_answer(grader):
    tree = SearchTree(Question("q", "?"), grader)
    sample = StepSample(Step(r"so \boxed{\frac{1}{2}}.", (1,)), "step", -1.0)
    candidate = tree.add(0, sample, step=0, phase=0, pool_row=0)
    assert candidate.done
    assert candidate.answer == r"\frac{1}{2}"


def test_a_box_in_a_thought_ends_no_path(grader):
    tree = SearchTree(Question("q", "?"), grader)
    parent, ends = 0, []
    for text in (
        "<think>Maybe \\boxed{7}?",
        "The final answer is 7.",
        "</think>",
        "So \\boxed{24}.",
    ):
        sample = StepSample(Step(text, (1,)), "step", -1.0)
        candidate = tree.add(parent, sample, step=0, phase=0, pool_row=0)
        ends.append((candidate.done, candidate.answer))
        parent = candidate.id
    assert ends == [(False, None)] * 3 + [(True, "24")]


# Limits


@pytest.mark.slow
def test_hostile_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = []
    for index, (name, text) in enumerate(HOSTILE.items()):
        rows += [
            {"prediction": text, "answer": r"\frac{x+1}{2}", "name": name},
            {"prediction": rf"\boxed{{{text}}}", "answer": r"\sqrt{2}", "name": name},
            # Never seen before, so that nothing remembered can answer for the workers.
            {"prediction": rf"\boxed{{\frac{{x}}{{2}}+\frac{{{index}}}{{2}}}}",
             "answer": rf"\frac{{x+{index}}}{{2}}", "right": True},
            {"prediction": rf"\boxed{{\frac{{x}}{{2}}+\frac{{{index}}}{{3}}}}",
             "answer": rf"\frac{{x+{index + 1}}}{{2}}", "right": False},
        ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    started = time.monotonic()
    with MathGrader(workers=2, seconds=2.0) as grader:
        tally = grade_file("rows.jsonl", "out.jsonl", grader)
    seconds = time.monotonic() - started
    graded = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert tally.rows == len(graded) == len(rows)
    for row, given in zip(graded, rows, strict=True):
        assert {**given, **row} == row
        if "right" in row:
            assert row["correct"] == row["right"]
            assert "error" not in row
        else:
            assert not row["correct"]
    assert 5 < sum("error" in row for row in graded) < len(HOSTILE)
    assert not list(tmp_path.rglob("PWNED"))
    assert not (ROOT / "PWNED").exists()
    assert seconds < 2 * len(HOSTILE) * 2.0


def test_a_limit_is_an_error_of_its_pair_only():
    limits = {
        "9^{9^{9^{9^{9}}}}": "too many digits",
        r"\int_0^y e^{e^{e^x}} \sin(x^x) dx": "takes more than 0.5 s",
        "x+" * 1001: "2002 characters: at most 2000",
        "{" * 60 + "x" + "}" * 60: "nested 60 deep: at most 50",
    }
    with MathGrader(workers=1, seconds=0.5, memory_mb=256) as grader:
        for number, (answer, limit) in enumerate(limits.items(), start=2):
            verdict = grader.compare(answer, "x")
            assert not verdict.correct
            assert limit in verdict.error
            assert "\n" not in verdict.error
            assert not grader.equivalent(answer, "x")
            assert grader.compare(f"{number}x/{number}", "x").correct


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 0),
        ("seconds", 1e6),
        ("seconds", math.inf),
        ("seconds", math.nan),
        ("memory_mb", 30),
    ],
)
def test_limits_out_of_range_are_refused(name, value):
    message = rf"{re.escape(f'{name}={value:g}')}.*: give at least 1 worker, above 0 to 3600"
    with pytest.raises(BadInputError, match=message):
        MathGrader(**{name: value})


def test_text_is_never_python(grader, tmp_path):
    """The worker's number parser is the only way from text into sympy's evaluator."""
    target = tmp_path / "made"
    for text in (f"open({str(target)!r}, 'w')", rf"\text{{open('{target}','w')}}", "x.__class__"):
        reply = grader._pool.ask({"first": text, "second": "5", "tolerance": None})
        assert not reply.get("equal")
    assert not target.exists()


@pytest.fixture
def quick_workers(monkeypatch):
    """Worker processes that import nothing and find every pair equal."""
    program = 'while input(): print(\'{"equal": true, "values": [null, null]}\', flush=True)'
    monkeypatch.setattr("cats_jax.grading.workers._PROGRAM", program)


@pytest.mark.usefixtures("quick_workers")
def test_a_worker_that_dies_is_replaced():
    pool = WorkerPool(1, 5.0, 512)
    request = {"first": "2x", "second": "x+x", "tolerance": None}
    assert pool.ask(request)["equal"]
    process = pool._all[0]._process
    assert process is not None
    os.kill(process.pid, 9)
    process.wait()
    assert pool.ask(request)["equal"]
    pool.close()
    assert pool.ask(request)["equal"]
    pool.close()


@pytest.mark.usefixtures("quick_workers")
def test_a_pair_that_failed_for_lack_of_memory_is_compared_again(monkeypatch):
    with MathGrader(workers=1) as grader:
        ask, asked = grader._pool.ask, []

        def once(request):
            asked.append(request)
            if len(asked) == 1:
                raise workers._Killed("the comparing process was killed")
            return ask(request)

        monkeypatch.setattr(grader._pool, "ask", once)
        first = grader.compare("2x", "x+x")
        assert not first.correct
        assert first.error.endswith("the comparing process was killed")
        assert grader.compare("2x", "x+x") == Grade(True)
        assert grader.compare("2x", "x+x") == Grade(True)
        assert len(asked) == 2


def test_a_grade_does_not_depend_on_earlier_comparisons(grader):
    """Beside 2x the equation y=2x is 2x, but beside another equation it is not."""
    assert grader.equivalent("y=2x", r"x=\frac{y}{2}")
    with MathGrader(workers=1) as other:
        assert other.equivalent("y=2x", "2x")
        assert other.equivalent(r"x=\frac{y}{2}", r"\frac{y}{2}")
        assert other.equivalent("y=2x", r"x=\frac{y}{2}")


def test_numbers_beyond_floats_are_decided(grader):
    assert grader.compare("10^{98000}", "10^{99000}") == Grade(False)
    assert grader.compare("10^{99000}", "10^{98000} * 10^{1000}") == Grade(True)


@pytest.mark.usefixtures("quick_workers")
def test_no_worker_outlives_the_judge():
    grader = MathGrader(workers=2)
    assert grader.equivalent("2x", "x+x")
    process = grader._pool._all[-1]._process
    assert process is not None
    del grader
    assert process.poll() is not None


def test_math_verify_missing_is_said(monkeypatch):
    monkeypatch.setattr("cats_jax.grading.workers._PROGRAM", "raise ModuleNotFoundError")
    pool = WorkerPool(1, 1.0, 512)
    with pytest.raises(WorkerFailure, match=r"is math-verify installed \(pip install 'cats-jax"):
        pool.ask({"first": "2x", "second": "x", "tolerance": None})


_KILLED = """
import os, pathlib
path = pathlib.Path({path!r})
path.write_text(path.read_text() + "x")
input()
if len(path.read_text()) <= {kills}:
    os.kill(os.getpid(), {number})
print('{{"equal": true}}', flush=True)
"""


@pytest.mark.parametrize(("kills", "is_graded"), [(2, True), (3, False)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_pair_whose_process_is_killed_from_outside_gets_another_process(
    tmp_path, monkeypatch, kills, is_graded, number
):
    path = tmp_path / "starts"
    path.touch()
    program = _KILLED.format(path=str(path), kills=kills, number=int(number))
    monkeypatch.setattr("cats_jax.grading.workers._PROGRAM", program)
    pool = WorkerPool(1, 1.0, 512)
    if is_graded:
        assert pool.ask({"first": "2x", "second": "x"}) == {"equal": True}
    else:
        with pytest.raises(WorkerFailure, match="process was killed 3 times"):
            pool.ask({"first": "2x", "second": "x"})
    pool.close()
    assert path.read_text() == "xxx"


# Anywhere


def test_from_threads(grader):
    pairs = [(f"2x+{i}", f"x+x+{i + i % 2}", not i % 2) for i in range(20)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda pair: grader.equivalent(*pair[:2]), pairs))
    assert verdicts == [same for *_, same in pairs]


def _in_child(grader, results):
    results.put(grader.equivalent("7y", "y+6y"))


def test_from_other_processes(grader):
    """The child has a copy, whose workers are its own."""
    assert grader.equivalent("5y", "y+4y")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    child = context.Process(target=_in_child, args=(grader, results))
    child.start()
    assert results.get(timeout=60)
    child.join()


# Files


def _write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_grade_command(capsys, tmp_path):
    rows = [
        {"prediction": r"so \boxed{\frac{1}{2}}", "answer": "0.5", "id": 7},
        {"prediction": "4.25", "answer": ["4.2"], "error": "1e-1", "unit": "%"},
        {"prediction": "4.25", "answer": "4.2", "tolerance": 0.01},
        {"prediction": "-2, 1", "answer": [1, -2]},
        {"prediction": None, "answer": 3},
        {"prediction": 3, "answer": 3.0},
        {"prediction": "{" * 99, "answer": "x+1"},
    ]
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    _write(source, rows)
    assert cli.run(["grade", "--input", str(source), "--output", str(target)]) == 0
    graded = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row.pop("correct") for row in graded] == [True, True, False, True, False, True, False]
    assert graded[-1].pop("error") == "an answer nested 99 deep: at most 50"
    assert graded == rows
    assert "7 rows, 4 correct (0.5714), 1 not graded" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "rows.jsonl"]
    # A row that could not be graded before loses the message; a tolerance stays.
    graded = [{**row, "correct": False, "error": row.get("error", "no")} for row in rows[:2]]
    _write(source, [*graded, {**rows[0], "error": "my own"}])
    assert cli.run(["grade", "--input", str(source), "--output", str(target)]) == 0
    again = [json.loads(line).get("error") for line in target.read_text().splitlines()]
    assert again == [None, "1e-1", "my own"]
    _write(source, rows[5:6])
    assert cli.run(["grade", "--input", str(source), "--output", str(target)]) == 0
    assert "1 row, 1 correct (1.0000)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "has no rows"),
        ('{"prediction": "1"}', "rows.jsonl:1: column 'answer' is missing"),
        ('{"predicton": "1", "answer": 1}', "did you mean 'predicton'"),
        ('{"prediction": "1", "answer": null}', "'answer' must be a text or a number"),
        ('{"prediction": {}, "answer": 1}', "'prediction' must be a text or a number"),
        ('{"prediction": "1", "answer": 1, "tolerance": "x"}', "'tolerance' must be a number"),
        ('{"prediction": "1", "answer": 1, "tolerance": true}', "'tolerance' must be a number"),
        ('{"prediction": "1", "answer": 1, "tolerance": -1}', "at least 0"),
        ("[", "rows.jsonl:1: not a JSON object"),
    ],
)
def test_bad_rows_are_named_before_anything_is_graded(capsys, tmp_path, line, message):
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text(line + "\n")
    assert cli.run(["grade", "--input", str(source), "--output", str(target)]) == 2
    assert message in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("no/such/out.jsonl", "does not exist"), (".", "is a folder"), ("/proc/out", "can't be writ")],
)
def test_an_output_that_cannot_be_written(capsys, tmp_path, name, message):
    _write(tmp_path / "rows.jsonl", [{"prediction": "1", "answer": 1}])
    target = str(tmp_path / name)
    assert cli.run(["grade", "--input", str(tmp_path / "rows.jsonl"), "--output", target]) == 2
    assert message in capsys.readouterr().err


def test_an_error_that_is_no_tolerance(grader, tmp_path):
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    errors = [True, -1, "nan", "inf", "took too long"]
    _write(source, [{"prediction": "4", "answer": "4.5", "error": error} for error in errors])
    assert grade_file(source, target, grader).correct == 0


def test_an_interrupted_file_leaves_nothing(tmp_path):
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    _write(source, [{"prediction": "1", "answer": 1}] * 3)

    def interrupt(grade):
        raise KeyboardInterrupt

    target.write_text("old")
    with MathGrader(workers=1) as grader, pytest.raises(KeyboardInterrupt):
        grade_file(source, target, grader, interrupt)
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(BadInputError, match="does not exist"):
        count_rows(tmp_path / "no.jsonl")
