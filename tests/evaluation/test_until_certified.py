"""`evaluate --until-certified`: order, batches, resuming, the certificate, and what is refused."""

import dataclasses
import json
import math
import re

import pytest
import scripted

import theory
from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.evaluate import evaluate, prepare
from cats_jax.evaluation.runners import LocalRunner
from cats_jax.evaluation.until_certified import (
    FIRST_BATCH,
    AccuracyClaim,
    UntilCertified,
    in_order,
    least_questions,
)
from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.grading.graders import default_grader
from cats_jax.live.ledger import Ledger
from cats_jax.live.results import SearchResult
from cats_jax.models import source
from cats_jax.reporting import run_report
from cats_jax.reporting.anytime_certificates import anytime_sheet, certify_anytime
from cats_jax.reporting.certified_configurations import Claim, certify_run
from cats_jax.runs.folder import read_run
from cats_jax.specs.certificates import read_certificate
from cats_jax.specs.recipe import parse_recipe

QUESTIONS = 150
RECIPE = {
    "name": "until",
    "strategies": ["greedy"],
    "num_candidates": [4],
    "questions": {"world": "test", "count": QUESTIONS},
    "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
}


class Answers:
    """A runner that answers right where a function of the question's number says so.

    With `by_cell` the function also gets the cell.
    """

    def __init__(self, answers, is_right, stop_after=math.inf, by_cell=False):
        self.answers, self.is_right, self.left = answers, is_right, stop_after
        self.by_cell = by_cell
        self.searched = []

    def search(self, cell, questions, on_result):
        # Searches end in any order.
        for item in reversed(questions):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            self.searched.append(item.id)
            number = int(item.id[1:])
            right = self.is_right(number, cell) if self.by_cell else self.is_right(number)
            answer = self.answers[item.id] if right else "none"
            on_result(SearchResult(item, answer, None, "answered", "", 1, [], [], ledger=Ledger()))

    def finish(self, times):
        pass


def search_until(folder, is_right, claim, stop_after=math.inf, **changes):
    models = scripted.ScriptedModels()
    questions = scripted.question_set(QUESTIONS)
    evaluation = prepare(parse_recipe({**RECIPE, **changes}), models, questions)
    claim.check(evaluation.cells, QUESTIONS)
    evaluation = dataclasses.replace(evaluation, manifest=claim.of(evaluation.manifest))
    runner = Answers(questions.answers, is_right, stop_after, by_cell=bool(changes))
    until = UntilCertified(claim, 0)
    run, _ = evaluate(evaluation, models, folder, runner=runner, until=until)
    return certify_anytime(run, claim, questions.questions, 0), runner


def mostly(number):
    return number % 10 != 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a run certifies that was not stopped, and its runner."""
    return search_until(tmp_path_factory.mktemp("run") / "whole", mostly, AccuracyClaim(0.7))


def test_it_stops_at_the_batch_that_settles_the_claim(whole):
    found, runner = whole
    ordered = in_order(scripted.question_set(QUESTIONS).questions, 0)
    right = [mostly(int(item.id[1:])) for item in ordered]
    settled = theory.settle(right, target=0.7, delta=0.05)
    assert found.found == settled
    assert settled.decision == "above"
    assert FIRST_BATCH < settled.trials < QUESTIONS - FIRST_BATCH
    # Whole batches of the order, and no question behind the batch of the decision.
    searched = -(-settled.trials // FIRST_BATCH) * FIRST_BATCH
    assert set(runner.searched) == {item.id for item in ordered[:searched]}
    record = found.record()
    assert record["questions_used"] == settled.trials
    assert (
        record["e_value"]
        >= 20
        > math.exp(
            theory.binary_log_wealth(sum(right[: settled.trials - 1]), settled.trials - 1, 0.7)
        )
    )
    assert 0.7 <= record["bound"] <= record["accuracy"] <= record["upper_bound"]


def test_the_order_is_of_the_seed_and_the_ids():
    questions = scripted.question_set(40).questions
    first = in_order(questions, 0)
    assert in_order(tuple(reversed(questions)), 0) == first
    assert in_order(questions, 1) != first != list(questions)
    # A larger set keeps the order of the smaller one.
    both = in_order(scripted.question_set(60).questions, 0)
    assert [item.id for item in both if int(item.id[1:]) < 40] == [item.id for item in first]


@pytest.mark.parametrize("stop_after", [1, FIRST_BATCH, FIRST_BATCH + 9])
def test_a_killed_run_comes_to_the_same_decision_and_rows(tmp_path, whole, stop_after):
    claim, (found, runner) = AccuracyClaim(0.7), whole
    with pytest.raises(KeyboardInterrupt):
        search_until(tmp_path, mostly, claim, stop_after)
    again, rest = search_until(tmp_path, mostly, claim)
    assert again.record() == found.record()
    assert len(rest.searched) == len(runner.searched) - stop_after
    assert {row.key for row in again.run.rows} == {row.key for row in found.run.rows}
    # Once it is settled, nothing more is searched.
    _, none = search_until(tmp_path, mostly, claim)
    assert none.searched == []


def test_refuted_and_not_settled(tmp_path):
    claim = AccuracyClaim(0.7)
    refuted, runner = search_until(tmp_path / "refuted", lambda number: number % 2, claim)
    assert (refuted.found.decision, refuted.certified) == ("below", False)
    assert refuted.record()["upper_bound"] <= 0.7
    assert refuted.as_json()["chosen"] is None
    assert len(runner.searched) < QUESTIONS
    near, runner = search_until(tmp_path / "near", lambda number: number % 10 < 7, claim)
    assert (near.found.decision, near.found.trials) == ("open", QUESTIONS)
    assert len(runner.searched) == QUESTIONS


LOSS = {"strategies": ["majority"], "num_candidates": [4, 16]}


def loses_little(number, cell):
    """The small N is wrong on one question in fifteen more than the large one."""
    return mostly(number) and (cell.num_candidates == 16 or number % 15 != 3)


@pytest.mark.parametrize("stop_after", [math.inf, 5, 40])
def test_a_loss_against_the_larger_n(tmp_path, stop_after):
    claim = AccuracyClaim(0.25, against="majority")
    if stop_after < math.inf:
        with pytest.raises(KeyboardInterrupt):
            search_until(tmp_path, loses_little, claim, stop_after, **LOSS)
    found, runner = search_until(tmp_path, loses_little, claim, **LOSS)
    ordered = in_order(scripted.question_set(QUESTIONS).questions, 0)
    losses = [mostly(i) and i % 15 == 3 for i in (int(item.id[1:]) for item in ordered)]
    values = [(1 - loss) / 2 for loss in losses]
    settled = theory.settle_mean(values, target=(1 - 0.25) / 2, delta=0.05)
    assert found.found == settled
    assert settled.decision == "above"
    assert FIRST_BATCH < settled.trials < QUESTIONS - FIRST_BATCH
    # Both configurations have rows of the same questions, whole batches of them.
    searched = {row.key for row in found.run.rows}
    assert len(searched) == 2 * -(-settled.trials // FIRST_BATCH) * FIRST_BATCH
    before = 0 if stop_after == math.inf else stop_after
    assert len(runner.searched) == len(searched) - before
    record = found.record()
    assert (record["strategy"], record["num_candidates"]) == ("majority", 4)
    used = losses[: settled.trials]
    assert any(used)
    assert record["lost"] == pytest.approx(sum(used) / len(used))
    differences = [float(loss) for loss in used]
    assert record["upper_bound"] == pytest.approx(theory.paired_upper(differences, delta=0.05))
    assert record["bound"] <= record["lost"] <= record["upper_bound"] <= 0.25
    content = found.as_json()
    rival = {"against": "majority", "against_num_candidates": 16}
    assert content["claim"] == {"anytime": True, "max_loss": 0.25, **rival}
    assert content["words"] == "accuracy at most 0.25 below that of majority N=16"
    assert "lost" in {column.title for column in anytime_sheet(found).columns}


def test_of_several_seeds_a_question_has_the_mean(tmp_path):
    claim = AccuracyClaim(0.6)
    seeds = {"strategies": ["majority"], "seeds": [0, 1]}
    found, _ = search_until(
        tmp_path, lambda number, cell: mostly(number + cell.seed), claim, **seeds
    )
    ordered = in_order(scripted.question_set(QUESTIONS).questions, 0)
    numbers = [int(item.id[1:]) for item in ordered]
    values = [(mostly(number) + mostly(number + 1)) / 2 for number in numbers]
    settled = theory.settle_mean(values, target=0.6, delta=0.05)
    assert found.found == settled
    assert (settled.decision, found.certified) == ("above", True)
    bound = theory.betting_lower(values[: settled.trials], delta=0.05)
    assert found.record()["bound"] == pytest.approx(bound)
    assert bound >= 0.6


def test_a_claim_is_about_one_configuration_and_against_one():
    models, questions = scripted.ScriptedModels(), scripted.question_set(QUESTIONS)

    def refused(message, claim, **changes):
        evaluation = prepare(parse_recipe({**RECIPE, **changes}), models, questions)
        with pytest.raises(BadInputError, match=message):
            claim.check(evaluation.cells, QUESTIONS)

    against = AccuracyClaim(0.1, against="majority")
    refused("--against 'majority': .*greedy", against)
    refused(
        "about one configuration, and the recipe has 0 beside --against",
        against,
        strategies=["majority"],
    )
    refused(
        "about one configuration, and the recipe has 2, such as majority N=8",
        against,
        strategies=["majority"],
        num_candidates=[4, 8, 16],
    )
    refused("150 questions certify nothing", AccuracyClaim(0.999))


def test_batches_load_a_judge_at_an_endpoint_once():
    """Its `max_cost` would begin anew with each batch."""
    judge = {"path": "chat-judge", "backend": "http://localhost:1", "served_name": "m"}
    recipe = parse_recipe({**RECIPE, "strategies": ["beam"], "prms": [judge, "exact"]})
    models, cells = scripted.ScriptedModels(), grid(recipe)
    runner = LocalRunner(recipe, cells, models, default_grader(recipe.questions), WallTimes())
    for _ in range(2):  # batches
        for cell in cells:
            runner.load(cell)
    assert [path.rpartition(":")[2] for path in models.loaded] == ["weak", "chat_judge", "exact"]


def test_another_claim_is_another_run(whole):
    folder = whole[0].run.folder
    with pytest.raises(BadInputError, match=r"until_certified.target: 0.7 -> 0.6"):
        search_until(folder, mostly, AccuracyClaim(0.6))
    # A test of a fixed number of questions is not valid for it.
    with pytest.raises(BadInputError, match="until its own results settled a claim"):
        certify_run(read_run(folder), Claim(target=0.6), delta=0.05)


def test_least_questions():
    for target, delta in ((0.5, 0.05), (0.9, 0.01), (0.2, 0.1)):
        number = least_questions(AccuracyClaim(target, delta))
        needed = -math.log(delta)
        assert theory.binary_log_wealth(number, number, target) >= needed
        assert number == 1 or theory.binary_log_wealth(number - 1, number - 1, target) < needed


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "ModelFolders", scripted.ScriptedModels)

    def write(count=60, more="strategies: [greedy]"):
        rows = [{"id": f"q{i}", "question": f"{i}+2+4", "answer": i + 6} for i in range(count)]
        data = tmp_path / f"{count}.jsonl"
        data.write_text("\n".join(map(json.dumps, rows)))
        path = tmp_path / "recipe.yaml"
        path.write_text(
            "name: until\npolicy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}\n"
            f"questions: {{file: {data}}}\nnum_candidates: [4]\nin_flight: 8\n{more}\n"
        )
        return str(path)

    return write


def test_the_command(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_report, "show_run", lambda *_: None)  # figures take seconds
    folder = tmp_path / "run"
    command = ["evaluate", recipe(), "--output", str(folder), "--until-certified", "0.05"]
    assert cli.run(command) == 0
    printed = capsys.readouterr().out
    assert "certified: accuracy above 0.05, after" in printed
    file = folder / "certificate.json"
    content = json.loads(file.read_text())
    assert content["delta"] == 0.05
    assert content["decision"] == "certified"
    assert content["num_questions"] == content["configurations"][0]["questions_used"]
    # A recipe may use it as any other certificate.
    strategy, certified = read_certificate(str(file))
    assert (strategy["name"], certified.claim) == ("greedy", "accuracy above 0.05")
    before = file.read_bytes()
    rows = (folder / "results.jsonl").read_bytes()
    assert cli.run(command) == 0
    assert (file.read_bytes(), (folder / "results.jsonl").read_bytes()) == (before, rows)
    assert any("plain intervals" in note for note in read_run(folder).notes)
    # The whole recipe is another run, and needs another folder.
    assert cli.run(command[:4]) == 2
    assert "until_certified" in capsys.readouterr().err
    refuted = [*command[:3], str(tmp_path / "refuted"), "--until-certified", "0.9"]
    assert cli.run([*refuted, "--delta", "0.2"]) == 1
    assert "refuted: the accuracy is not above 0.9, after" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({}, ["--until-certified", "1.5"], "--until-certified=1.5: must be between 0 and 1"),
        ({}, ["--until-certified", "0.5", "--delta", "0"], "--delta=0: must be between 0 and 1"),
        ({}, ["--delta", "0.1"], "--delta=0.1 is that of --until-certified: give both"),
        ({}, ["--against", "beam"], "--against=beam is that of --until-certified: give both"),
        ({}, ["--until-certified", "0.5", "--ray", "local"], "give it without --ray"),
        ({"count": 4}, ["--until-certified", "0.5"], "4 questions certify nothing.*at least 7"),
        (
            {"more": "strategies: [greedy, majority]"},
            ["--until-certified", "0.5"],
            "about one configuration, and the recipe has 2, such as .* name one by",
        ),
        (
            {"more": "strategies: [greedy]\nmax_seconds: 3.0"},
            ["--until-certified", "0.5"],
            "has max_seconds=3.0, by which the speed",
        ),
    ],
)
def test_what_is_refused_before_models_are_loaded(
    recipe, tmp_path, capsys, monkeypatch, given, options, message
):
    def load(self, spec):
        raise AssertionError("a model is loaded")

    monkeypatch.setattr(scripted.ScriptedModels, "policy", load)
    folder = tmp_path / "run"
    assert cli.run(["evaluate", recipe(**given), "--output", str(folder), *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert re.search(message, line), line
    assert not folder.exists()
