"""`cats-jax quality`, from files to tables."""

import json
import re

import pytest
import tiny_models

from cats_jax.cli import run
from cats_jax.world import task

ROWS = [
    {"question": "q1", "steps": ["a", "b"], "labels": [1, 0], "scores": {"x": [0.9, 0.2]}},
    {"question": "q2", "steps": ["a", "b"], "labels": [1], "scores": {"x": [0.7, 0.2]}},
    {"question": "q3", "steps": ["a"], "labels": [], "scores": {"x": [0.7]}},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def world_rows(count):
    """Right solutions of the embedded world's questions, and the same with a wrong last sum."""
    rows = []
    for problem in task.problems("test", count):
        checker, steps = task.StepChecker(problem.text), []
        while not (steps and steps[-1].startswith("\\boxed")):
            steps.append(checker.right_steps()[0])
            checker.accept(steps[-1])
        *before, last, _ = steps
        left, equals, value = last.partition("=")
        rows += [
            {"problem": problem.text, "steps": steps, "label": -1},
            {
                "problem": problem.text,
                "steps": [*before, f"{left}{equals}{int(value) + 1}", "\\boxed{1}"],
                "label": len(before),
            },
        ]
    return rows


def test_scores_in_the_rows(tmp_path, capsys):
    source = write(tmp_path / "rows.jsonl", ROWS)
    output, plot = tmp_path / "figures.json", tmp_path / "curves.png"
    arguments = ["quality", str(source), "--output", str(output), "--plot", str(plot)]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "1 of 3 rows have no labelled step and are left out" in printed
    assert "all: 2 questions, 2 solutions, 3 labelled steps, 0.667 of them right" in printed
    assert re.search(r"\| x +\| +\.228 \(", printed)  # -(ln .9 + ln .8 + ln .7) / 3
    content = json.loads(output.read_text())
    assert content["unlabelled_rows"] == 1
    (group,) = content["groups"]
    assert [prm["prm"] for prm in group["prms"]] == ["x", "constant .5", "constant share right"]
    assert group["prms"][0]["pair"] is None
    assert group["prms"][0]["auc"]["value"] == 1.0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("*.new")) == []


def test_infinite_losses_are_said(tmp_path, capsys):
    rows = [{**ROWS[0], "scores": [0.9, 1.0]}]
    output = tmp_path / "figures.json"
    source = write(tmp_path / "rows.jsonl", rows)
    assert run(["quality", str(source), "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "1 scores are exactly 0 or 1 and wrong" in printed
    assert "inf (inf-inf)" in printed
    prm = json.loads(output.read_text())["groups"][0]["prms"][0]
    assert prm["cross_entropy"]["value"] == "inf"
    assert prm["certain_and_wrong"] == 1
    assert run(["quality", str(source), "--clip", "1e-6"]) == 0
    assert "inf" not in capsys.readouterr().out


def test_labels_that_are_all_the_same_are_said(tmp_path, capsys):
    assert run(["quality", str(write(tmp_path / "rows.jsonl", ROWS[1:]))]) == 0
    printed = capsys.readouterr().out
    assert "all of them right, so that there is no AUC" in printed
    assert re.search(r"\| x +\| +- \| +- \|", printed)


def test_prms_score_the_steps(tmp_path, capsys):
    source = write(tmp_path / "rows.jsonl", world_rows(12))
    scored, output = tmp_path / "scored.jsonl", tmp_path / "figures.json"
    common = ["--output", str(output)]
    arguments = ["quality", str(source), "--prms", "exact", "labels-only", "--scored", str(scored)]
    assert run([*arguments, *common]) == 0
    capsys.readouterr()
    content = json.loads(output.read_text())
    (group,) = content["groups"]
    assert (group["questions"], group["solutions"], group["pairs"]) == (12, 24, 12)
    exact = group["prms"][0]
    assert exact["prm"] == "exact"
    assert exact["auc"]["value"] > 0.9  # it knows the world's arithmetic
    assert exact["pair"]["value"] > 0.9
    # The rows that were kept give the same figures without a model.
    assert run(["quality", str(scored), *common]) == 0
    assert json.loads(output.read_text()) == content
    # They are those of `cats-jax score`, as far as there are labels.
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    again = tmp_path / "again.jsonl"
    plain = write(
        tmp_path / "plain.jsonl", [{key: row[key] for key in ("question", "steps")} for row in rows]
    )
    arguments = ["--prm", "exact", "--input", str(plain), "--output", str(again)]
    assert run(["score", *arguments]) == 0
    for row, line in zip(rows, again.read_text().splitlines(), strict=True):
        assert row["scores"]["exact"] == pytest.approx(json.loads(line)["scores"], abs=1e-6)
        assert len(row["labels"]) == len(row["steps"])


def test_scores_of_the_rows_stay_beside_new_ones(tmp_path, capsys):
    folder = tiny_models.save_model(tmp_path / "tiny", seed=3)
    source = write(tmp_path / "rows.jsonl", ROWS)
    assert run(["quality", str(source), "--prms", str(folder), "--prm-format", "world"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| x +\|", printed)
    assert re.search(r"\| tiny +\|", printed)


def test_rows_that_cannot_be_scored_are_left_out_and_named(tmp_path, capsys):
    folder = tiny_models.save_model(tmp_path / "tiny", seed=3)
    plain = [{key: row[key] for key in ("question", "steps", "labels")} for row in ROWS[:2]]
    long = {"question": "q", "steps": ["2" * 400, "3"], "labels": [1, 0]}
    source = write(tmp_path / "rows.jsonl", [plain[0], long, plain[1]])
    output = tmp_path / "figures.json"
    common = ["--prms", str(folder), "--prm-format", "world", "--output", str(output)]
    assert run(["quality", str(source), *common]) == 0
    printed = capsys.readouterr().out
    assert "1 paths can't be scored, their rows are left out" in printed
    assert f"{source}:2: steps[0]: the path has 40" in printed
    content = json.loads(output.read_text())
    assert (len(content["unscored_paths"]), content["groups"][0]["steps"]) == (1, 3)
    assert run(["quality", str(write(source, [long])), *common]) == 2
    assert "can score none of 1 paths" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rows.jsonl", "--delta", "0.1"], "--delta and --trust are those of --certified"),
        (["rows.jsonl", "--prm-format", "world"], "--prm-format: is for PRMs that score the steps"),
        (["rows.jsonl", "--quantile", "1.5"], "quantile=1.5: must be in (0, 1]"),
        (["rows.jsonl", "--clip", "0.7"], "clip=0.7: must be in [0, 0.5)"),
        (["rows.jsonl", "--output", "."], "--output '.' is a folder: name a file"),
        (["rows.jsonl", "--plot", "no/curves.png"], "--plot: folder 'no' does not exist"),
        (["rows.jsonl", "--plot", "curves.jpg"], "--plot 'curves.jpg': the suffix is the format"),
        (["rows.jsonl", "--scored", "a.jsonl"], "name the PRMs by --prms, or leave it out"),
        (["rows.jsonl", "--prms", "nowhere"], "PRM folder 'nowhere' does not exist"),
        (["rows.jsonl", "--prms", "exact", "exact"], "PRM 'exact' stands twice among x, exact"),
        (["rows.jsonl", "--prms", "exact", "--batch-tokens", "0"], "--batch-tokens=0: must be"),
        (["rows.jsonl", "--prms", "a", "b", "--backend", "http://x"], "has one PRM: name it alone"),
        (["rows.jsonl", "--prms", "a", "b", "--backend", "auto"], "PRM folder 'a' does not exist"),
        (["rows.jsonl", "--by", "set"], "rows.jsonl:1: column 'set', by which"),
        (["plain.jsonl"], 'plain.jsonl:1: the rows have no "scores": name PRMs to score them by'),
        (["broken.jsonl", "--prms", "exact"], "broken.jsonl:1: labels[0]=2: must be 1"),
        ([], "name at least one file of labelled steps"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cats_jax.models.source.ModelFolders.prm", lambda *_: pytest.fail("loaded"))
    write(tmp_path / "rows.jsonl", ROWS)
    write(tmp_path / "plain.jsonl", [{"question": "q", "steps": ["a"], "labels": [1]}])
    write(tmp_path / "broken.jsonl", [{"question": "q", "steps": ["a"], "labels": [2]}])
    assert run(["quality", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
