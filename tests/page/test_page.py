"""Pages of runs: what is in the file, without a browser; tests/web opens it in one."""

import base64
import dataclasses
import hashlib
import json
import re

import pytest
from hostile_run import LONG, run_manifest, write_hostile_run
from hypothesis import given
from hypothesis import strategies as st
from page_reader import Page
from run_folders import candidate, row_of, searched, write_run

from cats_jax.cli import run as run_command
from cats_jax.errors import BadInputError
from cats_jax.live.ledger import Ledger
from cats_jax.live.results import Candidate, DecisionRow, SearchResult, path_of
from cats_jax.page import build
from cats_jax.page.build import write_page
from cats_jax.page.index import _question
from cats_jax.page.texts import MAX_TEXT, bounded, shortened
from cats_jax.page.trees import encode_tree
from cats_jax.protocols import Question
from cats_jax.reporting.groups import groups
from cats_jax.reporting.right_path import RightPath
from cats_jax.reporting.run_tables import accuracy_sheet
from cats_jax.reporting.sheets import count
from cats_jax.runs.folder import TREES, RunWriter, read_run

# Trees


def _decoded(tree, names):
    """Columns of an encoded tree as lists of equal length, by name."""
    size = len(tree["parent"])
    return {name: _whole(tree[name], size) for name in names}


def _whole(column, size):
    return column if isinstance(column, list) else [column] * size


_SCORES = st.none() | st.floats(0, 1, width=32)
_NUMBERS = st.floats(-1e6, 1e6, width=32)


@st.composite
def _results(draw):
    candidates = []
    for number in range(1, draw(st.integers(0, 12)) + 1):
        parent = draw(st.integers(0, number - 1))
        step = 0 if parent == 0 else candidates[parent - 1].step + 1
        rewrites = parent if parent and draw(st.booleans()) else None
        candidates.append(
            Candidate(
                id=number,
                parent=0 if rewrites else parent,
                rewrites=rewrites,
                step=step,
                phase=draw(st.integers(0, 3)),
                pool_row=number,
                text=draw(st.sampled_from(["", "a", "b", "</script>", "\ud800", "\u202e"])),
                token_ids=(),
                num_tokens=draw(st.integers(0, 40)),
                log_prob=draw(st.none() | st.floats(-1e4, 0, width=32)),
                score=draw(_SCORES),
                path_score=draw(_SCORES),
                invalid=draw(st.sampled_from([None, None, "blank", "a"])),
                done=draw(st.booleans()),
                answer=draw(st.sampled_from([None, "1", "a"])),
                kept=draw(st.booleans()),
            )
        )
    ends = draw(st.lists(st.sampled_from(candidates), max_size=4)) if candidates else []
    paths = [path_of(_path_to(end, candidates), candidates) for end in ends]
    decisions = [
        DecisionRow(
            step=0,
            phase=draw(st.integers(1, 3)),
            node=draw(st.integers(0, len(candidates))),
            features=tuple(draw(st.lists(_NUMBERS, min_size=3, max_size=3))),
            action=0,
            num_extra=draw(st.integers(0, 8)),
            num_retain=draw(st.integers(1, 4)),
            temperature=draw(st.sampled_from([0.6, 1.0])),
            top_p=draw(st.sampled_from([0.9, 1.0])),
            top_k=draw(st.integers(0, 50)),
            granted=draw(st.integers(0, 8)),
            reward=draw(_NUMBERS),
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    chosen = draw(st.none() | st.sampled_from(range(len(paths)))) if paths else None
    return SearchResult(
        Question("q", "1+1"), None, chosen, "answered", "", 1, paths, candidates, decisions
    )


def _path_to(end, candidates):
    path = [end.id]
    while candidates[path[0] - 1].parent:
        path.insert(0, candidates[path[0] - 1].parent)
    return path


_FATE = RightPath("dropped", True, 1, "Lost at step 2.", {0: "at the question", 3: "lost here"})


@given(_results())
def test_a_tree_is_read_back(result):
    tree = json.loads(json.dumps(encode_tree(result, _FATE), allow_nan=False))
    assert tree["fate"]["sentence"] == _FATE.sentence
    assert tree["fate"]["knowledge"] == _FATE.knowledge
    assert {node: text for node, text in tree["fate"]["remarks"]} == _FATE.remarks
    names = ("parent", "step", "phase", "tokens", "score", "path_score", "log_prob", "flags")
    columns = _decoded(tree, names)
    answers, invalid = dict(tree["answers"]), dict(tree["invalid"])
    assert dict(tree["rewrites"]) == {c.id: c.rewrites for c in result.candidates if c.rewrites}
    for index, node in enumerate(result.candidates):
        assert columns["parent"][index] == node.parent
        assert columns["step"][index] == node.step
        assert columns["phase"][index] == node.phase
        assert columns["tokens"][index] == node.num_tokens
        assert tree["texts"][tree["text"][index]] == node.text
        assert columns["flags"][index] == node.kept + 2 * node.done
        assert _text(tree, answers.get(node.id)) == node.answer
        assert _text(tree, invalid.get(node.id)) == node.invalid
        for name, value, unit in (
            ("score", node.score, 10_000),
            ("path_score", node.path_score, 10_000),
            ("log_prob", node.log_prob, 100),
        ):
            found = columns[name][index]
            assert (found is None) == (value is None)
            assert value is None or abs(found / unit - value) <= 0.5001 / unit
    firsts = _whole(tree["first"], len(result.candidates))
    paths = [_texts_to(node, result.candidates) for node in result.candidates]
    assert [first or index + 1 for index, first in enumerate(firsts)] == [
        paths.index(path) + 1 for path in paths
    ]
    assert tree["ends"] == [path.nodes[-1] for path in result.paths]
    assert tree["chosen"] == result.chosen
    decisions = tree["decisions"]
    for index, decision in enumerate(result.decisions):
        for name in ("node", "step", "phase", "num_extra", "num_retain", "top_k", "granted"):
            assert decisions[name][index] == getattr(decision, name)
        size = len(result.decisions)
        for name in ("temperature", "top_p"):
            assert _whole(decisions[name], size)[index] == getattr(decision, name)
        assert abs(decisions["reward"][index] / 10_000 - decision.reward) <= 0.5001e-4
        for feature, value in enumerate(decision.features):
            assert abs(_whole(decisions["features"][feature], size)[index] - value) <= 0.5001e-3


def _texts_to(node, candidates):
    path = [candidates[number - 1] for number in _path_to(node, candidates)]
    return [(step.text, step.invalid) for step in path]


def _text(tree, index):
    return None if index is None else tree["texts"][index]


def test_a_long_text_is_cut_and_its_length_told():
    assert bounded("a" * MAX_TEXT) == "a" * MAX_TEXT
    assert bounded("a" * (MAX_TEXT + 1)) == ["a" * MAX_TEXT, MAX_TEXT + 1]
    assert shortened("abcd", 4) == "abcd"
    assert shortened("abcde", 4) == "abc…"


# Pages


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = write_hostile_run(tmp_path_factory.mktemp("hostile"))
    path = folder / "page.html"
    write_page([read_run(folder)], path)
    return path


def test_the_policy_allows_our_scripts_and_nothing_else(hostile):
    page = Page(hostile)
    directives = dict(part.split(" ", 1) for part in page.policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].split() == [_digest(script) for script in page.scripts]
    assert directives["style-src-elem"].split() == [_digest(style) for style in page.styles]
    assert directives["img-src"] == "data:"
    assert "connect-src" not in directives


def _digest(content):
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def test_no_text_of_a_run_is_markup(hostile):
    page = Page(hostile)
    assert len(page.scripts) == 2
    assert not any("</script" in script.lower() for script in page.scripts)
    assert len(page.styles) == 1
    assert page.tags.count("script") == 2 + len(page.blocks)
    assert not {"img", "iframe", "svg", "a", "link"} & set(page.tags)
    # Of the run's texts only its name is outside of the blocks.
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", hostile.read_text("utf-8"), flags=re.DOTALL)
    assert "onerror" not in bare
    assert "&lt;/script&gt;" in bare


def test_nothing_is_loaded_from_elsewhere(hostile):
    page = Page(hostile)
    own = page.scripts[1] + page.styles[0]
    assert not re.search(r"https?://|url\(|@import|\bimport\(|fetch\(|XMLHttp|WebSocket", own)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", own)


def test_a_page_of_hostile_texts_is_small(hostile):
    assert hostile.stat().st_size < 1_000_000
    texts = Page(hostile).tree((0, 0))["texts"]
    assert [LONG[:MAX_TEXT], len(LONG)] in texts


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(build, "write_figures", lambda *_, **__: [])


def _write(folder, name, strategy, texts, tree=True):
    """A run whose searches have one path of one step each, with these texts."""
    searches = []
    for number, text in enumerate(texts):
        node = candidate(1, 0, 0, text, 0.5, kept=True, done=True, answer=text)
        result = searched(f"q{number}", f"which {number}?", [node], chosen=1)
        searches.append((row_of(result, "x", strategy, prm=None, meta={"level": 1}), result))
    with RunWriter(folder, run_manifest(name)) as writer:
        for row, result in searches:
            writer.add(row, result if tree else None)
    return read_run(folder)


def _steps(page, part):
    """(question, strategy's label) -> text of the first step, through index and blocks."""
    rows = part["rows"]
    found = {}
    for index, place in enumerate(rows["tree"]):
        question = part["questions"][rows["question"][index]]
        strategy = part["configurations"][rows["configuration"][index]][0]
        found[question["id"], part["strategies"][strategy][0]] = page.tree(place)["texts"][0]
    return found


def test_rows_of_a_merged_run_have_the_trees_of_their_own_folder(tmp_path):
    one = _write(tmp_path / "one", "one", "beam", ["a", "b"])
    two = _write(tmp_path / "two", "one", "cats", ["c", "x"])
    path = tmp_path / "page.html"
    size = write_page([one, two], path)
    page = Page(path)
    (part,) = page.blocks["index"]["parts"]
    assert _steps(page, part) == {
        ("q0", "beam"): "a", ("q1", "beam"): "b", ("q0", "cats"): "c", ("q1", "cats"): "x",
    }  # fmt: skip
    assert [question["text"] for question in part["questions"]] == ["which 0?", "which 1?"]
    assert part["rows"]["correct"] == [0, 0, 0, 1]
    assert (size.rows, size.trees, size.damaged) == (4, 4, ())
    assert size.bytes == path.stat().st_size


@pytest.mark.usefixtures("no_figures")
def test_the_page_says_where_the_right_path_was_lost(tmp_path):
    steps = [
        candidate(1, 0, 0, "1+2=3", 0.4),
        candidate(2, 0, 0, "1+2=4", 0.9, kept=True),
        candidate(3, 2, 1, "\\boxed{7}", 0.9, kept=True, done=True, answer="7"),
    ]
    result = searched("w-a", "(1+2)+3=?", steps, chosen=3)
    for policy, first, remarks, knowledge in (
        ("weak", "The right path was lost at step 1:", {1, 2}, "from the embedded world's task"),
        ("/models/qwen", "None of 1 finished paths is right.", set(), "of finished paths only"),
    ):
        name = policy.rpartition("/")[2]
        folder = write_run(tmp_path / name, [(row_of(result, "6"), result)], policy=policy)
        write_page([read_run(folder)], tmp_path / "page.html")
        fate = Page(tmp_path / "page.html").tree((0, 0))["fate"]
        assert fate["sentence"].startswith(first)
        assert {node for node, _ in fate["remarks"]} == remarks
        assert knowledge in fate["knowledge"]


@pytest.mark.usefixtures("no_figures")
def test_runs_of_other_questions_are_parts_of_their_own(tmp_path):
    one = _write(tmp_path / "one", "one", "beam", ["a"])
    two = _write(tmp_path / "two", "two", "beam", ["x", "x"])
    path = tmp_path / "page.html"
    write_page([one, two], path)
    page = Page(path)
    parts = page.blocks["index"]["parts"]
    assert [part["name"] for part in parts] == ["one", "two"]
    assert _steps(page, parts[0]) == {("q0", "beam"): "a"}
    assert [group["accuracy"][0] for part in parts for group in part["groups"]] == [0.0, 1.0]


def test_a_level_behind_many_columns_is_there_and_null_is_none(tmp_path):
    result = searched("q", "?", [candidate(1, 0, 0, "x")])
    columns = {f"column {i}": i for i in range(9)}
    metas = ({**columns, "level": 3, "subject": None}, {"level": None})
    rows = [row_of(result, "6", meta=meta) for meta in metas]
    questions = [_question(("", "q"), row, "?") for row in rows]
    assert [question["level"] for question in questions] == ["3", None]
    assert [len(question["notes"]) for question in questions] == [8, 0]


@pytest.mark.usefixtures("no_figures")
def test_numbers_are_rounded_once_and_as_in_tables(tmp_path):
    results = [searched(f"q{i}", "?", [candidate(1, 0, 0, "x")]) for i in range(20)]
    rows = [row_of(result, "6") for result in results]
    tokens = [33] * 11 + [34] * 9  # 33.45 on average, which as 33.5 would become 34
    rows = [
        dataclasses.replace(row, ledger=Ledger(generated=number))
        for row, number in zip(rows, tokens, strict=True)
    ]
    run = read_run(write_run(tmp_path / "run", list(zip(rows, results, strict=True))))
    write_page([run], tmp_path / "page.html")
    (group,) = Page(tmp_path / "page.html").blocks["index"]["parts"][0]["groups"]
    (row,) = accuracy_sheet(groups(run.rows), "t").records
    assert row["tokens"] == pytest.approx(33.45)
    assert group["tokens"] == 33 == int(count(row["tokens"]))


def test_a_damaged_tree_is_left_out_and_named(tmp_path, monkeypatch):
    run = _write(tmp_path / "run", "run", "beam", ["a", "b"])
    trees = tmp_path / "run" / TREES
    data = bytearray(trees.read_bytes())
    assert run.rows[0].tree is not None
    data[run.rows[0].tree[0] + 12] ^= 0xFF
    trees.write_bytes(data)
    size = write_page([run], tmp_path / "page.html")
    assert size.trees == 1
    assert run.rows[0].key in size.damaged[0]
    (part,) = Page(tmp_path / "page.html").blocks["index"]["parts"]
    assert part["rows"]["tree"] == [None, [0, 0]]
    # A part of its own still has its figures of actions and scores.
    found = []
    monkeypatch.setattr(build, "write_figures", lambda *_, run: found.append(run) or [])
    write_page([run, _write(tmp_path / "other", "other", "beam", ["c"])], tmp_path / "page.html")
    names = [each and each.manifest["config"]["name"] for each in found]
    assert names == [None, "other"]


def test_a_run_without_trees_has_a_page_that_says_so(tmp_path, capsys):
    _write(tmp_path / "run", "run", "beam", ["a", "b"], tree=False)
    assert run_command(["page", str(tmp_path / "run")]) == 0
    output = capsys.readouterr().out
    assert "no search trees" in output
    assert "trees: true" in output
    page = Page(tmp_path / "run" / "page.html")
    assert set(page.blocks) == {"index", "figures-0"}
    assert "trees: true" in page.scripts[1]


@pytest.mark.usefixtures("no_figures")
def test_seeds_are_configurations_of_their_own(tmp_path):

    run = _write(tmp_path / "run", "run", "beam", ["a", "b"])
    again = [dataclasses.replace(row, seed=1, key=f"{row.key}'") for row in run.rows]
    write_page([dataclasses.replace(run, rows=run.rows + tuple(again))], tmp_path / "page.html")
    (part,) = Page(tmp_path / "page.html").blocks["index"]["parts"]
    assert part["configurations"] == [[0, 4, None, 0], [0, 4, None, 1]]
    assert part["rows"]["configuration"] == [0, 1, 0, 1]


# Refused inputs


def test_a_run_without_rows_is_refused(tmp_path):
    RunWriter(tmp_path / "run", run_manifest("run")).close()
    with pytest.raises(BadInputError, match="no finished row yet"):
        write_page([read_run(tmp_path / "run")], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name at least one run folder"),
        (["{folder}/none"], "is no run folder"),
        (["{folder}/run", "--output", "{folder}/page.txt"], "must end in .html"),
        (["{folder}/run", "--output", "{folder}/none/page.html"], "does not exist"),
        (["{folder}/run", "--output", "{folder}/taken.html"], "is a folder"),
    ],
)
def test_refused(arguments, message, tmp_path, capsys):
    _write(tmp_path / "run", "run", "beam", ["a"])
    (tmp_path / "taken.html").mkdir()
    assert run_command(["page", *(part.format(folder=tmp_path) for part in arguments)]) == 2
    assert message in capsys.readouterr().err
