"""`cats-jax show`: the questions of a run, one question's trees, and what it refuses."""

import gzip
import json
import re
import shlex

import pytest
from run_folders import candidate, row_of, searched, write_run

from cats_jax import cli

TEXT, GOLD = "(1+2)+3=?", "6"


def _search(question, steps, answer, text=TEXT, **fields):
    """A search that kept one path; a step after "|" is a dropped sibling of score .1."""
    nodes, parent = [], 0
    for depth, line in enumerate([*steps, f"\\boxed{{{answer}}}"]):
        kept, *dropped = line.split("|")
        end = depth == len(steps)
        nodes.append(
            candidate(
                len(nodes) + 1, parent, depth, kept, 0.9, kept=True, done=end,
                answer=answer if end else None,
            )
        )  # fmt: skip
        for other in dropped:
            nodes.append(candidate(len(nodes) + 1, parent, depth, other, 0.1))
        parent = next(node.id for node in reversed(nodes) if node.kept)
    return searched(question, text, nodes, chosen=parent, **fields)


@pytest.fixture
def searches():
    right = _search("w-aa", ["1+2=3", "3+3=6"], "6")
    wrong = _search("w-aa", ["1+2=4|1+2=3", "4+3=7"], "7")
    other = _search("w-ab", ["1+2=3", "3+3=6"], "6")
    return [
        (row_of(right, GOLD, meta={"level": 1}), right),
        (row_of(wrong, GOLD, "cats", meta={"level": 1}), wrong),
        (row_of(other, GOLD, meta={"level": 2}), other),
        (row_of(other, GOLD, "cats", meta={"level": 2}), other),
    ]


@pytest.fixture
def run(tmp_path, searches):
    return write_run(tmp_path / "run", searches)


def _out(capsys, *arguments, code=0):
    assert cli.run(["show", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_the_questions(capsys, run):
    out = _out(capsys, run)
    assert "run: 2 of 2 questions" in out
    assert out.count(TEXT) == 2
    assert "✗ 7" in out
    assert f"cats-jax show {run} --question w-aa" in out


def test_filters_and_limit(capsys, run):
    assert "1 of 2 questions" in _out(capsys, run, "--wrong")
    assert "w-ab" not in _out(capsys, run, "--differ", "beam", "cats")
    assert "w-aa" not in _out(capsys, run, "--levels", "2")
    assert "No question fits" in _out(capsys, run, "--strategies", "beam", "--wrong")
    assert "No question fits" in _out(capsys, run, "--statuses", "failed")
    assert "1 more questions: --limit 2 shows all." in _out(capsys, run, "--limit", "1")


def _hint(out):
    """The command that the last line of a table of questions proposes."""
    (line,) = (line for line in out.splitlines() if line.startswith("One question's trees: "))
    return shlex.split(line.partition(": ")[2])


def test_the_proposed_command_draws_the_trees_of_the_table(capsys, tmp_path):
    searches = []
    for n, answers in ((4, "66"), (16, "67"), (64, "66")):
        for label, answer in zip(("beam", "cats"), answers, strict=True):
            for prm in ("exact", "sparse"):
                given = answer if prm == "sparse" else "6"
                result = _search("w a", ["1+2=3", "3+3=6"], given)
                searches.append((row_of(result, GOLD, label, n, prm), result))
    folder = write_run(tmp_path / "a run", searches)
    differ = _hint(_out(capsys, folder, "--differ", "beam", "cats"))
    assert differ[:2] == ["cats-jax", "show"]
    assert differ[2:5] == [str(folder), "--question", "w a"]
    assert differ[5:] == [
        "--strategies", "beam", "cats", "--num-candidates", "16", "--prms", "sparse",
    ]  # fmt: skip
    out = _out(capsys, *differ[2:])
    assert "beam, N = 16, PRM sparse, seed 0: right" in out
    assert "cats, N = 16, PRM sparse, seed 0: wrong" in out
    filters = ["--strategies", "cats", "--num-candidates", "4", "64", "--prms", "exact"]
    assert _hint(_out(capsys, folder, *filters))[5:] == filters


def test_questions_stand_in_the_order_of_their_ids_and_not_of_their_rows(capsys, tmp_path):
    searches = []
    for question in ("10", "0", "2", "01", "1", "q"):
        result = _search(question, ["1+2=3", "3+3=6"], "6")
        searches.append((row_of(result, GOLD), result))
    out = _out(capsys, write_run(tmp_path / "run", searches))
    shown = [line.split()[0] for line in out.splitlines() if TEXT in line]
    assert shown == ["0", "01", "1", "2", "10", "q"]


def test_two_trees_side_by_side_and_where_the_right_path_was_lost(capsys, run):
    out = _out(capsys, run, "--question", "w-aa")
    (headings,) = (line for line in out.splitlines() if line.startswith("beam, N = 4"))
    assert "cats, N = 4, PRM exact, seed 0: wrong" in headings
    assert "dropped at step 1" in out
    assert "1+2=3  ◀ the right path was lost here" in out
    assert "embedded world's task, which checks them" in out


def test_trees_stand_below_each_other_in_a_narrow_terminal(capsys, run, monkeypatch):
    monkeypatch.setattr("cats_jax.commands.terminal.PIPE_WIDTH", 80)
    lines = _out(capsys, run, "--question", "w-aa").splitlines()
    assert "beam, N = 4, PRM exact, seed 0: right" in lines
    assert "cats, N = 4, PRM exact, seed 0: wrong" in lines
    assert "Kept at that step: `1+2=4` (0.900)." in " ".join(lines)


def test_the_number_of_trees(capsys, run):
    out = _out(capsys, run, "--question", "w-aa", "--limit", "1")
    assert "cats, N = 4" not in out
    assert "1 more trees" in out
    assert "--limit 2" in out


def test_a_model_of_the_users_own_has_no_checked_steps(capsys, tmp_path, searches):
    run = write_run(tmp_path / "run", searches, policy="/models/qwen")
    out = _out(capsys, run, "--question", "w-aa")
    assert "None of 1 finished paths is right." in out
    assert "known of finished paths only" in out


def test_a_run_without_trees(capsys, tmp_path, searches):
    run = write_run(tmp_path / "run", searches, trees=False)
    assert "✗ 7" in _out(capsys, run)
    out = _out(capsys, run, "--question", "w-aa")
    assert "2 rows have no tree: set `trees: true`" in out


def test_hostile_text(capsys, tmp_path):
    text = "\x1b[2J[bold]x[/bold]\u202e\x07" + "y" * 100_000
    result = _search("w-aa", [text], "\x1b]0;t\x07", text=text, reason="\x1b[31m[/]")
    run = write_run(
        tmp_path / "run", [(row_of(result, "\u2066[/x]", meta={"level": text}), result)]
    )
    for arguments in ((run,), (run, "--question", "w-aa")):
        out = _out(capsys, *arguments)
        assert "[bold]x" in out
        assert not {"\x1b", "\u202e", "\u2066", "\x07"} & set(out)
        assert max(map(len, out.splitlines())) < 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--question", "w-zz"), "'w-zz' is not in the run: .*known are w-aa, w-ab"),
        (("--question", "w-a"), "the beginning of 2 ids, such as 'w-aa' and 'w-ab'"),
        (("--question", "w-aa", "--levels", "2"), "no row of it fits the other filters"),
        (("--strategies", "beams"), "did you mean 'beam'"),
        (("--differ", "beam", "beam"), "two different"),
        (("--limit", "0"), "--limit 0: must be at least 1"),
        (("--show-dropped", "-1"), "--show-dropped -1: must be at least 0"),
    ],
)
def test_refused(capsys, run, arguments, message):
    assert re.search(message, _out(capsys, run, *arguments, code=2))


def test_folders_that_are_no_runs(capsys, tmp_path, run):
    assert "is no run folder" in _out(capsys, tmp_path, code=2)
    assert "is no run folder" in _out(capsys, run / "manifest.json", code=2)
    manifest = (run / "manifest.json").read_text()
    for broken in ('{"schema": 1}', "[]"):
        (run / "manifest.json").write_text(broken)
        assert "is not a manifest of a run" in _out(capsys, run, code=2)
    (run / "manifest.json").write_text(manifest)
    (run / "results.jsonl").write_text("")
    assert "has no rows yet" in _out(capsys, run, code=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("parent", 3), ("parent", -1), ("id", 7), ("paths", [[2]]), ("paths", [[0]]), ("text", None)],
)
def test_a_damaged_tree_is_named(capsys, tmp_path, name, value):
    result = _search("w-aa", ["1+2=3", "3+3=6"], "6")
    run = write_run(tmp_path / "run", [(row_of(result, GOLD), result)])
    lines = gzip.decompress((run / "trees.jsonl.gz").read_bytes()).splitlines()
    entries = [json.loads(line) for line in lines]
    entry = entries[0] if name == "paths" else entries[1]
    if value is None:
        del entry[name]
    else:
        entry[name] = value
    tree = gzip.compress(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
    (run / "trees.jsonl.gz").write_bytes(tree)
    row = json.loads((run / "results.jsonl").read_text())
    (run / "results.jsonl").write_text(json.dumps({**row, "tree": [0, len(tree)]}) + "\n")
    for arguments in ((), ("--question", "w-aa")):
        out = _out(capsys, run, *arguments)
        assert "left out: " in out
        assert "is damaged at the tree of" in " ".join(out.split())
    assert "rows have no tree" not in out


def test_the_folder_stays_as_it_is(run, capsys):
    before = {path: path.read_bytes() for path in run.iterdir()}
    _out(capsys, run, "--question", "w-aa")
    assert before == {path: path.read_bytes() for path in run.iterdir()}
