"""`cats-jax certify --stopping`: thresholds on made trees, the file, its use, what is refused."""

import json

import made_runs
import numpy as np
import pytest
import scripted
from run_folders import finished

import theory
from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.evaluation.evaluate import prepare
from cats_jax.reporting.selective_answers import THRESHOLDS
from cats_jax.reporting.stopping_thresholds import certify_stopping, draw_stopping, path_outcomes
from cats_jax.runs.folder import RunWriter, read_run
from cats_jax.specs.certificates import read_certificate
from cats_jax.specs.recipe import parse_recipe

QUESTIONS = 200
RECIPE = {
    "name": "paths",
    "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
    "prms": ["exact"],
    "strategies": ["best_of_n"],
    "num_candidates": [2],
    "questions": {"world": "test", "count": QUESTIONS},
}


def searched(question, *paths):
    """A search with paths (pool row, score, answer) of one step, in order of finishing."""
    scores = [score for _, score, _ in paths]
    best = scores.index(max(scores)) + 1
    result = finished(question, [(answer, score) for _, score, answer in paths], best)
    for node, (place, *_) in zip(result.candidates, paths, strict=True):
        node.pool_row = place
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The first path of 100 questions is good; that of one question is bad, its score .4."""
    folder = tmp_path_factory.mktemp("run") / "run"
    models = scripted.ScriptedModels()
    evaluation = prepare(parse_recipe(RECIPE), models)
    with RunWriter(folder, evaluation.manifest) as writer:
        for i, item in enumerate(evaluation.questions.questions):
            gold = evaluation.questions.answers[item.id]
            # The second path ends first, and its place in the pool says that it is the second.
            first = (0, 0.4, "none") if i == 0 else (0, 0.9 if i < 100 else 0.1, gold)
            row = made_runs.row("best_of_n", 2, "exact", question=item.id, gold=gold)
            writer.add(row, searched(item.id, (1, 0.95, gold), first))
    return folder


def test_the_lowest_threshold(folder):
    run = read_run(folder)
    certificate = certify_stopping(run, 0.02, delta=0.05)
    scores, right = path_outcomes(run, certificate.group)
    assert (scores[:, 1] == 0.95).all()
    assert sorted(scores[:, 0]) == [0.1] * 100 + [0.4] + [0.9] * 99
    assert right[:, 0].tolist() == (scores[:, 0] != 0.4).tolist()
    assert right[:, 1].all()
    # At a score of .1 one question of 200 is harmful, which a level of .04 does not exclude.
    level = 0.05 * 0.8
    expected = theory.certify_stopping(scores, right, THRESHOLDS, max_loss=0.02, delta=level)
    assert theory.selective_p(1, QUESTIONS, 0.02) > level > theory.selective_p(0, QUESTIONS, 0.02)
    chosen = certificate.chosen
    assert chosen is not None
    assert chosen == expected.index
    assert THRESHOLDS[chosen] == min(t for t in THRESHOLDS if t > 0.4)
    record = certificate.records()[chosen]
    assert record["lost"] == 0.0
    assert record["paths"] == pytest.approx((99 + 2 * 101) / 200)
    cost = theory.cost_upper(expected.num_paths[chosen], limit=2, delta=0.01, num_choices=31)
    assert record["paths_bound"] == pytest.approx(cost)
    assert record["bound"] == pytest.approx(theory.binomial_upper(0, 200, delta=level / 31))
    # A larger loss allows the harmful question.
    assert certify_stopping(run, 0.04, delta=0.05).chosen == 0


def test_equal_scores_of_a_path_that_finished_first(tmp_path):
    """Best-of-N takes the path that finished first, a search path by path the one sampled first."""
    models = scripted.ScriptedModels()
    evaluation = prepare(parse_recipe(RECIPE), models)
    with RunWriter(tmp_path / "run", evaluation.manifest) as writer:
        for item in evaluation.questions.questions:
            gold = evaluation.questions.answers[item.id]
            row = made_runs.row("best_of_n", 2, "exact", question=item.id, gold=gold)
            writer.add(row, searched(item.id, (1, 1.0, gold), (0, 1.0, "none")))
    certificate = certify_stopping(read_run(tmp_path / "run"), 0.02, delta=0.05)
    assert (certificate.found.harmful == QUESTIONS).all()
    assert certificate.chosen is None


def test_a_search_compares_with_the_same_thresholds():
    """It computes in float32."""
    assert (THRESHOLDS.astype(np.float32).astype(np.float64) == THRESHOLDS).all()


def test_the_figure(folder):
    certificate = certify_stopping(read_run(folder), 0.02, delta=0.05)
    (axes, *_) = draw_stopping(certificate).axes
    drawn = np.concatenate([np.asarray(line.get_xdata()) for line in axes.get_lines()])
    assert set(np.round(certificate.paths, 6)) <= set(np.round(drawn, 6))


def test_the_command_and_the_use_of_the_file(folder, tmp_path, capsys):
    command = ["certify", str(folder), "--stopping", "--max-loss", "0.02"]
    assert cli.run([*command, "--output", str(tmp_path / "out")]) == 0
    assert "the search may stop from a score of 0.5000 on: 1.5 of 2" in capsys.readouterr().out
    file = tmp_path / "out" / "certificate.json"
    strategy, certified = read_certificate(str(file))
    assert strategy["name"] == "sequential_best_of_n"
    assert (dict(strategy["options"]), certified.num_candidates) == ({"stop": 0.5}, 2)
    recipe = {**RECIPE, "strategies": [{"certified": str(file), "label": "stopped"}]}
    evaluation = prepare(
        parse_recipe({**recipe, "questions": {"world": "test", "count": 3, "seed": 5}}),
        scripted.ScriptedModels(),
    )
    (cell,) = evaluation.cells
    assert (cell.strategy.name, cell.num_candidates) == ("sequential_best_of_n", 2)
    (line,) = evaluation.guarantees
    assert "guarantee: accuracy at most 0.02 below that of best_of_n N=2 without a stop" in line
    assert cli.run([*command[:-1], "0.015"]) == 2
    assert "200 questions certify nothing here" in capsys.readouterr().err
    assert json.loads(file.read_text())["chosen"] == 15
    for options in (["--target", "0.5"], ["--selective"], ["--against", "beam"]):
        assert cli.run([*command, *options]) == 2
        assert "--stopping: takes --max-loss E" in capsys.readouterr().err


def test_what_has_no_stopping_threshold(tmp_path):
    def refused(rows, message, max_loss=0.1, **config):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        run = made_runs.write_run(folder, rows, max_depth=10, **config)
        with pytest.raises(BadInputError, match=message):
            certify_stopping(run, max_loss, delta=0.05)

    def rows(strategy="best_of_n", seed=0):
        return [made_runs.row(strategy, 4, question=f"q{i}", seed=seed) for i in range(40)]

    best = {"strategies": ["best_of_n"]}
    refused(rows(), "which rows of the run lack: evaluate with `trees: true`", **best)
    refused(rows(), "--max-loss=1: must be between", max_loss=1.0, **best)
    refused(rows(), "40 questions certify nothing.* at least 63", max_loss=0.05, **best)
    refused(rows("beam"), "one configuration of best_of_n, and there are beam N=4 good: name one")
    refused(rows() + rows(seed=1), "several seeds", **best)
    narrow = made_runs.write_run(tmp_path / "narrow", rows(), max_depth=10, **best)
    narrow.manifest["config"]["strategies"][0]["options"] = [["beam_width", 2]]
    with pytest.raises(BadInputError, match="best_of_n N=4 has beam_width, which drops paths"):
        certify_stopping(narrow, 0.1, delta=0.05)
    refused(rows(), "the run has max_tokens, which ends", max_tokens=900, **best)
