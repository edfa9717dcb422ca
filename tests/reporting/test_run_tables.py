"""The notes below the tables of a run, and which rival stands in them."""

import made_runs
import pytest

from cats_jax.commands.evaluate import run_parts
from cats_jax.reporting.groups import groups
from cats_jax.reporting.run_tables import accuracy_sheet, run_sheets
from cats_jax.runs.folder import Run

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


def test_a_title_names_several_run_seeds(tmp_path):
    def title(*seeds):
        rows = tuple(made_runs.row(seed=seed) for seed in seeds)
        manifest = {**made_runs.manifest("mine"), "questions": {"source": "here"}}
        ((_, title, _),) = run_parts(Run(tmp_path, manifest, rows))
        return title

    assert title(3) == "mine: 1 questions of here"
    assert title(3, 1) == "mine: 1 questions of here; run seeds 1, 3"


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
