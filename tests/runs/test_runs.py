"""The run folder: what is written is read, cut files are mended, strangers are refused."""

import dataclasses
import gzip
import json
import pathlib
import threading

import made_runs
import pytest

from cats_jax.errors import BadInputError, RunStoppedError
from cats_jax.live.ledger import Ledger
from cats_jax.live.results import Candidate, DecisionRow, SearchPath, SearchResult
from cats_jax.protocols import Question
from cats_jax.runs.folder import MANIFEST, RESULTS, TREES, Row, RunWriter, read_run
from cats_jax.runs.stored_trees import tree_from_lines, tree_to_lines
from cats_jax.storage import durable
from cats_jax.storage.manifest import make_manifest


def _manifest(**changes):
    manifest = make_manifest(
        config={"name": "t", "num_candidates": [4], "policy": {"path": "weak"}},
        models={"policy": {"name": "weak"}},
        questions={"source": "sums", "count": 3},
        seeds=[0],
    )
    return {**manifest, **changes}


def _result(index: int) -> SearchResult:
    nodes = [
        Candidate(1, 0, 0, 0, 0, f"a{index}\n\x1b", (5, 6), 2, -0.5, 0.7, 0.7, kept=True),
        Candidate(2, 0, 0, 0, 1, "", (6,), 1, -9.0, invalid="blank"),
        Candidate(3, 1, 1, 1, 0, "\\boxed{1}", (7,), 1, -0.1, 0.9, 0.7, None, True, "1", True),
    ]
    path = SearchPath((nodes[0].text, nodes[2].text), (0.7, 0.9), 0.7, "1", (1, 3))
    decision = DecisionRow(0, 1, 0, (0.5, -6.0), 3, 2, 1, 1.0, 0.9, 0, 1, 0.25)
    return SearchResult(
        question=Question(f"q{index}", "1+1"),
        answer="1",
        chosen=0,
        status="answered",
        reason="",
        steps=2,
        paths=[path],
        candidates=nodes,
        decisions=[decision],
        ledger=Ledger(candidates=3, generated=7, prm_computed=4, policy_seconds=0.125),
    )


def _row(index: int, result: SearchResult) -> Row:
    values = {"question": f"q{index}", "meta": {"level": 2}, "gold": "2", "correct": False}
    made = made_runs.row("beam", 4, "exact", actions=((2, 1, 1.0, 0.9, 0, 1),), **values)
    return dataclasses.replace(made, ledger=result.ledger)


def _write(folder, indices, **changes):
    with RunWriter(folder, _manifest(**changes)) as writer:
        for index in indices:
            result = _result(index)
            writer.add(_row(index, result), result)


def _keys(folder):
    return [row.key for row in read_run(folder).rows]


def test_what_is_written_is_read(tmp_path):
    _write(tmp_path, range(3))
    run = read_run(tmp_path)
    assert run.manifest["config"]["num_candidates"] == [4]
    assert run.manifest["versions"]["cats-jax"]
    for index, row in enumerate(run.rows):
        result = _result(index)
        assert dataclasses.replace(row, tree=None) == _row(index, result)
        # Token ids are the policy's own business and are not in the file.
        for candidate in result.candidates:
            candidate.token_ids = ()
        assert run.tree(row) == result


def test_rows_are_in_the_recipe_s_order_whatever_ended_first(tmp_path):
    config = {
        "name": "t",
        "strategies": [{"label": "greedy"}, {"label": "beam"}],
        "prms": [{"label": "zero"}, {"label": "exact"}],
        "questions": [{"label": "sums"}, {"label": "roots"}],
    }
    expected = [
        ("greedy", 1, None, "sums", "q1"),
        ("beam", 4, "zero", "sums", "q1"),
        ("beam", 4, "exact", "sums", "q1"),
        ("beam", 4, "exact", "sums", "q2"),
        ("beam", 4, "exact", "roots", "q0"),
        ("beam", 4, "exact", "others", "q3"),
        ("beam", 16, "exact", "sums", "q1"),
        ("vote", 4, "exact", "sums", "q1"),
    ]
    rows = [
        dataclasses.replace(
            _row(0, _result(0)),
            key=f"{place}",
            strategy=strategy,
            num_candidates=n,
            prm=prm,
            dataset=dataset,
            question=question,
        )
        for place, (strategy, n, prm, dataset, question) in enumerate(expected)
    ]
    for name, order in (("there", rows), ("back", rows[::-1])):
        with RunWriter(tmp_path / name, _manifest(config=config)) as writer:
            for row in order:
                writer.add(row, None)
        assert _keys(tmp_path / name) == [row.key for row in rows]


def test_files_are_plain_json_lines(tmp_path):
    _write(tmp_path, range(2))
    rows = [json.loads(line) for line in (tmp_path / RESULTS).read_text().splitlines()]
    assert rows[0]["tokens"] == 11
    assert rows[0]["candidates"] == 3
    assert rows[0]["seconds"] == 0.125
    with gzip.open(tmp_path / TREES) as members:
        lines = [json.loads(line) for line in members]
    assert [line["kind"] for line in lines[:5]] == ["search", *["candidate"] * 3, "decision"]
    assert {line["key"] for line in lines} == {rows[0]["key"], rows[1]["key"]}
    assert lines[2]["invalid"] == "blank"
    assert "token_ids" not in lines[1]


def test_a_result_is_shown_in_one_line():
    assert repr(_result(0)) == (
        "SearchResult(question='q0', answer='1', status='answered', steps=2, paths=1, "
        "candidates=3, tokens=11)"
    )
    long = dataclasses.replace(
        _result(0), answer="x" * 9_000, status="failed", reason="y\n" * 9_000
    )
    assert len(repr(long)) < 400
    assert "\n" not in repr(long)


def test_a_row_without_a_tree(tmp_path):
    with RunWriter(tmp_path, _manifest()) as writer:
        writer.add(_row(0, _result(0)), None)
    run = read_run(tmp_path)
    with pytest.raises(BadInputError, match="has no tree"):
        run.tree(run.rows[0])


def test_what_cannot_be_written_is_not_lost_in_silence(tmp_path):
    """The rows are encoded in a thread of their own."""
    writer = RunWriter(tmp_path, _manifest())
    writer.add(_row(0, _result(0)), None)
    writer.add(dataclasses.replace(_row(1, _result(1)), meta={"p": float("nan")}), None)
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer.close()
    assert not any(key.endswith("q1") for key in _keys(tmp_path))
    _write(tmp_path, [1])
    assert _keys(tmp_path)[-1].endswith("q1")


def test_no_key_twice(tmp_path):
    with RunWriter(tmp_path, _manifest()) as writer:
        writer.add(_row(0, _result(0)), None)
        with pytest.raises(ValueError, match="already"):
            writer.add(_row(0, _result(0)), None)


@pytest.mark.parametrize("cut_results", [0, 1, 20])
@pytest.mark.parametrize("cut_trees", [0, 1, 40])
def test_cut_tails_are_dropped_and_written_again(tmp_path, cut_results, cut_trees):
    _write(tmp_path, range(3))
    for name, cut in ((RESULTS, cut_results), (TREES, cut_trees)):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) - cut])
    complete = 3 if cut_results == cut_trees == 0 else 2
    assert len(_keys(tmp_path)) == complete
    with RunWriter(tmp_path, _manifest()) as writer:
        assert len(writer.keys) == complete
        for index in range(complete, 3):
            writer.add(_row(index, _result(index)), _result(index))
    run = read_run(tmp_path)
    assert [run.tree(row).question.id for row in run.rows] == ["q0", "q1", "q2"]
    with gzip.open(tmp_path / TREES) as members:
        assert len(members.read().splitlines()) == 15


def test_a_tree_without_its_row_is_dropped(tmp_path):
    _write(tmp_path, range(2))
    size = (tmp_path / TREES).stat().st_size
    with (tmp_path / TREES).open("ab") as file:
        file.write(gzip.compress(b"killed before the row\n"))
    assert len(_keys(tmp_path)) == 2
    _write(tmp_path, [])
    assert (tmp_path / TREES).stat().st_size == size


def test_an_interrupted_close_leaves_the_folder_locked_until_its_rows_are_written(
    tmp_path, monkeypatch
):
    written = threading.Event()
    append = durable.append
    monkeypatch.setattr(durable, "append", lambda *args: written.wait() and append(*args))
    writer = RunWriter(tmp_path, _manifest())
    writer.add(_row(0, _result(0)), _result(0))

    def interrupted(thread):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.close()
    with pytest.raises(BadInputError, match="in use by another process"):
        RunWriter(tmp_path, _manifest())
    written.set()
    writer.close()
    with RunWriter(tmp_path, _manifest()) as again:
        assert len(again.keys) == 1


def test_a_relative_folder_stays_the_run_s_when_a_model_changes_the_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with RunWriter(pathlib.Path("run"), _manifest()) as writer:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        writer.add(_row(0, _result(0)), _result(0))
    assert len(_keys(tmp_path / "run")) == 1


@pytest.mark.parametrize("replaced", [False, True])
def test_a_run_whose_folder_was_moved_stops_before_it_writes_rows_that_nobody_finds(
    tmp_path, replaced
):
    writer = RunWriter(tmp_path / "run", _manifest())
    (tmp_path / "run").rename(tmp_path / "moved")
    if replaced:
        _write(tmp_path / "run", range(1))
    writer.add(_row(0, _result(0)), _result(0))
    with pytest.raises(
        RunStoppedError, match=r"/run' was moved, deleted or replaced .* move it back"
    ):
        writer.close()
    assert read_run(tmp_path / "moved").rows == ()
    _write(tmp_path / "moved", range(1))
    assert len(_keys(tmp_path / "moved")) == 1


def test_killed_before_the_first_row(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / "manifest.json.new").write_text('{"sch')
    _write(tmp_path, range(1))
    assert len(_keys(tmp_path)) == 1


def test_a_damaged_row_in_the_middle_is_named(tmp_path):
    _write(tmp_path, range(3))
    path = tmp_path / RESULTS
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "{half\n" + lines[2])
    with pytest.raises(BadInputError, match=r"results\.jsonl:2: a damaged result row"):
        read_run(tmp_path)
    path.write_text(lines[0] + lines[0])
    with pytest.raises(BadInputError, match=r"results\.jsonl:2: .* occurs twice"):
        read_run(tmp_path)


def test_a_damaged_tree_is_named(tmp_path):
    _write(tmp_path, range(2))
    content = bytearray((tmp_path / TREES).read_bytes())
    content[30] ^= 255
    (tmp_path / TREES).write_bytes(content)
    run = read_run(tmp_path)
    with pytest.raises(BadInputError, match="damaged at the tree of 'beam"):
        run.tree(run.rows[0])
    assert run.tree(run.rows[1]).question.id == "q1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"name": "t", "num_candidates": [8], "policy": {"path": "weak"}}},
         r"config\.num_candidates\[0\]: 4 -> 8"),
        ({"config": {"name": "t", "num_candidates": [4], "policy": {"path": "strong"}}},
         r'config\.policy\.path: "weak" -> "strong"'),
        ({"models": {"policy": {"name": "other"}}}, r"models\.policy\.name"),
        ({"questions": {"source": "sums", "count": 4, "sha256": "f" * 64}},
         r"settings: questions\.count: 3 -> 4\. Use the settings that it has, or"),
        ({"questions": {"source": "sums", "count": 3, "sha256": "f" * 64}},
         r"settings: questions: the content changed\. Use"),
    ],
)  # fmt: skip
def test_going_on_with_something_else_is_refused(tmp_path, change, message):
    _write(tmp_path, range(1))
    with pytest.raises(BadInputError, match=message):
        _write(tmp_path, range(1, 2), **change)
    assert len(_keys(tmp_path)) == 1


def test_a_folder_without_a_row_is_locked_by_no_manifest(tmp_path):
    """A start that failed, or that was killed in its first row, decides nothing."""
    _write(tmp_path, [])
    _write(tmp_path, [], seeds=[1], models={"policy": {"name": "another"}})
    (tmp_path / RESULTS).write_text('{"key": "cut off')
    _write(tmp_path, range(1), models={"policy": {"name": "third"}})
    run = read_run(tmp_path)
    assert run.manifest["models"] == {"policy": {"name": "third"}}
    assert len(run.rows) == 1


def test_a_start_after_one_that_failed_writes_its_own_manifest(tmp_path):
    _write(tmp_path, [], git="old")
    _write(tmp_path, range(1), git="new")
    assert read_run(tmp_path).manifest["git"] == "new"


def test_other_versions_may_go_on(tmp_path):
    _write(tmp_path, range(1))
    _write(tmp_path, range(1, 2), versions={"python": "4"}, created="later", git="other")
    assert len(_keys(tmp_path)) == 2


def test_a_policy_s_format_was_called_recipe(tmp_path):
    def policy(key, value="auto"):
        return {"name": "t", "policy": {"path": "weak", key: value}}

    old, new = (
        {"config": policy(key), "models": {"policy": {}, "bank": {"config": policy(key)}}}
        for key in ("recipe", "format")
    )
    _write(tmp_path, range(1), **old)
    assert read_run(tmp_path).manifest["config"] == new["config"]
    _write(tmp_path, range(1, 2), **new)
    assert len(_keys(tmp_path)) == 2
    with pytest.raises(BadInputError, match=r'config\.policy\.format: "auto" -> "plain"'):
        _write(tmp_path, range(2, 3), **{**new, "config": policy("format", "plain")})


def test_one_data_set_was_a_mapping(tmp_path):
    asked = {"world": "test", "count": 3}
    old, new = (
        {"config": {"name": "t", "policy": {"path": "weak"}, "questions": questions}}
        for questions in (asked, [asked])
    )
    _write(tmp_path, range(1), **old)
    assert read_run(tmp_path).manifest["config"] == new["config"]
    _write(tmp_path, range(1, 2), **new)
    assert len(_keys(tmp_path)) == 2


@pytest.mark.parametrize(
    ("paths", "chosen", "found"),
    [([[], [1, 3]], 1, 0), ([[], [1, 3]], 0, None), ([[1, 3], []], 0, 0)],
)
def test_paths_without_steps_of_earlier_versions_are_left_out(paths, chosen, found):
    row = _row(0, _result(0))
    head, *others = map(json.loads, tree_to_lines(row.key, _result(0)).splitlines())
    tree = tree_from_lines(row, [{**head, "paths": paths, "chosen": chosen}, *others])
    assert [path.nodes for path in tree.paths] == [(1, 3)]
    assert tree.chosen == found


def test_another_schema_is_refused(tmp_path):
    _write(tmp_path, range(1))
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, "schema": 99}))
    for act in (lambda: read_run(tmp_path), lambda: _write(tmp_path, [])):
        with pytest.raises(BadInputError, match="schema 99"):
            act()


def test_no_run_folder(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(BadInputError, match=r"holds 'thesis\.txt'"):
        _write(tmp_path, [])
    with pytest.raises(BadInputError, match="is a file"):
        _write(tmp_path / "thesis.txt", [])


def test_two_writers_are_one_too_many(tmp_path):
    with (
        RunWriter(tmp_path, _manifest()),
        pytest.raises(BadInputError, match="in use by another process"),
    ):
        RunWriter(tmp_path, _manifest())
    _write(tmp_path, range(1))
