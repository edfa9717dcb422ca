"""The tables of the frontier from kept rows, against numbers worked out by hand."""

import pytest
from letters import QUESTIONS, run
from made_runs import row, write_run

import search
from cats_jax.runs.folder import RunWriter
from cats_jax.storage.manifest import make_manifest
from studies.world.results.frontier_tables import TOKEN_BUDGETS, frontier_tables
from studies.world.results.markdown import numbers
from studies.world.results.rows import keep_run, load_scores

CELLS = {  # right of 8 questions, tokens, FLOPs
    ("greedy", 1, None): (2, 100, 1e6),
    ("beam", 4, "exact"): (4, 400, 9e6),
    ("cats", 4, "exact"): (4, 200, 3e6),
    ("cats-0", 16, "exact"): (6, 800, 5e6),
    ("rule", 16, "exact"): (5, 1000, 6e6),
}


def keep(folder, name, cells):
    rows = []
    for key, (right, tokens, flops) in cells.items():
        costs = {"tokens": tokens, "flops": flops}
        rows += [row(*key, question=f"{name}{q}", correct=q < right, **costs) for q in range(8)]
    write_run(folder / name, rows)
    keep_run(folder / name, folder)


def test_a_controller_and_its_rivals_meet_at_nine_budgets(tmp_path):
    assert list(frontier_tables(tmp_path, "weak")) == []
    for name in ("weak-unseen-validation", "weak-unseen-test"):
        keep(tmp_path, name, CELLS)
    tables = {table.name: table.as_mappings() for table in frontier_tables(tmp_path, "weak")}
    tokens = tables["unseen-weak-tokens"]
    assert [float(line["budget, tokens"]) for line in tokens] == [round(b) for b in TOKEN_BUDGETS]
    # Greedy decoding is a point of both.
    assert tokens[0]["accuracy (tokens)"] == tokens[0]["rivals' (tokens)"] == ".250 (100)"
    assert tokens[1]["accuracy (tokens)"] == ".445 (178)"
    # 316 tokens: CATS is 116 / 600 of the way from 4 to 6 of 8; greedy and beam 216 / 300 from 2
    # to 4.
    own, rival = (4 + 2 * 116.23 / 600) / 8, (2 + 2 * 216.23 / 300) / 8
    assert numbers(tokens[2]["lead, 95 % interval"])[0] == pytest.approx(own - rival, abs=5e-4)
    assert tokens[-1]["rivals' choice"] == "rule N=16"
    assert numbers(tokens[-1]["lead, 95 % interval"])[0] == pytest.approx(1 / 8)
    lead, same = tables["unseen-weak-tokens-leads"]
    assert (lead["PRM"], lead["controller"]) == ("exact", "cats")
    # There is no pilot here, and so no choice by difficulty.
    assert {**same, "rivals": "all"} == lead
    assert sum(map(int, lead["wins/ties/losses"].split("/"))) == 9
    # Budgets in FLOPs have leads of their own.
    in_flops = tables["unseen-weak-flops-leads"][0]
    assert sum(map(int, in_flops["wins/ties/losses"].split("/"))) == 9
    # Of 8 questions: CATS with 2, 4, 6 right for 1, 3, 5 MFLOP, the rivals with 2, 5 for 1, 6, and
    # straight lines between; at the nine budgets the leads are 0, .039, .108, .153 and five .125.
    mean = (0 + 0.0389 + 0.1081 + 0.1532 + 5 * 0.125) / 9
    assert numbers(in_flops["mean lead, 95 % interval"])[0] == pytest.approx(mean, abs=1e-3)


def test_another_controller_meets_mixtures_of_the_shipped_one(tmp_path):
    points = {  # right of 8 questions, tokens
        "cats": (2, 100),
        "cats-0": (6, 300),
        "asking0-1": (5, 200),
        "clone1-1": (6, 200),
        "asking2-1": (7, 200),
        "rule": (8, 50),
    }
    cells = {(label, 4, "exact"): (*values, 1e6) for label, values in points.items()}
    for part in ("validation", "test"):
        keep(tmp_path, f"weak-rivals-{part}", cells)
        keep(tmp_path, f"weak-tokens-{part}", {})
    tables = {table.name: table.as_mappings() for table in frontier_tables(tmp_path, "weak")}
    found: dict[str, dict[str, dict[str, str]]] = {}
    for line in tables["tokens-weak-shipped"]:
        found.setdefault(line["controller"], {})[line["budget, tokens"]] = line
    # The clones without these calls are in the tables of means only.
    assert list(found) == [f"clone, selective PRM calls, seed {seed}" for seed in (0, 2)]
    at, asking = found.values()
    assert asking["200"]["accuracy (tokens)"] == ".875 (200)"
    assert asking["200"]["rivals' (tokens)"] == ".500 (200)"
    assert at["180"]["accuracy (tokens)"] == ""
    assert at["200"]["rivals' (tokens)"] == ".500 (200)"
    assert numbers(at["200"]["lead, 95 % interval"])[0] == pytest.approx(1 / 8)
    assert numbers(at["240"]["lead, 95 % interval"])[0] == pytest.approx((5 - 4.8) / 8)
    searched = {line["strategy"]: line["exact"] for line in tables["tokens-weak-searched"]}
    assert searched["cats-0"] == ".750 (300)"
    assert list(searched) == [
        "cats",
        "cats-0",
        "clone, selective PRM calls, seed 0, price 1",
        "clone, seed 1, price 1",
        "clone, selective PRM calls, seed 2, price 1",
        "rule",
    ]


def test_the_pilots_scores_are_kept_with_its_rows(tmp_path):
    (result,) = run(search.best_of_n(), questions=QUESTIONS[:1])
    scores = [path.path_score or 0.0 for path in result.paths]
    manifest = make_manifest(config={"name": "weak-run"}, models={}, questions={}, seeds=[0])
    rows = [row("best_of_n", 8, "exact"), row("beam", 8, "exact")]
    with RunWriter(tmp_path / "weak-run", manifest) as writer:
        for each in rows:
            writer.add(each, result)
    keep_run(tmp_path / "weak-run", tmp_path)
    kept = load_scores(tmp_path, "weak", "run")
    assert kept == {rows[0].key: pytest.approx(sum(scores) / len(scores), abs=1e-6)}
    assert len(set(scores)) > 1
