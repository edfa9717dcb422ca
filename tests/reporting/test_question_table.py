"""The table of questions: it fits, it says what it left out, and no text can steer the terminal."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from run_folders import candidate, row_of, searched

from cats_jax.reporting.plain_text import one_line
from cats_jax.reporting.question_table import question_table


def _rows(strategies, sizes, prms, questions=("q1", "q2"), seeds=(0,)):
    return [
        row_of(searched(question, "1+2=?", []), "3", strategy, n, prm, seed, correct=n > 4)
        for question in questions
        for strategy in strategies
        for prm in prms
        for n in sizes
        for seed in seeds
    ]


def _lines(table, width):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    return out.getvalue().splitlines()


def test_one_n_shows_marks_with_answers():
    end = candidate(1, 0, 0, "\\boxed{3}", done=True, answer="3", kept=True)
    right = row_of(searched("q1", "1+2=?", [end], chosen=1), "3", meta={"level": 2})
    failed = row_of(searched("q2", "1+1=?", [], status="failed"), "2", meta={"level": 3})
    found = question_table([right, failed], {"q1": "1+2=?"}, 80, "a run")
    lines = [line.rstrip() for line in _lines(found.table, 80)]
    assert lines == [
        "a run",
        "                              beam",
        "                              exact",
        "question  level  gold  right  N=4          text",
        "─" * 49,
        "q1            2     3    1/1  ✓ 3          1+2=?",
        "q2            3     2    0/1  ! no answer",
    ]
    assert found.shown == found.configurations == 1


def test_several_n_share_a_column_and_missing_rows_have_a_dot():
    rows = _rows(["beam"], [4, 16], ["exact"], seeds=(0, 1))
    lines = _lines(question_table(rows[:-1], {}, 80, "").table, 80)
    assert "N=4,16" in lines[-4]
    assert lines[-2].split() == ["q1", "3", "2/4", "✗✗", "✓✓"]
    assert lines[-1].split() == ["q2", "3", "1/3", "✗✗", "✓·"]


@given(
    st.integers(40, 200),
    st.integers(1, 8),
    st.integers(1, 4),
    st.text(max_size=30),
    st.text(max_size=300),
)
def test_it_fits_into_the_terminal_and_ids_stay(width, strategies, prms, label, text):
    rows = _rows([f"{label}{i}" for i in range(strategies)], [4, 16], [str(p) for p in range(prms)])
    found = question_table(rows, {"q1": text, "q2": "x" * 5000}, width, "title")
    lines = _lines(found.table, width)
    assert all(len(one_line(line, 10_000)) <= width for line in lines)
    assert sum(line.startswith(("q1 ", "q2 ")) for line in lines) == 2
    assert 0 <= found.shown <= found.configurations == strategies * prms
    everything = "\n".join(lines)
    assert all(char.isprintable() or char == "\n" for char in everything)


def test_control_characters_and_markup_are_shown_not_obeyed():
    rows = _rows(["[red]b[/red]"], [4], ["\x1b[2Jp"])
    lines = "\n".join(
        _lines(question_table(rows, {"q1": "\u202eevil\x07"}, 100, "[b]t").table, 100)
    )
    assert "[red]b[/red]" in lines
    assert "[b]t" in lines
    assert not {"\x1b", "\u202e", "\x07"} & set(lines)


@given(st.text(), st.integers(1, 50))
def test_one_line(text, most):
    line = one_line(text, most)
    assert len(line) <= most
    assert line.isprintable()


def test_a_long_text_ends_with_an_ellipsis():
    assert one_line("ab", 2) == "ab"
    assert one_line("abc", 2) == "a…"
    assert one_line(" " * 10_000_000 + "x", 5) == "…"
