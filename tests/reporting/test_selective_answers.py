"""`cats-jax certify --selective`: thresholds on made trees, the file, its use, what is refused."""

import json

import made_certificates
import made_runs
import numpy as np
import pytest
import scripted
from run_folders import finished

import theory
from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.evaluation.evaluate import prepare
from cats_jax.evaluation.recording import RowRecorder
from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.grading.graders import default_grader
from cats_jax.live.abstention import answer_score, decided
from cats_jax.reporting.selective_answers import (
    THRESHOLDS,
    certify_selective,
    draw_selective,
    selective_bounds,
)
from cats_jax.runs.folder import RunWriter, read_run
from cats_jax.specs.recipe import parse_recipe

QUESTIONS = 60


def searched(question, score, answer="1"):
    """A search whose only path has a score."""
    return finished(question, [(answer, score)], chosen=None if answer is None else 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Scores of .9 that are right, of .4 that are right in half, and a question without answer."""
    folder = tmp_path_factory.mktemp("run") / "run"
    manifest = made_runs.manifest(max_depth=10)
    with RunWriter(folder, manifest) as writer:
        for i in range(QUESTIONS):
            high, answer = i < QUESTIONS // 2, None if i == QUESTIONS - 1 else "1"
            correct = answer is not None and (high or i % 2 == 0)
            row = made_runs.row(question=f"q{i}", correct=correct, answer=answer)
            writer.add(row, searched(f"q{i}", 0.9 if high else 0.4, answer))
    return folder


def test_the_lowest_threshold(folder):
    certificate = certify_selective(read_run(folder), 0.8, delta=0.05)
    chosen = certificate.chosen
    assert chosen is not None
    record = chosen.record()
    lowest = min(t for t in THRESHOLDS if t > 0.4)
    assert (record["threshold"], record["answered"]) == (lowest, 0.5)
    assert (record["accuracy"], record["accuracy_of_all"]) == (1.0, 0.75)
    # The question without an answer is answered at no threshold.
    assert chosen.found.answered[0] == QUESTIONS - 1
    assert certify_selective(read_run(folder), 0.89, delta=0.05).chosen is None


def test_the_figure(folder):
    certificate = certify_selective(read_run(folder), 0.8, delta=0.05)
    (chosen,) = certificate.configurations
    (low,) = selective_bounds(certificate)
    at = chosen.place
    assert at is not None
    assert low[at] == pytest.approx(theory.binomial_lower(30, 30, delta=0.05 / THRESHOLDS.size))
    assert low[-1] == 0.0 == chosen.found.answered[-1]
    (axes, *_) = draw_selective(certificate).axes
    curve, ring, target = axes.get_lines()[0], axes.get_lines()[-2], axes.get_lines()[-1]
    answered = chosen.found.answered[chosen.found.answered > 0]
    assert np.asarray(curve.get_xdata()) == pytest.approx(answered / QUESTIONS)
    assert np.asarray(curve.get_ydata())[0] == pytest.approx(1 - 14 / 59)
    assert (*np.asarray(ring.get_xdata()), *np.asarray(ring.get_ydata())) == (0.5, 1.0)
    assert (np.asarray(target.get_ydata()) == 0.8).all()


def test_a_failed_search_is_never_answered(tmp_path):
    with RunWriter(tmp_path / "run", made_runs.manifest(max_depth=10)) as writer:
        for i in range(QUESTIONS):
            writer.add(made_runs.row(question=f"q{i}"), searched(f"q{i}", 0.9))
        failed = {"correct": False, "answer": None, "status": "failed"}
        writer.add(made_runs.row(question="failed", **failed), None)
    certificate = certify_selective(read_run(tmp_path / "run"), 0.8, delta=0.05)
    (tested,) = certificate.configurations
    assert (tested.total, tested.found.answered[0]) == (QUESTIONS + 1, QUESTIONS)


def test_the_command(folder, tmp_path, capsys):
    command = ["certify", str(folder), "--selective", "--target", "0.8"]
    assert cli.run([*command, "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "accuracy above 0.8 of the answered questions, tested on" in printed
    assert "beam N=4 answers most: 50.0% of the questions" in printed
    content = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert content["chosen"] == 0
    assert (tmp_path / "out" / "certificate.png").read_bytes()[:4] == b"\x89PNG"
    assert cli.run([*command[:-1], "0.89"]) == 1
    for options, words in (
        (["--order", "descending"], "--selective: takes --target A"),
        (["--target", "0.99"], "takes at least"),
    ):
        assert cli.run([*command, *options]) == 2
        assert words in capsys.readouterr().err


def test_what_can_not_be_selective(tmp_path):
    def refused(rows, message, target=0.5):
        run = made_runs.write_run(tmp_path / str(len(list(tmp_path.iterdir()))), rows, max_depth=10)
        with pytest.raises(BadInputError, match=message):
            certify_selective(run, target, delta=0.05)

    many = [made_runs.row(question=f"q{i}") for i in range(40)]
    refused(many, "which rows of beam N=4 lack: evaluate with `trees: true`")
    refused(many, "--target=2: must be", target=2.0)
    unscored = [made_runs.row("majority", prm=None, question=f"q{i}") for i in range(3)]
    refused(unscored, "no strategy of the run reads sc")
    refused(many + [made_runs.row(question=f"q{i}", seed=1) for i in range(40)], "several seeds")


def test_an_answer_below_the_threshold_is_not_given():
    result = searched("q", 0.4)
    assert answer_score(result) == 0.4
    assert decided(result, None) is result
    assert decided(result, 0.4) is result
    kept = decided(result, 0.41)
    assert (kept.answer, kept.chosen, kept.status) == (None, None, "no_answer")
    assert (
        kept.reason
        == "abstains: its answer has the score 0.400, and answers from 0.410 on are given"
    )
    assert decided(kept, 0.41) is kept


def test_a_row_abstains_by_its_certificate(tmp_path):
    models = scripted.ScriptedModels()
    file = made_certificates.write_certificate(tmp_path / "c.json", models)
    content = json.loads((tmp_path / "c.json").read_text())
    content["configurations"][content["chosen"]]["threshold"] = 0.9
    (tmp_path / "c.json").write_text(json.dumps(content))
    recipe = {**made_certificates.CERTIFIED, "strategies": [{"certified": file}]}
    evaluation = prepare(parse_recipe(recipe), models)
    (cell,) = evaluation.cells
    grader, times = default_grader(evaluation.recipe.questions), WallTimes()
    first, second = evaluation.questions.questions[:2]
    with RunWriter(tmp_path / "run", evaluation.manifest) as writer:
        record = RowRecorder(cell, evaluation.questions, grader, writer, False, (), times)
        for question, score in ((first, 0.95), (second, 0.5)):
            record(searched(question.id, score, evaluation.questions.answers[question.id]))
    given, kept = sorted(read_run(tmp_path / "run").rows, key=lambda row: row.question != first.id)
    assert (given.correct, given.status) == (True, "answered")
    assert (kept.correct, kept.answer, kept.status) == (False, None, "no_answer")
    assert kept.covered
    assert kept.reason.startswith("abstains")


def test_selective_thresholds_of_theory():
    scores, right = np.array([0.9] * 30 + [0.5] * 30), np.array([1.0] * 30 + [1.0, 0.0] * 15)
    found = theory.certify_selective(scores, right, [0.0, 0.6, 0.95], target=0.8, delta=0.05)
    assert found.index == 1
    assert list(found.answered) == [60, 30, 0]
    assert list(found.errors) == [15, 0, 0]
    assert found.p_values[1] == pytest.approx(0.8**30)
    assert (found.p_values[2], list(found.certified)) == (1.0, [False, True, False])
    for options, message in (
        ({"thresholds": [0.5, 0.5]}, "rising numbers"),
        ({"scores": [0.5]}, "scores has shape"),
        ({"right": [0.5] * 60}, "each value must be 0 or 1"),
        ({"target": 1.0}, "target=1"),
    ):
        given = {"scores": scores, "right": right, "thresholds": [0.5], "target": 0.8}
        with pytest.raises(ValueError, match=message):
            theory.certify_selective(**{**given, **options}, delta=0.05)


def test_fallback_carries_the_level_on():
    # From the last: .02 <= .05/4 fails; .012 <= .0125; then .025, then .0375.
    found = theory.reject([0.03, 0.025, 0.012, 0.02], delta=0.05, order="fallback")
    assert list(found) == [True, True, True, False]
    assert list(theory.reject([0.03, 0.03, 0.012], delta=0.03, order="fallback")) == [0, 0, 0]
