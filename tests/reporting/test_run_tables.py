"""The notes below the tables of a run, and which rival stands in them."""

from collections import Counter

import made_runs
import pytest

from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.reporting.groups import cats_pairs, groups, neighbour_pairs
from cats_jax.reporting.run_report import run_parts
from cats_jax.reporting.run_tables import accuracy_sheet, paired_sheet, run_sheets, timing_table
from cats_jax.runs.folder import RunFolder
from cats_jax.runs.rows import Row

ACTIONS = ((1, 1, 1.0, 1.0, 0, 3),)


def sheets(**tokens):
    """Tables of one row for each strategy, with these tokens; cats takes actions."""
    rows = [
        made_runs.row(name, tokens=of, actions=ACTIONS if name == "cats" else ())
        for name, of in tokens.items()
    ]
    return {sheet.name: sheet for sheet in run_sheets(groups(rows), "title")}


@pytest.mark.parametrize(("tokens", "named"), [(125, False), (126, True)])
def test_a_rival_that_is_not_cheap_enough_is_named(tokens, named):
    """The limit is 1.25 times the tokens, and is within."""
    sheet = sheets(cats=100, beam=tokens, majority=400)["against_fixed"]
    (record,) = sheet.records
    assert record["against"] == "beam"
    assert any("cats N=4 with good" in note for note in sheet.notes) == named
    assert any("excludes 0" in note for note in sheet.notes)


def test_a_pair_names_the_prm_of_either():
    rows = [made_runs.row("majority", prm=None)]
    rows += [made_runs.row("beam", prm=prm) for prm in ("good", "noisy")]
    sheet = paired_sheet(neighbour_pairs(groups(rows)), "title", "pairs")
    assert {record["prm"] for record in sheet.records} == {"good", "noisy"}
    assert len(sheet.records) == 2


def test_a_pair_is_compared_on_the_questions_that_both_have():
    def rows(strategy, right, tokens):
        return [
            made_runs.row(strategy, question=f"q{place}", correct=hit, tokens=cost)
            for place, (hit, cost) in enumerate(zip(right, tokens, strict=True))
        ]

    found = [*rows("beam", [0, 1, 1, 1], [10, 20, 90, 90]), *rows("cats", [1, 1], [30, 50])]
    (record,) = paired_sheet(neighbour_pairs(groups(found)), "title", "pairs").records
    assert record["questions"] == 2
    assert (record["accuracy"], record["against_accuracy"], record["difference"]) == (0.5, 1, -0.5)
    assert (record["tokens"], record["against_tokens"]) == (15, 40)


def test_a_rival_is_chosen_on_the_questions_that_both_have():
    def rows(strategy, tokens, right, **options):
        return [
            made_runs.row(strategy, question=f"q{place}", correct=hit, tokens=tokens, **options)
            for place, hit in right.items()
        ]

    found = groups(
        [
            *rows("cats", 100, {0: 1, 1: 1}, actions=ACTIONS),
            *rows("beam", 100, {0: 0, 1: 1, 2: 1, 3: 1}),
            *rows("best_of_n", 100, {0: 1, 1: 1, 2: 0, 3: 0}),
            *rows("majority", 100, {2: 1, 3: 1}),
        ]
    )
    ((policy, rival),) = cats_pairs(found)
    assert (policy.strategy, rival.strategy) == ("cats", "best_of_n")


def test_a_title_names_several_run_seeds(tmp_path):
    def title(*seeds):
        rows = tuple(made_runs.row(seed=seed) for seed in seeds)
        manifest = {**made_runs.manifest("mine"), "questions": {"source": "here"}}
        ((_, title, _),) = run_parts(RunFolder(tmp_path, manifest, rows))
        return title

    assert title(3) == "mine: 1 questions of here"
    assert title(3, 1) == "mine: 1 questions of here; run seeds 1, 3"


def test_unsolved_programs_have_a_column_where_there_are_some():
    """Rows of earlier versions have no such entry."""
    row = made_runs.row()
    content = row.as_dict()
    del content["unsolved"]
    assert Row.from_dict(content) == row
    plain = accuracy_sheet(groups([row]), "mine")
    assert "unsolved programs" not in [column.title for column in plain.columns]
    sheet = accuracy_sheet(groups([Row.from_dict({**content, "unsolved": 3})]), "mine")
    (column,) = [each for each in sheet.columns if each.title == "unsolved programs"]
    assert sheet.records[0][column.values[0]] == 3


def test_a_replay_has_no_columns_of_flops_and_seconds():
    live, replay = made_runs.row("beam"), made_runs.row("beam")
    live.ledger.policy_seconds, replay.ledger.flops = 1.0, 0.0
    for row, there in ((live, True), (replay, False)):
        titles = {column.title for column in accuracy_sheet(groups([row]), "title").columns}
        assert "tokens" in titles
        assert {"GFLOP", "s/question"} <= titles or not there
        assert titles.isdisjoint({"GFLOP", "s/question"}) or there


def test_numbers_of_seeds_and_questions_have_a_column_where_they_differ():
    def titles(*rows):
        sheet = accuracy_sheet(groups(rows), "mine")
        return [column.title for column in sheet.columns], sheet.records

    one, other = made_runs.row("beam"), made_runs.row("cats")
    assert {"seeds", "questions"}.isdisjoint(titles(one, other)[0])
    shown, records = titles(one, other, made_runs.row("cats", seed=1))
    assert "seeds" in shown
    assert "questions" not in shown
    assert [record["seeds"] for record in records] == [1, 2]
    assert "questions" in titles(one, other, made_runs.row("cats", question="q1"))[0]


def test_seeds_of_one_accuracy_have_no_interval():
    def over_seeds(*right):
        rows = [made_runs.row(seed=seed, correct=one) for seed, one in enumerate(right)]
        (found,) = groups(rows)
        return found.accuracy_over_seeds()

    assert over_seeds(True, True) is None
    assert over_seeds(True) is None
    assert over_seeds(True, False) is not None


def test_times_of_workers_are_sums_and_shares_of_their_wall_time():
    worker = WallTimes(loading=1.0, searching=5.0, parts=Counter({"core": 4.0}), recomputed=7)
    times = WallTimes(recording=1.0, total=10.0, workers=2)
    for _ in range(2):
        times.add(worker)
    columns = [list(column.cells) for column in timing_table(times).columns]
    table = {part: (seconds, share) for part, seconds, share in zip(*columns, strict=True)}
    assert table["core: plan and commit"] == ("8.00", "88.9%")
    assert table["workers (2): loading models"] == ("2.00", "10.0%")
    assert table["workers (2): searching"] == ("10.00", "50.0%")
    assert table["wall time"] == ("10.00", "100.0%")
    assert "wall time: searching" not in table
    assert worker.take() == WallTimes(1.0, 5.0, parts=Counter({"core": 4.0}), recomputed=7)
    assert worker.take() == WallTimes()
