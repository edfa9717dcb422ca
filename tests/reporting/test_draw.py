"""The drawn tree: what was kept, what it scored, which action was taken, and nothing hostile."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from run_folders import searched

from cats_jax.live.ledger import Ledger
from cats_jax.live.results import Candidate, DecisionRow
from cats_jax.reporting import draw


def _candidate(identity, parent, text, score=None, path_score=None, **fields):
    return Candidate(
        identity, parent, 0, 0, identity, text, (), 1, -1.0, score, path_score, **fields
    )


def _lines(result, **options):
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(draw.draw_search(result, **options))
    return out.getvalue().splitlines()


def _result(candidates, decisions=(), chosen=None):
    result = searched("q", "1+2+3", candidates, chosen)
    result.decisions = list(decisions)
    return result


@pytest.fixture
def tree():
    candidates = [
        _candidate(1, 0, "1+2=3", 0.9, 0.9, kept=True),
        _candidate(2, 0, "1+2=4", 0.3, 0.3),
        _candidate(3, 0, "", invalid="blank"),
        _candidate(4, 1, "\\boxed{6}", 0.8, 0.8, done=True, answer="6", kept=True),
        _candidate(5, 1, "\\boxed{7}", 0.2, 0.2, done=True, answer="7"),
    ]
    decisions = [
        DecisionRow(0, 1, 0, (), 5, 4, 2, 1.0, 0.9, 0, 2, 0.1),
        DecisionRow(0, 2, 0, (), 0, 0, 1, 1.0, 1.0, 0, 0, 0.1),
    ]
    return _result(candidates, decisions, chosen=4)


def test_a_tree_shows_steps_scores_fate_and_actions(tree):
    assert _lines(tree) == [
        "1+2+3",
        "├── round 1: +4, keep 2, T=1, top-p 0.9 (2 granted)",
        "├── round 2: +0, keep 1",
        "├── ★ 0.900 (0.900)  1+2=3",
        "│   ├── ★ 0.800 (0.800)  \\boxed{6}  → 6",
        "│   └── ○ 0.200 (0.200)  \\boxed{7}  → 7",
        "├── ○ 0.300 (0.300)  1+2=4",
        "└── × invalid: blank",
    ]


def test_a_rewrite_stands_below_its_answer():
    answers = [
        _candidate(1, 0, "first", 0.5, 0.5, done=True, answer="1", kept=True),
        _candidate(2, 0, "second", 0.4, 0.4, done=True, answer="2", kept=True),
        _candidate(3, 0, "better", 0.7, 0.7, done=True, answer="3", kept=True, rewrites=1),
        _candidate(4, 0, "best", 0.9, 0.9, done=True, answer="4", kept=True, rewrites=3),
    ]
    lines = _lines(_result(answers, chosen=4))
    indents = {text: line.index(text) for text in ("first", "second", "better", "best")
               for line in lines if text in line}  # fmt: skip
    assert indents["first"] == indents["second"] < indents["better"] < indents["best"]
    order = [next(i for i, line in enumerate(lines) if text in line) for text in indents]
    assert order[2:] == [order[0] + 1, order[0] + 2]


def test_outcome_line(tree):
    tree.ledger = Ledger(candidates=5, generated=20, prm_computed=5)
    line = draw.describe_result(tree)
    assert line.startswith("answer: 6   status: answered   steps: 1   finished paths: 1")
    assert "candidates: 5   tokens: 25 (policy 20, PRM 5)" in line


def test_what_led_to_nothing_is_folded():
    candidates = [_candidate(i, 0, f"step {i // 4}", 0.5, 0.5 - i / 100) for i in range(1, 41)]
    lines = _lines(_result(candidates), max_dropped=1)
    assert lines[1:] == [
        "├── ○ 0.490 (0.500)  step 0  ×3",
        "└── ○ 37 more dropped, scores 0.100 to 0.460",
    ]


def test_no_prm_and_no_answer():
    candidates = [_candidate(1, 0, "hm", done=True, kept=True)]
    assert _lines(_result(candidates))[1:] == ["└── ●  hm  → no answer"]


def test_a_model_cannot_steer_the_terminal():
    text = "[bold]x[/bold]\x1b[2J\x07\nnext" + "y" * 200
    (line,) = _lines(_result([_candidate(1, 0, text, 0.5, 0.5, kept=True)]))[1:]
    assert "\x1b" not in line
    assert "\x07" not in line
    assert "[bold]x[/bold]" in line
    assert line.endswith("…")


def test_equal_steps_after_equal_paths_are_one_line():
    candidates = [
        _candidate(1, 0, "a", 0.5, 0.5, kept=True),
        _candidate(2, 0, "a", 0.5, 0.5, kept=True),
        _candidate(3, 0, "a", 0.5, 0.5),
        _candidate(4, 1, "b", 0.4, 0.4),
        _candidate(5, 2, "b", 0.4, 0.4),
        _candidate(6, 2, "c", 0.3, 0.3, kept=True),
    ]
    decisions = [DecisionRow(0, 0, node, (), 0, 4, 2, 1.0, 1.0, 0, 4, 0.0) for node in (1, 2)]
    assert _lines(_result(candidates, decisions))[1:] == [
        "└── ● 0.500 (0.500)  a  ×3, 2 kept",
        "    ├── round 0: +4, keep 2, T=1  ×2",
        "    ├── ● 0.300 (0.300)  c",
        "    └── ○ 0.400 (0.400)  b  ×2",
    ]


def test_many_distinct_kept_steps_are_folded_but_not_those_with_a_remark():
    candidates = [_candidate(i, 0, f"s{i}", 0.5, i / 100, kept=True) for i in range(1, 21)]
    lines = _lines(_result(candidates), remarks={1: "look", 0: "root"})
    assert lines[0].endswith("◀ root")
    assert "├── ● 0.010 (0.500)  s1  ◀ look" in lines
    assert lines[-1] == "└── ● 12 more kept, scores 0.020 to 0.130"
    assert len(lines) == 10


@given(st.data())
def test_no_candidate_is_lost_from_the_drawing(data):
    candidates = []
    for identity in range(1, data.draw(st.integers(0, 30)) + 1):
        parents = [0, *(node.id for node in candidates if node.invalid is None)]
        candidates.append(
            _candidate(
                identity,
                data.draw(st.sampled_from(parents)),
                data.draw(st.sampled_from("xyz")),
                kept=data.draw(st.booleans()),
                invalid=data.draw(st.sampled_from([None, None, "blank"])),
            )
        )
    lines = _lines(_result(candidates), max_dropped=data.draw(st.integers(0, 2)))[1:]
    counts = (re.search(r"×(\d+)|(\d+) more", line) for line in lines)
    assert sum(int(found[1] or found[2]) if found else 1 for found in counts) == len(candidates)


def test_a_very_deep_path_is_drawn():
    candidates = [_candidate(i, i - 1, str(i), kept=True) for i in range(1, 400)]
    assert draw.draw_search(_result(candidates)).children
