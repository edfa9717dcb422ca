"""`cats-jax quality --certified`: bounds on made rows, on published scores, and the command."""

import json
from collections import defaultdict
from statistics import fmean

import numpy as np
import pytest

import theory
from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.scoring.certified_quality import certified_quality, certified_sheets
from cats_jax.scoring.labelled import read_labelled


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def made(number):
    """Two solutions a question; the PRM "good" is off by .1 and "blind" is always .5."""
    for i in range(number):
        for labels in ([1, 1], [1, i % 2]):
            good = [0.9 if label else 0.1 for label in labels]
            scores = {"good": [*good, 0.5], "blind": [0.5] * 3}
            steps = ["a", "b", "c"]
            yield {"question": f"q{i}", "steps": steps, "labels": labels, "scores": scores}


def test_a_question_has_one_value(tmp_path):
    labelled = read_labelled([write(tmp_path / "rows.jsonl", made(120))])
    (found,) = certified_quality(labelled, trust=0.9)
    assert found.questions == 120
    risks = {(each.prm, each.loss): each for each in found.risks}
    assert len(risks) == 6
    wrong = [0.25 * (i % 2 == 0) for i in range(120)]
    for (prm, loss), values in {
        ("good", "0-1"): [0.0] * 120,
        ("good", "Brier"): [0.01] * 120,
        ("good", "absolute"): [0.1] * 120,
        # A score of .5 counts as "right".
        ("blind", "0-1"): wrong,
        ("blind", "Brier"): [0.25] * 120,
    }.items():
        each = risks[prm, loss]
        assert each.always_right == pytest.approx(0.125)
        assert each.risk == pytest.approx(fmean(values))
        assert each.risk_bound == pytest.approx(theory.betting_upper(values, delta=0.05))
        gains = [a - b for a, b in zip(wrong, values, strict=True)]
        assert each.gain_bound == pytest.approx(theory.paired_lower(gains, delta=0.05))
    good, blind = found.steps
    # All steps with a score of .9 are right, and the others are wrong.
    assert (good.right, good.threshold) == (1.0, 0.15)
    assert 0.8 < good.coverage < 1.0
    assert (blind.threshold, blind.coverage, blind.right) == (None, 0.0, None)


def test_a_head_is_certified_on_what_did_not_fit_it(tmp_path):
    # Scores that are too low by 2 in log-odds: 0-1 errors fall once they are calibrated.
    rng = np.random.default_rng(0)
    rows = []
    for i in range(400):
        odds = rng.normal(0.0, 3.0, 3)
        labels = [int(rng.random() < 1 / (1 + np.exp(-x))) for x in odds]
        score = (1 / (1 + np.exp(2 - odds))).tolist()
        rows.append({"question": f"q{i}", "steps": ["a", "b", "c"], "labels": labels})
        rows[-1]["scores"] = {"low": score}
    labelled = read_labelled([write(tmp_path / "rows.jsonl", rows)])
    (found,) = certified_quality(labelled, calibrated=True)
    (head,) = found.heads
    assert (head.prm, head.questions) == ("low", 200)
    assert (head.intercept, head.slope) == pytest.approx((2.0, 1.0), abs=0.3)
    risks = {(each.prm, each.loss): each for each in found.risks}
    raw, better = risks["low", "0-1"], risks["low, calibrated", "0-1"]
    assert better.risk < raw.risk
    # The 200 questions of the other half, one value each.
    half = set(np.random.default_rng(0).permutation(400)[:200].tolist())
    values = [
        fmean(
            (head.intercept + head.slope * np.log(score / (1 - score)) >= 0) != label
            for score, label in zip(row["scores"]["low"], row["labels"], strict=True)
        )
        for i, row in enumerate(rows)
        if i not in half
    ]
    assert better.risk == pytest.approx(fmean(values))
    assert better.risk_bound == pytest.approx(theory.betting_upper(values, delta=0.05))
    note = certified_sheets(found)[0].notes[1]
    assert note.startswith("low, calibrated: log-odds +")
    assert note.endswith("fitted to 200 questions and certified on the others")
    right = [{**row, "labels": [1, 1, 1]} for row in rows]
    labelled = read_labelled([write(tmp_path / "right.jsonl", right)])
    with pytest.raises(BadInputError, match="steps of one label only"):
        certified_quality(labelled, calibrated=True)


def test_a_group_that_can_fit_no_calibration_is_named_before_it_is_scored(tmp_path, capsys):
    rows = [{**row, "set": "large"} for row in made(40)]
    rows += [{**row, "set": "small"} for row in made(1)]
    for row in rows:
        del row["scores"]
    source = write(tmp_path / "rows.jsonl", rows)
    command = ["quality", str(source), "--certified", "--calibrated", "--by", "set"]
    assert cli.run([*command, "--prms", "no/such/model"]) == 2
    assert "--calibrated: small: half of the 1 questions has" in capsys.readouterr().err


def test_the_command(tmp_path, capsys):
    source = write(tmp_path / "rows.jsonl", made(120))
    output = tmp_path / "figures.json"
    command = ["quality", str(source), "--certified", "--trust", "0.9", "--output", str(output)]
    assert cli.run(command) == 0
    printed = capsys.readouterr().out
    assert "all: 120 questions; certified risk of a question's steps" in printed
    assert (
        "all: 120 questions; scores from which on a step is right with probability 0.9" in printed
    )
    (group,) = json.loads(output.read_text())["certified"]
    assert [each["prm"] for each in group["steps"]] == ["good", "blind"]
    for option, value in (("--trust", "1"), ("--delta", "0")):
        assert cli.run(["quality", str(source), "--certified", option, value]) == 2
        assert f"{option}={value}: must be between 0 and 1" in capsys.readouterr().err
    assert cli.run(["quality", str(source), "--calibrated"]) == 2
    assert "give it with --certified" in capsys.readouterr().err
    with pytest.raises(BadInputError, match="--delta=2"):
        certified_quality(read_labelled([source]), delta=2.0)


def test_published_prms(shared):
    """679 questions; the same values by question, computed without arrays."""
    labelled = read_labelled([shared("real/prm_steps/steps.jsonl")])
    (found,) = certified_quality(labelled)
    assert found.questions == 679
    risks = {(each.prm, each.loss): each for each in found.risks}
    prm = "math-shepherd_mistral-7b"
    errors = defaultdict(list)
    for path in labelled.paths:
        for score, label in zip(path.scores[prm], path.labels, strict=True):
            if label is not None:
                errors[path.question].append(float((score >= 0.5) != bool(label)))
    values = [fmean(each) for each in errors.values()]
    mine = risks[prm, "0-1"]
    assert round(mine.always_right, 3) == 0.313
    assert mine.risk == pytest.approx(fmean(values))
    assert mine.risk_bound == pytest.approx(theory.betting_upper(values, delta=0.05))
    # The figures of the page.
    assert [round(each, 3) for each in (mine.risk, mine.risk_bound)] == [0.168, 0.197]
    assert all(each.gain_bound > 0 for each in found.risks)
    assert all(each.coverage > 0.4 and (each.right or 0) > 0.85 for each in found.steps)
