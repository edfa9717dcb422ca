"""The study: its tables against numbers worked out by hand, the committed ones against the rows."""

import dataclasses
import json
import pathlib
import shutil

import made_runs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.container import ErrorbarContainer

from cats_jax.errors import BadInputError
from cats_jax.evaluation.replay import Replayed
from cats_jax.live.ledger import Ledger
from cats_jax.reporting.figure_setup import drawing
from cats_jax.reporting.groups import Group
from cats_jax.runs.folder import RunWriter, row_key
from cats_jax.storage.manifest import make_manifest
from cats_jax.training.ablations import load_ablations
from studies.world.results import (
    ablations,
    accuracies,
    banks,
    comparisons,
    markdown,
    page_figures,
    trainings,
)
from studies.world.results.__main__ import study
from studies.world.results.frontier import draw_frontier
from studies.world.results.groups import PRMS
from studies.world.results.rows import keep_run, load_groups

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "results"


def group(strategy, right, *, size=16, prm="exact", tokens=100, candidates=10, policy=False):
    """A group whose question q has level q + 1; every question costs the same."""
    ledger = Ledger(candidates=candidates, generated=tokens - 9, prm_computed=9)
    actions = ((2, 1, 1.0, 1.0, 0, 3),) if policy else ()
    rows = []
    for number, correct in enumerate(right):
        values = {"question": f"q{number}", "meta": {"level": number + 1}, "correct": bool(correct)}
        row = made_runs.row(strategy, size, prm, actions=actions, **values)
        rows.append(dataclasses.replace(row, ledger=ledger))
    return Group(strategy, size, prm, tuple(rows))


def everywhere(strategy, right, **options):
    return [group(strategy, right, prm=prm, **options) for prm in PRMS]


def greedy(right=(1, 0, 0, 0)):
    return group("greedy", right, size=1, prm=None, tokens=50, candidates=4)


# Rows


def write_run(folder, groups):
    manifest = make_manifest(config={"name": folder.name}, models={}, questions={}, seeds=[0])
    with RunWriter(folder, manifest) as writer:
        for row in (row for each in groups for row in each.rows):
            writer.add(row, None)


def test_a_kept_run_gives_its_groups_and_a_row_of_two_runs_counts_once(tmp_path):
    cats = group("cats", (1, 0), policy=True)
    write_run(tmp_path / "weak-one", [greedy((1, 0)), cats])
    write_run(tmp_path / "weak-two", [greedy((1, 0)), group("beam", (1, 1))])
    for name in ("weak-one", "weak-two"):
        keep_run(tmp_path / name, tmp_path)
    found = load_groups(tmp_path, "weak", ["one", "missing", "two"])
    assert [each.strategy for each in found] == ["greedy", "cats", "beam"]
    assert [len(each.rows) for each in found] == [2, 2, 2]
    for name in ("key", "question", "prm", "correct", "covered", "meta", "actions"):
        one, two = found[1].rows, cats.rows
        assert [getattr(row, name) for row in one] == [getattr(row, name) for row in two]
    assert (found[1].mean("tokens"), found[1].mean("candidates")) == (100, 10)
    assert load_groups(tmp_path, "strong", ["one"]) == []


def test_a_kept_group_has_the_figures_of_its_rows(tmp_path):
    one, two = group("cats", (1, 0, 0), policy=True), group("cats", (1, 1, 0), tokens=200)
    second = [
        dataclasses.replace(row, seed=1, key=row_key("cats", 16, "exact", 1, row.question))
        for row in two.rows
    ]
    rows = Group("cats", 16, "exact", (*one.rows, *second))
    write_run(tmp_path / "weak-one", [greedy(), rows])
    keep_run(tmp_path / "weak-one", tmp_path)
    without, kept = load_groups(tmp_path, "weak", ["one"])
    assert (without.takes_actions, kept.takes_actions, len(kept.rows)) == (False, True, 6)
    assert kept.accuracy() == rows.accuracy()
    assert kept.accuracy_over_seeds() == rows.accuracy_over_seeds()
    for column in ("correct", "covered", "tokens", "candidates", "generated", "flops"):
        assert list(kept.by_question(column).items()) == list(rows.by_question(column).items())
        assert kept.mean(column) == rows.mean(column)


# Accuracies


def test_accuracies_stand_at_their_n_and_greedy_decoding_at_each():
    groups = [greedy(), group("beam", (1, 1, 1, 0)), group("beam", (1, 1, 0, 0), size=64)]
    groups.append(group("best_of_n", (0, 0, 0, 0), size=64, prm="sparse", tokens=300))
    small, large = accuracies.accuracy_tables("t", groups)
    assert (small.name, large.name) == ("t-16", "t-64")
    assert small.header == ["strategy", *PRMS]
    assert small.lines == [
        ["greedy", *[".250 (50)"] * 6],
        ["beam", ".750 (100)", "", "", "", "", ""],
    ]
    assert large.lines[1:] == [
        ["beam", ".500 (100)", "", "", "", "", ""],
        ["best_of_n", "", ".000 (300)", "", "", "", ""],
    ]
    assert small.markdown().splitlines()[1:3] == [
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| greedy | .250 (50) | .250 (50) | .250 (50) | .250 (50) | .250 (50) | .250 (50) |",
    ]


def test_accuracy_by_level():
    groups = [greedy((1, 0)), group("beam", (1, 1)), group("beam", (0, 1), prm="monte-carlo")]
    table = accuracies.level_table("t", groups, ["greedy", "beam", "absent"], 16)
    assert table.lines == [
        ["greedy", "1", "-", "1.000", ".000"],
        ["beam", "16", "exact", "1.000", "1.000"],
        ["beam", "16", "monte-carlo", ".000", "1.000"],
    ]


# Several training seeds


def test_mean_over_seeds_with_students_interval():
    rights = ((1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0))
    groups = [
        group(f"cats-seed-{seed}", right, tokens=100 + 30 * seed)
        for seed, right in enumerate(rights)
    ]
    # No seed of it, and a lone one: no interval.
    groups += [group("cats-0.02", (1, 1, 1, 1)), group("cats-seed-0", (1, 1, 1, 1), prm="sparse")]
    table = trainings.seed_table("t", groups, "cats-seed")
    # Standard error .25 / sqrt(3), times the 97.5 % point of Student's t with 2 degrees: 4.3027.
    assert table.lines == [["16", ".500 ± .621 (130)", "", "", "", "", ""]]


def test_values_of_seeds_at_their_own_price():
    groups = [
        group("raw-0.2-0", (1, 1, 0, 0), size=4, candidates=10),  # .5 - .02
        group("raw-0.2-0", (1, 1, 1, 1), candidates=30),  # 1 - .06
        group("raw-0.2-1", (1, 0, 0, 0), candidates=10),
        group("raw-2-0", (1, 1, 0, 0), candidates=10),  # .5 - .2
    ]
    table = trainings.price_table("t", groups)
    assert table.header == ["ranked by", "price", "seed 0", "seed 1"]
    assert table.lines == [["raw scores", "0.2", ".710", ".230"], ["raw scores", "2", ".300"]]


def test_trainings_have_their_mean_and_their_range():
    groups = [greedy(), *everywhere("to-64-0", (1, 1, 0, 0)), *everywhere("to-64-1", (1, 1, 1, 1))]
    groups[1] = group("to-64-0", (1, 0, 0, 0), tokens=300)
    values, table = trainings.training_tables("t", groups)
    # Seed 0: (.25 + 5 * .5) / 6 - .02; seed 1: 1 - .02.
    assert values.lines == [["to-64", ".709 (.438, .980)"]]
    assert (values.header, table.name) == (["training", "N = 16"], "t-16")
    assert table.lines[0] == ["greedy decoding", *[".250 (50)"] * 6]
    assert table.lines[1][:3] == ["to-64", ".625 [.250, 1.000] (200)", ".750 [.500, 1.000] (100)"]


# Comparisons


def test_the_rival_of_equal_cost_is_the_best_that_costs_at_most_a_quarter_more():
    mine = group("cats", (1,) * 6, tokens=100, candidates=40, policy=True)
    groups = [
        greedy((0,) * 6),
        group("beam", (1, 1, 1, 1, 0, 0), tokens=125, candidates=51),
        group("best_of_n", (1,) * 6, tokens=126, candidates=60),
        group("beam", (1,) * 6, prm="sparse"),  # of another PRM
        group("random", (1,) * 6, policy=True),  # no fixed strategy
        mine,
    ]
    by_tokens = comparisons.equal_cost_table("t", groups, ["cats", "absent"], "tokens")
    by_candidates = comparisons.equal_cost_table("c", groups, ["cats"], "candidates")
    # Two of six questions won: resampled means are 0 with a chance of (4/6)^6 = .09, and above 4/6
    # with one of .02. McNemar's test of 2 against 0 has p = 2 / 4. All six won: p = 2 / 64.
    assert by_tokens.lines == [
        [
            *("cats", "16", "exact", "1.000 (100)", "beam N=16: .667 (125)"),
            *("+0.333 (+0.000 to +0.667)", "0.5", "ties"),
        ]
    ]
    assert by_candidates.lines == [
        [
            *("cats", "16", "exact", "1.000 (40)", "greedy N=1: .000 (4)"),
            *("+1.000 (+1.000 to +1.000)", "0.031", "wins"),
        ]
    ]
    verdicts = comparisons.verdict_table("v", {"weak, {}": by_tokens, "{} again": by_candidates})
    assert verdicts.lines == [["weak, cats", "0", "1", "0"], ["cats again", "1", "0", "0"]]


def test_the_same_n_is_compared_over_all_prms():
    mine = everywhere("cats", (1,) * 6, policy=True)
    baseline = everywhere("beam", (0,) * 6, tokens=200)
    baseline[2] = group("beam", (1,) * 6, prm=PRMS[2], tokens=800)
    lone = group("best_of_n", (0,) * 6)
    table = comparisons.same_size_table("t", [*mine, *baseline, lone], "cats")
    # Five wins by 1 and a tie; (5 * 2 + 8) / 6 times the tokens.
    assert table.lines == [["beam", "", "5/1/0, +0.833, 3.0", "", ""]]


def test_what_validation_chose_is_judged_on_test():
    validation = [
        *everywhere("costly", (1, 1, 1, 1), candidates=400),  # worth 1 - .8
        *everywhere("rule", (1, 1, 1, 0), candidates=10),  # .75 - .02
        *everywhere("cats-0.02", (1, 1, 1, 1), candidates=1),  # no fixed strategy
        *everywhere("beam", (1, 1, 1, 1), size=64, candidates=1),  # another N
    ]
    test = [
        *everywhere("cats", (1, 1, 1, 1), policy=True),
        *everywhere("rule", (0, 0, 0, 0), candidates=20),
        group("cats-seed-0", (1, 1, 1, 1)),
        group("cats-seed-1", (1, 0, 0, 0)),
    ]
    table = comparisons.chosen_table("t", validation, test, 16)
    # On every question CATS is worth 1 - .02, the rule 0 - .04.
    line = ["rule", ".000 (100)", "1.000 (100)", "+1.020 (+1.020 to +1.020)", "-0.040"]
    assert table.lines[0] == ["exact", *line, "0.230-0.980"]
    assert table.lines[1] == ["sparse", *line, ""]
    with pytest.raises(BadInputError, match="lack 'rule' or 'cats' at N=16 with PRM 'exact'"):
        comparisons.chosen_table("t", validation, test[:6], 16)


def test_groups_of_other_questions_are_not_compared():
    mine = group("cats", (1, 1), policy=True)
    other = Group("beam", 16, "exact", group("beam", (1, 1, 1)).rows[2:])
    with pytest.raises(BadInputError, match="share no question"):
        comparisons.equal_cost_table("t", [mine, other], ["cats"], "tokens")


# Banks


def measured():
    return {
        prm: {
            "total": 0.1 * place,
            "last_layer": 0.5 - 0.1 * place,
            "pair": 0.9 - 0.1 * place,
            "cross_entropy": 0.7,
            "oracle_16": [0.5, 20.0],
            "oracle_64": [0.25, 30.0],
            "hindsight_16": [0.75, 40.4],
        }
        for place, prm in enumerate(PRMS)
    }


def test_rank_correlations_with_exact_p_values():
    beam = [group("beam", [1] * place + [0] * (5 - place), prm=PRMS[place]) for place in range(6)]
    values, correlations = banks.sparsity_tables("t", beam, measured())
    # A strategy that lacks a PRM, here all of best_of_n and cats, is no column.
    errors = ("pair error", "cross-entropy")
    assert values.header == ["PRM", "total sparsity", "last-layer sparsity", *errors, "beam 16"]
    assert values.lines[1] == ["sparse", "0.1000", "0.4000", "0.2000", "0.7000", "0.2000"]
    # Two of the 720 orders are as far from none.
    assert correlations.lines == [
        ["total sparsity", "+1.00 (0.0028)", "all equal", "+1.00 (0.0028)"],
        ["last-layer sparsity", "-1.00 (0.0028)", "all equal", "-1.00 (0.0028)"],
    ]


def test_ceilings_stand_above_the_controllers():
    table = banks.ceiling_table("t", everywhere("cats", (1, 0), policy=True), measured())
    assert table.lines == [
        ["oracle's allocation, replayed", "16", *[".500 (20)"] * 6],
        ["each question's best constant action, replayed", "16", *[".750 (40)"] * 6],
        ["cats, live", "16", *[".500 (100)"] * 6],
        ["oracle's allocation, replayed", "64", *[".250 (30)"] * 6],
    ]


def test_hindsight_chooses_by_one_half_of_the_replays_and_values_by_the_other():
    def play(correct, candidates, tokens):
        return Replayed(
            correct=np.array(correct, bool),
            covered=np.zeros(2, bool),
            candidates=np.full(2, candidates),
            generated=np.full(2, tokens),
            prm_tokens=np.zeros(2, int),
            actions=np.zeros((2, 1), int),
            unsolved=np.zeros(2, int),
        )

    cheap = [play((1, 0), 10, 50)] * 4
    # As right on the first question, but dearer; right on the second one, later by half.
    dear = [play((1, 1), 100, 200)] * 3 + [play((1, 0), 100, 200)]
    assert banks.best_in_hindsight([cheap, dear]) == [0.75, 125.0]


# Ablations


def result(table, label, **values):
    return {"table": table, "label": label, "num_iterations": 3, **values}


def test_new_results_take_the_place_of_kept_ones_in_the_recipes_order(tmp_path):
    folder = tmp_path / "discount" / "0-5"
    folder.mkdir(parents=True)
    made_of = {"row": {"num_iterations": 3}}
    (folder / "result.json").write_text(json.dumps({"label": "0.5", "made_of": made_of}))
    new = ablations.read_results(tmp_path)
    assert new == [result("discount", "0.5")]
    kept = [
        result("discount", "0.9"),
        result("sparsity", "with"),
        result("discount", "0.5", old=True),
        result("discount", "of no recipe"),
    ]
    merged = ablations.merge(kept, new)
    assert [(each["table"], each["label"]) for each in merged] == [
        ("sparsity", "with"),
        ("discount", "0.5"),
        ("discount", "0.9"),
    ]
    assert "old" not in merged[1]


def test_an_ablation_stands_beside_the_papers_figure():
    values = {
        "accuracy": [[0.5, 0.75], [0.7, 0.95]],
        "candidates": [[100, 200], [100, 200]],
        "collapsed": [True, False],
        "entropy": [0.5, 1.0],
    }
    documents = [result("discount", "0.9", **values), result("ours", "theirs", **values)]
    paper, ours = ablations.ablation_tables("a", documents)
    # Worth (.3 + .35) / 2 and (.5 + .55) / 2: .425 with a standard error of .1, and Student's t
    # with 1 degree has its 97.5 % point at 12.706.
    line = [".600 (100)", ".850 (200)", "0.425 ± 1.271", "0.75", "1/2"]
    assert (paper.name, paper.lines) == ("a-discount", [["0.9", *line, "84.71"]])
    assert (ours.name, ours.lines) == ("a-ours", [["theirs", *line]])
    assert (paper.header[-1], ours.header[-1]) == ("the paper, %", "collapsed")


def test_the_paper_has_a_figure_for_every_row_of_its_tables():
    for table, rows in load_ablations().items():
        printed = ablations.papers_figures(table)
        assert set(printed) in (set(), {row.label for row in rows})
    assert ablations.papers_figures("sparsity")["with"].count(";") == 1


# The figures and the command


def points_of(line):
    return np.asarray(line.get_xydata(), float)


def test_the_frontier_is_that_of_the_baselines():
    groups = [
        greedy(),
        group("beam", (1, 1, 1, 0)),
        group("beam", (1, 1, 0, 0), size=64, tokens=400),
        group("cats", (1, 1, 1, 1), tokens=200, policy=True),
    ]
    with drawing():
        figure = draw_frontier(groups, "t")
    exact, sparse = (axes.lines for axes in figure.axes[:2])
    points = [points_of(line).tolist() for line in exact]
    assert points[:2] == [[[50, 0.25]], [[100, 0.75], [400, 0.5]]]
    assert points[2] == [[50, 0.25], [100, 0.75], [400, 0.75]]  # the frontier
    assert [[200, 1.0]] in points[3:]  # the policy
    assert [points_of(line).tolist() for line in sparse] == [[[50, 0.25]]] * 2


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        (".672 (214)", [0.672, 214]),
        ("+0.050 (-0.023 to +0.076)", [0.05, -0.023, 0.076]),
        (".93 (.86-1.01)", [0.93, 0.86, 1.01]),
        ("\N{MINUS SIGN}.040", [-0.04]),
        ("218 (1.0000)", [218, 1.0]),
        ("0.591 ± 0.008", [0.591, 0.008]),
        (".9, met", [0.9]),
        ("-", []),
    ],
)
def test_numbers_of_a_cell(cell, found):
    assert markdown.numbers(cell) == found


@given(st.lists(st.lists(st.sampled_from(["a", ".5 (3)", "", "x y"]), min_size=3, max_size=3)))
def test_a_table_that_is_written_is_read_again(lines):
    table = markdown.Table("t", ["one", "two", "three"], lines)
    text = f"Text.\n\n| other |\n|---|\n| 1 |\n\n{table.markdown()}\nMore."
    assert markdown.read_table(text, "two").lines == lines
    with pytest.raises(ValueError, match="no table with a column 'four'"):
        markdown.read_table(text, "four")


def test_the_figures_of_the_pages_are_drawn_from_what_is_there(tmp_path):
    results = tmp_path / "results"
    for folder in ("tables", "figures"):
        (results / folder).mkdir(parents=True)
    assert page_figures.make_page_figures(results) == []
    assert list((results / "figures").iterdir()) == []
    shutil.copy(RESULTS / "grading.md", results)
    assert page_figures.make_page_figures(results) == [results / "figures/grading.png"]
    assert [path.name for path in (results / "figures").iterdir()] == ["grading.png"]


def test_a_figure_shows_its_tables_numbers():
    with drawing():
        left, right = page_figures._differences(RESULTS).axes
    # The first line of equal-tokens-weak.md that has N = 4.
    lines = markdown.read_table((RESULTS / "tables/equal-tokens-weak.md").read_text())
    first = [numbers for numbers in lines.lines if numbers[:2] == ["cats", "4"]]
    expected = [float(line[5].split()[0]) for line in first]
    drawn = next(each for each in left.containers if isinstance(each, ErrorbarContainer))
    assert points_of(drawn.lines[0])[:, 0].tolist() == expected
    assert [label.get_text() for label in left.get_yticklabels()] == [f"PRM {prm}" for prm in PRMS]
    assert len(right.containers) == len(left.containers) == 4


def test_the_figure_of_prices_joins_the_configurations_of_a_family():
    with drawing():
        panels = page_figures._at_prices(RESULTS).axes
    table = markdown.read_table((RESULTS / "tables/large-weak-searched.md").read_text())
    for axes, prm in zip(panels, ("exact", "on-policy", "strong-errors"), strict=True):
        assert axes.get_title() == f"PRM {prm}"
        shipped = "PPO on the bank, seed 1, price "
        cells = [line[prm] for line in table.as_mappings() if shipped in line["strategy"]]
        expected = sorted((float(cell[6:-1]), float(cell[:4])) for cell in cells)
        (drawn,) = [line for line in axes.lines if line.get_label() == "CATS"]
        assert [tuple(point) for point in points_of(drawn)] == expected
        labels = {text.get_text() for text in axes.texts}
        assert {"3", "0.1", "0.03"} <= labels <= {"3", "1", "0.3", "0.1", "0.03", "0.01", "0"}
    by_name = [{line.get_label() for line in axes.lines} for axes in panels]
    assert ["CATS with a price of candidates" in names for names in by_name] == [True, False, False]


def test_the_command_keeps_runs_and_makes_what_their_rows_allow(tmp_path, capsys):
    results = tmp_path / "results"
    with pytest.raises(BadInputError, match="has no folder 'rows': start the command"):
        study(results=results)
    (results / "rows").mkdir(parents=True)
    # Of the tables of the rows, those that a page shows are made.
    (results / "page.md").write_text("[of all](tables/offline-weak-16.md)")
    rows = [greedy(), group("off", (1, 0, 0, 0)), group("off", (1, 0, 0, 0), size=64)]
    write_run(tmp_path / "weak-offline", rows)
    study(keep=(tmp_path / "weak-offline",), results=results)
    made = {path.name for path in (results / "tables").iterdir()}
    assert made == {"offline-weak-16.md"}
    kept, table = results / "rows/weak-offline.parquet", results / "tables/offline-weak-16.md"
    assert capsys.readouterr().out.splitlines() == [f"wrote {kept}", f"wrote {table}"]
    with pytest.raises(BadInputError, match="no run folder"):
        study(keep=(tmp_path,), results=results)


def committed():
    return {path.name: path.read_text("utf-8") for path in (RESULTS / "tables").glob("*.md")}


def test_the_committed_ablations_are_what_their_results_give():
    for study_name in ("ablations", "ablations-ppo"):
        documents = json.loads((RESULTS / "rows" / f"{study_name}.json").read_text("utf-8"))
        tables = ablations.ablation_tables(study_name, documents)
        assert len(tables) >= 4
        for table in tables:
            assert committed()[f"{table.name}.md"] == table.markdown()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_committed_tables_are_what_the_committed_rows_give(tmp_path):
    results = tmp_path / "results"
    for page in RESULTS.parent.glob("*/*.md"):
        (tmp_path / page.parent.name).mkdir(exist_ok=True)
        shutil.copy(page, tmp_path / page.parent.name)
    (results / "rows").symlink_to(RESULTS / "rows")
    study(results=results)
    made = {path.name: path.read_text("utf-8") for path in (results / "tables").iterdir()}
    # Other commands make the tables and the figure of certificates, and have their own tests.
    certificates = {path.name for path in RESULTS.glob("*/certificates*")}
    assert made == {name: text for name, text in committed().items() if name not in certificates}
    assert {path.name for path in (results / "figures").iterdir()} == {
        path.name for path in (RESULTS / "figures").iterdir()
    } - certificates
