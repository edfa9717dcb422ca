"""Run folders in all states, as a report reads them."""

import dataclasses
import errno
import json
import pathlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import row, write_run

from cats_jax import cli, load_run
from cats_jax.errors import BadInputError
from cats_jax.reporting import figures, run_report
from cats_jax.reporting.groups import groups
from cats_jax.reporting.paper_cells import nothing_found
from cats_jax.reporting.paper_tables import paper_sheets
from cats_jax.reporting.run_tables import run_sheets
from cats_jax.reporting.selection import Selection, select_runs
from cats_jax.runs import run_manifest
from cats_jax.runs.folder import RESULTS, read_run
from cats_jax.runs.merge import merge_runs
from cats_jax.runs.reading import read_runs
from cats_jax.storage.manifest import MANIFEST


def _rewrite(folder, **changes):
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("")


BROKEN = [
    (lambda folder: (folder / MANIFEST).unlink(),
     "no run folder: it has no manifest.json; name a folder that `cats-jax evaluate`"),
    (lambda folder: (folder / MANIFEST).write_bytes(b"\xff{"), "is not a manifest of a run"),
    (lambda folder: _rewrite(folder, schema=99), "has schema 99, this version reads 1"),
    (lambda folder: _rewrite(folder, config={"name": "bank", "depth": 3}),
     "is no run folder: its manifest.json is that of something else"),
    (lambda folder: _rewrite(folder, spent={"fitted_on": 1, "chosen_on": []}),
     "is no run folder: its manifest.json is that of something else, or damaged ('spent' must be"),
    (lambda folder: (folder / RESULTS).unlink(), "has no rows yet"),
    (lambda folder: (folder / RESULTS).write_text("{half\n"),
     "results.jsonl:1: a damaged result row"),
    (_a_file, "is a file: name a run folder"),
]  # fmt: skip


@pytest.fixture
def no_overview(monkeypatch):
    """No summaries and no figures of whole runs, which take a second."""
    monkeypatch.setattr(run_report, "write_overview", lambda run: [])


@pytest.mark.parametrize(("how", "said"), BROKEN, ids=[said[:24] for _, said in BROKEN])
def test_a_broken_folder_is_refused_alone_and_skipped_among_others(
    tmp_path, capsys, no_overview, how, said
):
    write_run(tmp_path / "whole", [row()])
    write_run(tmp_path / "broken", [row("beam", 8)])
    how(tmp_path / "broken")
    folders = [str(tmp_path / name) for name in ("whole", "broken")]
    assert cli.run(["report", folders[1]]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert cli.run(["report", *folders]) == 0
    output, error = capsys.readouterr()
    assert f"skipped: {error[len('skipped: ') :]}" == error
    assert said in error
    assert "run: 1 of 3 questions of sums" in output
    assert cli.run(["report", folders[1], str(tmp_path / "nothing")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "nothing' is no run folder" in error


def test_strategies_without_labels_are_named_by_all_that_read_them(tmp_path, capsys):
    folders = []
    for n in (4, 8):
        run = write_run(tmp_path / str(n), [row(n=n)])
        _rewrite(run.folder, config={**run.manifest["config"], "strategies": [{"name": "beam"}]})
        folders.append(str(run.folder))
    for name, *options in (["certify", "--target", "0.5"], ["page"], ["report"]):
        assert cli.run([name, *folders, *options]) == 2
        assert "'config.strategies' must be a list" in capsys.readouterr().err
    assert cli.run(["show", folders[0]]) == 0
    with pytest.raises(BadInputError, match=r"'config\.strategies' must be a list"):
        load_run(folders[0]).report()


def test_a_manifest_without_permission_is_not_called_damaged(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    write_run(tmp_path, [row()])
    monkeypatch.setattr(run_manifest, "read_json", denied)
    with pytest.raises(BadInputError, match=r"can't be read \(Permission denied\): check the path"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("generated", "many"),
        ("correct", 1),
        ("flops", True),
        ("prm_computed", float("nan")),
        ("flops", float("inf")),
        ("strategy", None),
        ("answer", ["1"]),
        ("num_candidates", 4.5),
        ("meta", None),
        ("actions", [[1, 2, 3]]),
        ("actions", [[1, 1, float("nan"), 1, 0, 1]]),
        ("tree", ["0", 1]),
    ],
)
def test_a_value_of_another_type_is_a_damaged_row(tmp_path, name, value):
    write_run(tmp_path, [row()])
    path = tmp_path / RESULTS
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}) + "\n")
    with pytest.raises(BadInputError, match=rf":1: a damaged result row \('{name}' must be"):
        read_runs([tmp_path])


def test_a_folder_that_is_named_twice_counts_once(tmp_path):
    write_run(tmp_path / "a", [row()])
    runs, skipped = read_runs([tmp_path / "a", tmp_path / "a" / ".." / "a"])
    assert len(runs) == 1
    assert not skipped


def _grid(folder):
    return write_run(
        folder,
        [row("greedy", 1, None), *(row("beam", n, prm) for n in (4, 8) for prm in ("good", "bad"))],
        strategies=["greedy", "beam"],
        prms=["good", "bad"],
    )


@pytest.mark.parametrize(
    ("choice", "cells"),
    [
        ({}, 5),
        ({"strategies": ["beam"]}, 4),
        ({"num_candidates": [8]}, 3),
        ({"prms": ["bad"]}, 3),
        ({"strategies": ["beam"], "num_candidates": [4], "prms": ["good"]}, 1),
    ],
)
def test_rows_are_selected_by_label_and_n(tmp_path, choice, cells):
    (run,) = select_runs([_grid(tmp_path)], Selection(**choice))
    assert len(run.rows) == cells
    assert all(found.prm != "good" for found in run.rows) == (choice.get("prms") == ["bad"])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"strategies": ["bem"]}, r"--strategies: 'bem' is not in the run: .*known are"),
        ({"num_candidates": [16]}, r"--num-candidates: 16 is not in the run: .*known are"),
        ({"prms": ["exact"]}, r"--prms: 'exact' is not in the run: .*known are"),
        ({"strategies": ["greedy"], "levels": ["1"]}, "--levels"),
    ],
)
def test_a_name_that_no_run_has_is_refused_with_those_it_has(tmp_path, choice, message):
    with pytest.raises(BadInputError, match=message):
        select_runs([_grid(tmp_path)], Selection(**choice))


def test_a_report_of_a_part_writes_no_summary_of_the_whole(tmp_path, capsys, monkeypatch):
    folder = _grid(tmp_path / "run").folder
    # Of the part only: those of the whole are drawn.
    monkeypatch.setattr(figures, "write_figures", lambda *_, **options: [])
    options = ["--strategies", "beam", "--output", str(tmp_path / "tables")]
    assert cli.run(["report", str(folder), *options]) == 0
    assert "greedy" not in capsys.readouterr().out
    assert not (folder / "summary.json").exists()
    lines = (tmp_path / "tables" / "accuracy.csv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[1].startswith("beam,4,good,1.0,")
    assert cli.run(["report", str(folder), "--paired"]) == 0
    assert "no two strategies at the same N and PRM" in capsys.readouterr().out
    summary = json.loads((folder / "summary.json").read_text())
    for group in summary["groups"]:
        assert group["generated"] + group["prm_computed"] == pytest.approx(group["tokens"])
    assert list(folder.glob("*.png"))


def test_a_folder_that_may_only_be_read_is_reported(tmp_path, capsys, monkeypatch):
    folder = _grid(tmp_path / "run").folder

    def refuse(path, flags):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("cats_jax.storage.durable.open_unlinked", refuse)
    assert cli.run(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"no figures there: {str(folder)!r} can't be written (Read-only file system)" in out


def test_runs_of_one_name_have_a_folder_of_figures_each(tmp_path, monkeypatch, no_overview):
    runs = [write_run(tmp_path / policy, [row()], policy=policy) for policy in ("weak", "strong")]
    strange = write_run(tmp_path / "dots", [row()], policy="dots", name="..")
    places = []
    monkeypatch.setattr(
        figures,
        "write_figures",
        lambda found, place, *others, **options: places.append(place) or [],
    )
    folders = [str(run.folder) for run in (*runs, strange)]
    output = tmp_path / "out" / "tables"
    assert cli.run(["report", *folders, "--output", str(output)]) == 0
    assert places == [output / "run", output / "run-2", output / "run-3"]
    assert {path.name for path in output.glob("*accuracy.csv")} == {
        "run-accuracy.csv",
        "run-2-accuracy.csv",
        "run-3-accuracy.csv",
    }


JUNK = (None, True, -1.5, float("nan"), "x\x1b[31m", "", [], {}, [1], {"a": 1})


@given(st.data())
def test_any_change_of_one_value_gives_tables_or_a_sentence(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, [row("cats", actions=((2, 1, 1.0, 0.9, 0, 1),)), row("beam")])
    file = data.draw(st.sampled_from([MANIFEST, RESULTS]))
    lines = (folder / file).read_text().splitlines() if file == RESULTS else []
    content = json.loads(lines[0] if lines else (folder / file).read_text())
    place = content
    key = data.draw(st.sampled_from(sorted(place)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
    place[key] = data.draw(st.sampled_from(JUNK))
    (folder / file).write_text("\n".join([json.dumps(content), *lines[1:]]) + "\n")
    runs, reason = [], ""
    try:
        runs, _ = read_runs([folder])
    except BadInputError as error:
        reason = str(error)
    assert "\x1b" not in reason
    twice = [*runs, *(dataclasses.replace(run, folder=pathlib.Path("other")) for run in runs)]
    for run in merge_runs(twice):
        for sheet in run_sheets(groups(run.rows), "title"):
            assert all(cell.isprintable() for cells in sheet.rows() for cell in cells)
        assert paper_sheets([run]) or nothing_found([run])
