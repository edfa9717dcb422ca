"""The warning of a run whose answers were never cut into steps."""

import dataclasses

import pytest
from made_runs import row, write_run

from cats_jax.commands.report import report
from cats_jax.commands.show import show
from cats_jax.live.ledger import Ledger
from cats_jax.reporting.step_boundaries import without_boundaries

MANY = Ledger(candidates=4, generated=800)


def made(folder, *rows, **changes):
    return write_run(folder, rows, strategies=("beam", "majority"), **changes)


def costing(ledger, strategy="beam", **changes):
    made = row(strategy, **changes)
    made.ledger.candidates, made.ledger.generated = ledger.candidates, ledger.generated
    return made


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        ([costing(MANY, steps=1), costing(MANY, steps=2, seed=1)], {}),
        ([costing(Ledger(candidates=4, generated=40), steps=1)], {}),
        ([costing(MANY, steps=1, strategy="majority")], {}),
        ([costing(MANY, steps=1)], {"max_depth": 1}),
        ([costing(Ledger(), steps=0)], {}),
    ],
)
def test_other_runs_have_none(tmp_path, rows, changes):
    assert without_boundaries(made(tmp_path / "run", *rows, **changes)) is None


def test_the_steps_of_a_method_that_rewrites_answers_are_no_evidence(tmp_path):
    rows = [costing(MANY, steps=1), costing(MANY, steps=4, strategy="mctsr")]
    run = write_run(tmp_path / "run", rows, strategies=("beam", "mctsr"))
    assert without_boundaries(run) is None
    manifest = {**run.manifest, "formats": {"policy": "chat", "rewriting mctsr": "critique"}}
    warning = without_boundaries(dataclasses.replace(run, manifest=manifest))
    assert "every answer is one step" in str(warning)


def test_show_and_report_say_it(tmp_path, capsys):
    rows = [costing(MANY, steps=1), costing(MANY, steps=3, strategy="majority")]
    run = made(tmp_path / "run", *rows, max_depth=10)
    warning = without_boundaries(run)
    assert warning is not None
    assert "every answer is one step, 200 tokens long" in warning
    show(run.folder)
    assert warning in capsys.readouterr().out
    report((run.folder,))
    assert warning in capsys.readouterr().out
    models = {**run.manifest["models"], "bank": {}}
    assert (
        without_boundaries(dataclasses.replace(run, manifest={**run.manifest, "models": models}))
        is None
    )
