"""Chosen rows: each filter against a plain loop, and names that no row has."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import row_of, searched

from cats_jax.errors import BadInputError
from cats_jax.reporting.selection import (
    Selection,
    check_differ,
    differing_rows,
    find_question,
    select,
)


def _row(question, cell, correct, seed=0, level=1, status="answered"):
    strategy, n, prm = cell
    result = searched(question, "1+2=?", [], status=status)
    return row_of(result, "3", strategy, n, prm, seed, correct=correct, meta={"level": level})


CELLS = [("greedy", 1, None), *itertools.product(("beam", "cats"), (4, 16), ("exact", "sparse"))]


@st.composite
def tables(draw):
    questions = [f"q{i}" for i in range(draw(st.integers(1, 4)))]
    return [
        _row(question, cell, draw(st.booleans()), level=i % 2)
        for i, question in enumerate(questions)
        for cell in CELLS
    ]


@given(tables(), st.sampled_from(["beam", "cats"]), st.sampled_from([4, 16]))
def test_filters_keep_what_they_name_and_what_they_do_not_apply_to(rows, strategy, n):
    chosen = select(rows, Selection(num_candidates=(n,), prms=("exact",)))
    assert {(r.strategy, r.num_candidates, r.prm) for r in chosen} == {
        ("greedy", 1, None),
        ("beam", n, "exact"),
        ("cats", n, "exact"),
    }
    only = select(rows, Selection(strategies=(strategy,), levels=("0",)))
    assert only == [r for r in rows if r.strategy == strategy and r.meta["level"] == 0]
    assert select(rows, Selection()) == rows
    assert select(rows, Selection(statuses=("failed",))) == []


@given(tables(), st.permutations(["greedy", "beam", "cats"]))
def test_strategies_differ_at_the_same_n_and_prm(rows, names):
    first, second = names[:2]
    verdicts = {(r.question, r.strategy, r.num_candidates, r.prm): r.correct for r in rows}

    def verdict(question, strategy, n, prm):
        cell = (1, None) if strategy == "greedy" else (n, prm)
        return verdicts[question, strategy, *cell]

    expected = {
        question
        for question in dict.fromkeys(r.question for r in rows)
        if any(
            verdict(question, first, n, prm) != verdict(question, second, n, prm)
            for n, prm in itertools.product((4, 16), ("exact", "sparse"))
        )
    }
    assert {row.question for row, _ in differing_rows(rows, first, second)} == expected


def test_strategies_are_compared_with_the_same_prm():
    rows = [
        _row("q", (strategy, 4, prm), prm == "exact")
        for prm in ("exact", "sparse")
        for strategy in ("beam", "cats")
    ]
    assert differing_rows(rows, "beam", "cats") == []


def test_strategies_are_compared_with_the_same_seed():
    for n in (4, 1):  # of a selection with N = 1 no strategy seems to read N
        rows = [
            _row("q", (strategy, n, "exact"), correct, seed)
            for seed, correct in enumerate((True, False))
            for strategy in ("beam", "cats")
        ]
        assert differing_rows(rows, "beam", "cats") == []


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"strategies": ("beams",)}, "--strategies: 'beams' .* did you mean 'beam'"),
        ({"num_candidates": (5,)}, "--num-candidates: 5 is not in the run: known are 1, 4"),
        ({"num_candidates": ("4",)}, "--num-candidates: '4' is not in the run: known are 1, 4"),
        ({"prms": ("none",)}, "--prms: 'none' is not in the run"),
        ({"levels": ("7",)}, "--levels: '7' is not in the run: known are 1"),
        ({"statuses": ("done",)}, "--statuses: 'done' .* known are answered, no_answer"),
    ],
)
def test_names_that_no_row_has(selection, message):
    rows = [_row("q", cell, True) for cell in CELLS]
    with pytest.raises(BadInputError, match=message):
        select(rows, Selection(**selection))


def test_differ_needs_two_strategies_of_the_run():
    rows = [_row("q", cell, True) for cell in CELLS]
    with pytest.raises(BadInputError, match="two different"):
        check_differ(rows, "beam", "beam")
    with pytest.raises(BadInputError, match="'mcts' is not in the run"):
        check_differ(rows, "beam", "mcts")


def test_a_question_is_found_by_its_id_as_it_is_printed():
    rows = [_row(question, CELLS[0], correct=True) for question in ("a\nb", "a\tc", "d")]
    assert find_question(rows, "a b") == "a\nb"
    assert find_question(rows, "a\tc") == "a\tc"
    with pytest.raises(BadInputError, match="is the beginning of 2 ids"):
        find_question(rows, "a ")
    rows = [_row(question, CELLS[0], correct=True) for question in ("q\n1", "q\n10", "\ne")]
    assert find_question(rows, "q 1") == "q\n1"
    assert find_question(rows, " e") == "\ne"
