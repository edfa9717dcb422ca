"""The policy's own confidence in place of a PRM: in searches, banks and rescored runs."""

import math
import pathlib

import numpy as np
import pytest
import yaml

from cats_jax import cli
from cats_jax.bank.layout import load_bank
from cats_jax.errors import BadInputError, ScorerContractError
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.evaluate import cost_bounds
from cats_jax.models.confidence import ConfidenceScorer
from cats_jax.protocols import Question, Step, confidence
from cats_jax.reporting import run_report
from cats_jax.runs.folder import read_run
from cats_jax.specs.recipe import parse_recipe

RECIPE = """
policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}
prms: [confidence]
calibration: none
strategies: [beam, best_of_n]
num_candidates: [4]
questions: {world: test, count: 3}
trees: true
"""


@pytest.fixture(scope="module", autouse=True)
def _no_figures():
    """They take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_report, "write_overview", lambda run: [])
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("confidence")
    (folder / "recipe.yaml").write_text(RECIPE)
    command = ["evaluate", folder / "recipe.yaml", "--output", folder / "run", "--no-functions"]
    assert cli.run(list(map(str, command))) == 0
    return folder / "run"


def test_a_search_is_scored_by_the_policys_confidence(run):
    found = read_run(run)
    rows = found.rows
    assert {(row.strategy, row.prm) for row in rows} == {
        ("beam", "confidence"),
        ("best_of_n", "confidence"),
    }
    scored = [each for row in rows for each in found.tree(row).candidates if each.score is not None]
    assert len(scored) > 30
    for each in scored:
        assert each.log_prob is not None
        expected = math.exp(each.log_prob / each.num_tokens)
        assert each.score == pytest.approx(expected, rel=1e-5)
    assert all(row.ledger.prm_computed == 0 for row in rows)
    assert len({each.score for each in scored}) > 10


def test_a_run_is_rescored_with_it(run, tmp_path):
    text = RECIPE.replace("[confidence]", "[exact]").replace("beam, best_of_n", "best_of_n")
    (tmp_path / "recipe.yaml").write_text(text)
    recipe, first, second = (str(tmp_path / name) for name in ("recipe.yaml", "first", "second"))
    assert cli.run(["evaluate", recipe, "--output", first]) == 0
    named = ["--prm", "confidence", "--prm-label", "own"]
    assert cli.run(["rescore", first, *named, "--output", second]) == 0
    once, again = read_run(run), read_run(pathlib.Path(second))
    (prm,) = again.manifest["config"]["prms"]
    assert {row.prm for row in again.rows} == {prm["label"]} == {"own"}
    # Best-of-N samples the same paths, whatever the PRM.
    rows = {row.question: row for row in again.rows}
    for row in once.rows:
        if row.strategy == "best_of_n":
            assert rows[row.question].answer == row.answer
            pairs = zip(
                once.tree(row).candidates, again.tree(rows[row.question]).candidates, strict=True
            )
            for mine, theirs in pairs:
                assert theirs.score == pytest.approx(mine.score, rel=1e-5)


def test_a_bank_holds_it_beside_prms(tmp_path):
    (tmp_path / "bank.yaml").write_text(
        "policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}\n"
        "prms: [exact, confidence]\nquestions: {world: validation, count: 2}\n"
        "sampling: [{temperature: 1.0, root_draws: 4, revisit_draws: 2}]\nmax_depth: 4\n"
    )
    folder = tmp_path / "bank"
    assert cli.run(["bank", str(tmp_path / "bank.yaml"), "--output", str(folder)]) == 0
    arrays = load_bank(folder, prms=["confidence"]).arrays
    log_prob, tokens, score = map(
        np.asarray, (arrays.log_prob, arrays.num_tokens, arrays.score[:, 0])
    )
    scored = (tokens > 0) & (score > 0)
    assert scored.sum() > 10
    np.testing.assert_allclose(score[scored], np.exp(log_prob[scored] / tokens[scored]), rtol=1e-4)


BANK = """
policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}
prms: [confidence]
questions: {world: SET, count: 4}
sampling:
  - {temperature: 0.0, root_draws: 1}
  - {temperature: 0.6, root_draws: 8}
  - {temperature: 1.0, root_draws: 8}
max_depth: 4
"""


def test_a_dry_run_counts_no_tokens_for_it(tmp_path, capsys):
    mixed = parse_recipe({"name": "r", **yaml.safe_load(RECIPE), "prms": ["exact", "confidence"]})
    for cell, *_, scored in cost_bounds(mixed, grid(mixed), 3):
        assert (scored == 0) == (cell.prm is not None and cell.prm.label == "confidence")
    (tmp_path / "bank.yaml").write_text(
        BANK.replace("[confidence]", "[exact, confidence]").replace("SET", "controller")
    )
    assert cli.run(["bank", str(tmp_path / "bank.yaml"), "--dry-run"]) == 0
    bounds, _, _ = capsys.readouterr().out.partition("memory, with prompts")
    rows = [line.split("|") for line in bounds.splitlines() if "| PRM " in line]
    tokens = {row[1].strip(): int(row[5].replace(",", "")) for row in rows}
    assert tokens["PRM confidence"] == 0 < tokens["PRM exact"]


@pytest.mark.slow
def test_a_controller_is_trained_on_it_alone_and_searches(tmp_path):
    """The commands of docs/train/controllers.md, without any PRM."""

    def run(*arguments):
        assert cli.run(list(map(str, arguments))) == 0

    banks = {}
    for name in ("controller", "validation"):
        (tmp_path / f"{name}.yaml").write_text(BANK.replace("SET", name))
        banks[name] = tmp_path / name
        run("bank", tmp_path / f"{name}.yaml", "--output", banks[name])
    fitted, trained = tmp_path / "confidence.json", tmp_path / "trained"
    run("calibrate", banks["controller"], "--output", fitted, "--held-out", banks["validation"])
    sizes = ["--num-seeds", "1", "--num-iterations", "2", "--num-candidates", "4", "--no-rivals"]
    given = ["--bank", banks["controller"], "--validation", banks["validation"]]
    run("train", "--output", trained, *given, "--calibration", fitted, *sizes)
    text = RECIPE.replace("calibration: none", f"calibration: {fitted}")
    cats = f"{{name: cats, checkpoint: {trained / 'seed-0'}, price: 0.05}}"
    (tmp_path / "recipe.yaml").write_text(text.replace("beam, best_of_n", cats))
    run("evaluate", tmp_path / "recipe.yaml", "--output", tmp_path / "run")
    rows = read_run(tmp_path / "run").rows
    assert [row.prm for row in rows] == ["confidence"] * 3
    assert all(row.actions and row.ledger.prm_computed == 0 for row in rows)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"path": "weak", "log_probs": False}, "log_probs: false leaves out"),
        ({"chat": True, "served_name": "m"}, "chat: true does not report: take another PRM"),
    ],
)
def test_a_policy_without_log_probs_is_refused(policy, words):
    mapping = {"name": "r", **yaml.safe_load(RECIPE)}
    mapping["policy"] = {"backend": "http://localhost:1", **policy}
    with pytest.raises(BadInputError, match=words):
        grid(parse_recipe(mapping))


def test_it_scores_no_steps_of_others(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"problem": "1+1=?", "steps": ["2"], "label": -1}\n')
    assert cli.run(["quality", str(rows), "--prms", "confidence"]) == 2
    assert "is the policy's own confidence" in capsys.readouterr().err


def test_an_unknown_confidence_has_no_score():
    scorer, question = ConfidenceScorer(), Question("q", "1+1=?")
    known = Step("1+1=2", (1, 2), confidence(math.log(0.25), 2))
    scoring = scorer.score([question], [(known,)])
    assert scoring.scores == [pytest.approx(0.5)]
    for step, why in ((Step("2", (3,)), "is not known"), (Step(" ", (3,), 0.5), "blank")):
        with pytest.raises(ScorerContractError, match=f"question 'q', step 1: .*{why}"):
            scorer.score([question], [(known, step)])
    assert known == Step("1+1=2", (1, 2))
    assert confidence(None, 3) is None
    assert confidence(0.0, 0) == 1.0
