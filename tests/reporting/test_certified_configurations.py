"""`cats-jax certify`: claims on made rows, the table, the file, and what is refused."""

import dataclasses
import json
from typing import Any

import made_runs
import numpy as np
import pytest

import theory
from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.reporting.certified_configurations import (
    Claim,
    _questions_needed,
    certificate_sheet,
    certify_run,
    draw_certificate,
)
from cats_jax.runs.folder import RunFolder

QUESTIONS = 500
LEVEL = 0.05 * 0.8


def rows(right: dict[int, Any], strategy: str = "best_of_n", seed: int = 0) -> list[Any]:
    """A row for each question: the first so many are right, or those of a mask."""
    made = []
    for n, number in right.items():
        mask = np.arange(QUESTIONS) < number if isinstance(number, int) else number
        made += [
            made_runs.row(
                strategy, n, question=f"q{i}", seed=seed, correct=bool(one), tokens=100 * n
            )
            for i, one in enumerate(mask)
        ]
    return made


def made(tmp_path, content, **config):
    return RunFolder(tmp_path / "run", made_runs.manifest(max_depth=10, **config), tuple(content))


RISING = {1: 160, 2: 205, 4: 250, 8: 285, 16: 310, 32: 330}


def test_the_cheapest_configuration_above_a_target(tmp_path):
    run = made(tmp_path, rows(RISING))
    for order in ("holm", "descending"):
        for target, n in ((0.5, 8), (0.6, 32)):
            found = certify_run(run, Claim(target=target), delta=0.05, order=order)
            assert found.chosen is not None
            assert found.chosen.group.num_candidates == n
            assert [each.group.num_candidates for each in found.configurations] == list(RISING)
    # All bounds hold together.
    bounds = [each.bound for each in found.configurations]
    expected = theory.binomial_lower(list(RISING.values()), QUESTIONS, delta=LEVEL / 6)
    assert bounds == pytest.approx(list(np.asarray(expected)), abs=1e-12)


def test_nothing_is_certified(tmp_path):
    run = made(tmp_path, rows({1: 160, 2: 185, 4: 190, 8: 186}))
    found = certify_run(run, Claim(target=0.36), delta=0.05)
    assert found.chosen is None
    (note, *_) = certificate_sheet(found).notes
    assert note.startswith("no configuration is certified; best_of_n N=4 has the smallest p value")
    needed = _questions_needed(190 / 500, 0.36, LEVEL / 4)
    assert needed is not None
    assert f"about {needed} new questions would do" in note
    # So many do, and half as many do not.
    for number, does in ((needed, True), (needed // 2, False)):
        tested = theory.certify([int(0.38 * number)], number, target=0.36, delta=LEVEL / 4)
        assert (tested.index is not None) is does
    assert _questions_needed(0.3, 0.36, 0.01) is None


def test_in_descending_order_the_first_test_has_the_whole_delta(tmp_path):
    five = [row for row in rows(dict.fromkeys(RISING, 5)) if int(row.question[1:]) < 5]
    run = made(tmp_path, five)
    found = certify_run(run, Claim(target=0.5), delta=0.05, order="descending")
    assert found.chosen is not None
    assert found.chosen.group.num_candidates == 1
    with pytest.raises(BadInputError, match="takes at least 8 questions with 6 configurations"):
        certify_run(run, Claim(target=0.5), delta=0.05)
    # If the test of the largest N fails, no number of questions helps the others.
    falling = made(tmp_path, rows({4: 300, 8: 240}))
    found = certify_run(falling, Claim(target=0.5), delta=0.05, order="descending")
    note, *_ = certificate_sheet(found).notes
    assert note == (
        "no configuration is certified; best_of_n N=8 is tested first, and its accuracy of 0.480 "
        "is not above the target"
    )


def test_a_rival_is_not_in_the_order_of_the_tests(tmp_path):
    run = made(tmp_path, rows({16: 310}) + rows({4: 305, 8: 310}, "cats"))
    claim = Claim(max_loss=0.1, against="best_of_n")
    found = certify_run(run, claim, delta=0.05, order="descending")
    assert [each.certified for each in found.configurations] == [True, True]


def test_an_unfinished_run_certifies_nothing(tmp_path):
    run = made(tmp_path, rows({4: 300}) + rows({4: 300}, seed=1)[:-2])
    with pytest.raises(BadInputError, match="best_of_n N=4 lacks 2 rows of its seeds, and easy"):
        certify_run(run, Claim(target=0.5), delta=0.05)
    run = made(tmp_path, rows({4: 300}))
    run.manifest["questions"]["count"] = QUESTIONS + 1
    with pytest.raises(BadInputError, match="rows of 500 of its 501 questions, and easy ones end"):
        certify_run(run, Claim(target=0.5), delta=0.05)


def test_a_loss_counts_harmful_questions(tmp_path):
    full = np.arange(QUESTIONS) < 330
    cheap = full.copy()
    cheap[[3, 4]] = False  # harmful
    cheap[[400, 401, 402]] = True  # lucky: they make up for nothing
    poor = np.arange(QUESTIONS) < 300
    run = made(tmp_path, rows({4: poor, 8: cheap, 32: full}))
    found = certify_run(run, Claim(max_loss=0.02, against="best_of_n"), delta=0.05)
    assert [each.group.num_candidates for each in found.configurations] == [4, 8]
    assert [each.certified for each in found.configurations] == [False, True]
    expected = theory.selective_p([30, 2], QUESTIONS, 0.02)
    assert [each.p_value for each in found.configurations] == pytest.approx(list(expected))
    bound = theory.binomial_upper(2, QUESTIONS, delta=LEVEL / 2)
    assert found.configurations[1].bound == pytest.approx(bound)
    assert [each.lost for each in found.configurations] == [30 / QUESTIONS, 2 / QUESTIONS]
    content = found.as_json()
    assert content["words"] == "accuracy at most 0.02 below that of best_of_n N=32"
    assert content["claim"]["against_num_candidates"] == 32


def test_of_several_seeds_a_question_counts_once(tmp_path):
    both = rows({4: 250, 8: 290}) + rows({4: 260, 8: 300}, seed=1)
    found = certify_run(made(tmp_path, both), Claim(target=0.5), delta=0.05)
    means = np.clip(np.array([300 - np.arange(QUESTIONS), 290 - np.arange(QUESTIONS)]), 0, 1)
    values = means.mean(axis=0)
    assert found.num_questions == QUESTIONS
    assert found.configurations[1].p_value == pytest.approx(theory.betting_p(values, 0.5))
    assert found.configurations[1].bound == pytest.approx(
        theory.betting_lower(values, delta=LEVEL / 2)
    )
    assert any("several seeds" in note for note in certificate_sheet(found).notes)
    lost = certify_run(
        made(tmp_path / "again", both), Claim(max_loss=0.2, against="best_of_n"), delta=0.05
    )
    (only,) = lost.configurations
    assert only.certified
    assert only.bound >= np.mean(values) - np.mean(only.group.mean("correct"))


def test_with_several_seeds_gains_certify_a_loss_by_fewer_questions(tmp_path):
    """With one seed 160 questions without a harmful one are needed, and gains do not count."""
    claim = Claim(max_loss=0.02, against="best_of_n")
    half = np.arange(QUESTIONS) % 2

    def run(seeds):
        content = [
            row
            for seed in range(seeds)
            for row in (
                *rows({4: half == seed}, seed=seed),
                *rows({4: half >= 0}, strategy="beam", seed=seed),
            )
            if int(row.question[1:]) < 100
        ]
        return made(tmp_path / str(seeds), content)

    (found,) = certify_run(run(2), claim, delta=0.05).configurations
    assert found.certified
    assert found.lost == -0.5
    with pytest.raises(BadInputError, match=r"100 questions certify.*takes at least 160 questions"):
        certify_run(run(1), claim, delta=0.05)


def test_the_command(tmp_path, capsys):
    made_runs.write_run(tmp_path / "run", rows(RISING), max_depth=10)
    arguments = ["certify", str(tmp_path / "run"), "--target", "0.5"]
    assert cli.run([*arguments, "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert (
        "accuracy above 0.5, tested on 500 questions; what is certified holds with probability 0.95"
        in printed
    )
    assert "the cheapest certified configuration is best_of_n N=8: 800 tokens" in printed
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["chosen"] == 3
    assert certificate["claim"] == {
        "target": 0.5,
        "max_loss": None,
        "against": None,
        "against_num_candidates": None,
    }
    assert certificate["configurations"][3]["num_candidates"] == 8
    assert set(certificate) >= {"delta", "order", "questions", "models", "num_questions"}
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "certificate.md",
        "certificate.csv",
        "certificate.tex",
        "certificate.png",
        "certificate.svg",
        "certificate.pdf",
    }
    assert cli.run(["certify", str(tmp_path / "run"), "--target", "0.9"]) == 1


def test_configurations_without_tokens_are_in_the_figure(tmp_path):
    content = [made_runs.row("best_of_n", 1, question=f"q{i}", tokens=0) for i in range(3)]
    certificate = certify_run(made(tmp_path, content, count=3), Claim(0.1, None, None), delta=0.05)
    (axes,) = draw_certificate(certificate).axes
    assert axes.get_xscale() == "linear"


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({}, "give --target A, or --max-loss E"),
        ({"target": 0.5, "max_loss": 0.1, "against": "beam"}, "give --target A, or"),
        ({"max_loss": 0.1}, "--max-loss E and --against STRATEGY belong together"),
        ({"target": 0.5, "against": "beam"}, "belong together"),
        ({"target": 1.5}, "--target=1.5: must be between 0 and 1"),
        ({"max_loss": 0.0, "against": "beam"}, "--max-loss=0: must be"),
    ],
)
def test_a_claim_is_one(claim, message):
    with pytest.raises(BadInputError, match=message):
        Claim(**claim)


def test_what_a_run_can_not_certify(tmp_path):
    half = Claim(target=0.5)

    def refused(content, message, claim=half, order="holm", **config):
        if spent := config.pop("spent", None):
            ledger = dataclasses.replace(content[0].ledger, candidates=spent)
            content = [dataclasses.replace(content[0], ledger=ledger), *content[1:]]
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with pytest.raises(BadInputError, match=message):
            certify_run(made(folder, content, **config), claim, delta=0.05, order=order)

    few = [row for row in rows({4: 5}) if int(row.question[1:]) < 4]
    refused(few, r"4 questions certify nothing here.* takes at least 5 questions$")
    validation = ({"world": "validation", "dataset": None, "label": "world-validation"},)
    refused(rows({4: 300}), "'validation', which trained or chose", questions=validation)
    refused(
        rows({4: 300}), "was rescored.*write the change into the recipe", rescored={"from": "r"}
    )
    replay = made(tmp_path / "replay", rows({4: 300}))
    models = {**replay.manifest["models"], "bank": {"config": {}}}
    replay = dataclasses.replace(replay, manifest={**replay.manifest, "models": models})
    with pytest.raises(BadInputError, match="is a replay of a step bank, whose"):
        certify_run(replay, half, delta=0.05)
    refused(rows({4: 300}), "has max_seconds=3.0, by which the speed", max_seconds=3.0)
    run = made(tmp_path / "copies", rows({4: 300}))
    copies = {**run.manifest, "texts": ["a", "b", "a"]}
    with pytest.raises(BadInputError, match="has 1 questions that are copies of others"):
        certify_run(dataclasses.replace(run, manifest=copies), half, delta=0.05)
    missing = rows({4: 300, 8: 300})
    del missing[QUESTIONS + 7]
    refused(missing, "rows of other questions: finish the run first")
    two = rows({4: 300}) + rows({4: 300}, strategy="beam")
    refused(two, "one strategy with one PRM alone: take --order holm", order="descending")
    unknown = Claim(max_loss=0.1, against="beem")
    refused(two, "--against 'beem'.*beam", unknown)
    refused(rows({4: 300}), "no other configuration", Claim(max_loss=0.1, against="best_of_n"))
    refused(rows({4: 300}), "more than the budget of 3 in the run", budget=3, spent=7)
    with pytest.raises(BadInputError, match="--delta=0: must be between"):
        certify_run(made(tmp_path / "last", rows({4: 300})), Claim(target=0.5), delta=0.0)


def test_of_several_seeds_no_number_of_questions_is_named(tmp_path):
    # The number would be that of the exact test, and means of seeds are tested by betting.
    alternate = np.arange(QUESTIONS) % 2 == 0
    content = [*rows({1: 160, 2: 230}), *rows({1: alternate, 2: alternate}, seed=1)]
    found = certify_run(made(tmp_path, content), Claim(target=0.44), delta=0.05)
    assert found.chosen is None
    (note, *_) = certificate_sheet(found).notes
    assert note.endswith("it takes more than 500 questions, and new ones")
