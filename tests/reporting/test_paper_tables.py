"""The paper's tables beside runs: what is matched, the means, and what is missing."""

import dataclasses
import itertools
import json
import pathlib
import random
from typing import Any

import pytest
from made_runs import row, write_run

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.reporting.paper_cells import (
    ABLATIONS,
    DATASETS,
    POLICY,
    PRMS,
    nothing_found,
    searched,
)
from cats_jax.reporting.paper_tables import paper_sheets
from cats_jax.specs.recipe import load_recipe

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAPER = ROOT / "recipes" / "paper"
LABELS = ("math-shepherd", "rlhflow-mistral", "rlhflow-deepseek", "skywork", "qwen2.5-math-prm")
SIZES = (4, 8, 16, 32, 64, 128, 256)


def write(folder, rows, strategies, dataset="math500", policy="models/Qwen2.5-7B-Instruct"):
    return write_run(
        folder,
        rows,
        name=folder.name,
        strategies=[("cats", label) for label in strategies],
        prms=LABELS,
        policy=policy,
        questions=[{"dataset": dataset, "label": dataset}],
    )


def cell(sheet, **wanted) -> dict[str, Any]:
    (record,) = [r for r in sheet.records if wanted.items() <= r.items()]
    return record


@pytest.mark.parametrize("path", sorted(PAPER.glob("ablation-*.yaml")), ids=lambda path: path.stem)
def test_every_row_of_the_recipes_is_a_row_of_the_papers_table(tmp_path, path):
    recipe = load_recipe(path)
    rows = [
        row(spec.label, n, prm.label)
        for spec in recipe.strategies
        for prm in recipe.prms
        for n in recipe.num_candidates
    ]
    run = write_run(tmp_path, rows)
    config = {**run.manifest["config"], **json.loads(json.dumps(recipe.as_config()))}
    run = dataclasses.replace(run, manifest={**run.manifest, "config": config})
    (sheet,) = paper_sheets([run])
    assert {key.policy for key in searched([run])} == {POLICY}
    assert {key.prm for key in searched([run])} == set(PRMS)
    dataset = DATASETS[recipe.questions[0].label]
    mine = [record for record in sheet.records if record.get("dataset", dataset) == dataset]
    assert len(mine) == len(recipe.strategies) * (5 if "sparsity" in path.stem else 1)
    assert all(record["ours"] == 100.0 for record in mine)
    others = [record for record in sheet.records if record not in mine]
    assert all(record["ours"] is None for record in others)


def test_means_are_those_of_plain_python(tmp_path):
    draw = random.Random(0)
    rows = [
        row(label, n, prm, question=f"q{index}", seed=seed, correct=draw.random() < 0.7)
        for label in ("with", "without")
        for prm in LABELS
        for n in SIZES
        for index in range(5)
        for seed in range(2)
    ]
    (sheet,) = paper_sheets([write(tmp_path, rows, ["with", "without"], "aime24")])
    names = {"math-shepherd": "Math-Shepherd-PRM-7B", "skywork": "Skywork-PRM-1.5B"}
    for label, prm in itertools.product(("with", "without"), names):
        right = [r.correct for r in rows if (r.strategy, r.prm) == (label, prm)]
        found = cell(sheet, row=f"{label} sparsity", prm=names[prm], dataset="AIME24")
        assert found["ours"] == pytest.approx(100 * sum(right) / len(right))
        assert found["ours_low"] < found["ours"] < found["ours_high"]
        assert found["questions"] == 5
    found = cell(sheet, row="without sparsity", prm="Skywork-PRM-1.5B", dataset="AIME24")
    assert found["paper"] == 22.45
    for end in ("", "_low", "_high"):
        assert found[f"difference{end}"] == pytest.approx(found[f"ours{end}"] - 22.45)
    assert "on a part only: 5 of the 30 questions of AIME24" in sheet.notes
    assert any(note.endswith("on MATH-500: all of it") for note in sheet.notes)


def test_a_mean_over_the_five_prms(tmp_path):
    rows = [
        row("0.9", n, prm, question=f"q{index}", correct=prm[0] in "mq" and n < 256)
        for prm in LABELS
        for n in SIZES
        for index in range(2)
    ]
    (sheet,) = paper_sheets([write(tmp_path, rows, ["0.9"])])
    found = cell(sheet, row="0.9")
    # Questions of math-shepherd and qwen2.5-math-prm are right, at six of seven N.
    assert found["ours"] == pytest.approx(100 * 2 / 5 * 6 / 7)
    assert found["paper"] == 84.71


def test_a_cell_that_is_not_whole_has_no_figure_and_is_named(tmp_path):
    rows = [row("with", n, prm) for prm in LABELS[:2] for n in SIZES if (prm, n) != (LABELS[1], 32)]
    (sheet,) = paper_sheets([write(tmp_path, rows, ["with"])])
    first, second = (
        cell(sheet, row="with sparsity", prm=prm, dataset="MATH-500")
        for prm in ("Math-Shepherd-PRM-7B", "RLHFlow-PRM-Mistral-8B")
    )
    assert first["ours"] == 100.0
    assert second["ours"] is second["difference"] is None
    assert second["paper"] == 84.05
    (note,) = [
        note for note in sheet.notes if note.startswith("not in the runs, or not whole, on M")
    ]
    assert "with sparsity with RLHFlow-PRM-Mistral-8B (no N = 32)" in note
    assert "without sparsity with Skywork-PRM-1.5B" in note
    assert "with sparsity with Math-Shepherd-PRM-7B;" not in note.replace("without", "")
    assert "of these tables the runs have nothing: tab:compare, tab:lambda" in sheet.notes[-1]


def test_cats_of_the_grid_has_the_sparsity_and_other_strategies_are_named(tmp_path):
    rows = [row("cats", n, "skywork") for n in SIZES]
    run = write(tmp_path, [*rows, row("beam", 4, "skywork")], ["cats"])
    sheets = paper_sheets([run])
    assert [sheet.name for sheet in sheets] == [
        "paper_abl_sparse",
        "paper_compare",
        "paper_compare_differences",
    ]
    found = cell(sheets[0], row="with sparsity", prm="Skywork-PRM-1.5B", dataset="MATH-500")
    assert found["ours"] == 100.0
    assert "the paper prints no numbers for: beam" in sheets[-1].notes


def test_the_comparison_has_the_recorded_rows_and_ours_at_the_largest_n(tmp_path):
    runs = [
        write(
            tmp_path / dataset,
            [row("cats", n, "qwen2.5-math-prm", correct=n == 256) for n in (64, 256)],
            ["cats"],
            dataset,
            "models/Llama-3.2-1B-Instruct",
        )
        for dataset in ("gsm8k", "olympiadbench")
    ]
    compared, differences = paper_sheets(runs)
    recorded = [record for record in compared.records if record["method"] != "CATS, here"]
    assert len(recorded) == 12
    assert recorded[1]["gsm8k"] == 75.7
    (ours,) = [record for record in compared.records if record not in recorded]
    assert ours["base_model"] == "Llama-3.2-1B-Instruct"
    assert [ours[name] for name in ("num_candidates", "gsm8k", "math")] == [256, 100.0, None]
    assert [record["dataset"] for record in differences.records] == ["GSM8K", "OlympiadBench"]
    assert cell(differences, dataset="GSM8K")["difference"] == pytest.approx(100 - 88.4)
    notes = " ".join(compared.notes)
    assert "the paper prints no figure for: STILL-1 on GSM8K and MATH, LiteSearch on" in notes
    assert "Llama-3.2-1B-Instruct on MATH-500 with Qwen2.5-Math-PRM-7B" in notes


def test_two_runs_of_one_cell_are_refused(tmp_path):
    runs = [write(tmp_path / name, [row("cats", 4, "skywork")], ["cats"]) for name in "ab"]
    with pytest.raises(BadInputError, match=r"cats N=4 with 'skywork' on MATH-500 is in .*a' and"):
        paper_sheets(runs)


def test_runs_of_which_the_paper_has_nothing_are_told_what_was_looked_for(tmp_path, capsys):
    for policy, dataset, label in (
        ("weak", "math500", "cats"),
        ("models/Qwen2.5-7B-Instruct", "math", "cats"),
        ("models/Qwen2.5-7B-Instruct", "math500", "mine"),
    ):
        folder = tmp_path / f"{policy[:4]}-{dataset}-{label}"
        run = write(folder, [row(label, 4, "skywork")], [label], dataset, policy)
        assert paper_sheets([run]) == []
        sentence = nothing_found([run])
        assert f"the policies {policy.rpartition('/')[-1]}, the data sets {dataset}," in sentence
        assert "Qwen2.5-7B-Instruct, the data sets math500, aime24, gsm8k, olympiad" in sentence
        assert "Skywork-o1-Open-PRM-Qwen-2.5-1.5B" in sentence
    assert cli.run(["report", str(folder), "--paper"]) == 0
    assert sentence in capsys.readouterr().out.splitlines()


def test_no_number_of_the_ablations_is_missing():
    assert [len(table.cells) for table in ABLATIONS] == [20, 8, 8, 6]
