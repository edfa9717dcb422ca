"""Searches on recorded paths, in every order, against counts by hand."""

import pytest

import search
from cats_jax.grading import MathGrader
from studies.real import recorded_searches, train_stopper

# Two paths of each question, and a third of "c", which is left out. A text has a token a word.
_ROWS = [
    {"question": "a", "steps": ["so", r"it is \boxed{1}"], "scores": {"prm": [0.1, 0.8]}},
    {"question": "a", "steps": [r"it is certainly \boxed{2}"], "scores": {"prm": [0.4]}},
    {"question": "b", "steps": [r"now \boxed{3}"], "scores": {"prm": [0.9]}},
    {"question": "b", "steps": ["then", "an endless step"]},
    *[{"question": "c", "steps": [rf"\boxed{{{i}}}"], "scores": {"prm": [0.9]}} for i in range(3)],
    {"question": "d", "steps": [r"no \boxed{5}"], "scores": {"prm": [0.6]}},
    {"question": "d", "steps": [r"indeed yes \boxed{4}"], "scores": {"prm": [0.7]}},
]
_GOLDS = {"a": "1", "b": "3", "d": "4"}


@pytest.mark.parametrize(
    ("strategy", "right", "tokens"),
    [
        (search.best_of_n(path_score="last"), [1, 1, 1], [8, 6, 5]),
        # Half of the orders stop at the first path. The order of d decides its answer.
        (
            search.methods.sequential_best_of_n(stop=0.5, path_score="last"),
            [1, 1, 0.5],
            [(4 + 8) / 2, (2 + 6) / 2, (2 + 3) / 2],
        ),
    ],
    ids=["all paths", "stops"],
)
def test_a_question_has_the_mean_of_all_orders(strategy, right, tokens):
    world = recorded_searches.recorded(_ROWS, "prm", lambda text: len(text.split()))
    assert [*world.beginnings] == ["a", "b", "d"]
    with MathGrader() as grader:
        for _ in range(2):  # the second time like the first
            found = recorded_searches.searched(strategy, 2, world, _GOLDS, grader)
            assert found == (right, tokens)


def test_answers_of_recorded_paths_are_classes_of_equal_answers():
    rows = [
        {**row, "labels": [1 if rf"\boxed{{{_GOLDS.get(row['question'])}}}" in text else 0]}
        for row in _ROWS
        for text in row["steps"][-1:]
    ]
    rows.insert(1, {**rows[0], "steps": [r"\boxed{1.0}"]})
    with MathGrader() as grader:
        found = train_stopper.recorded_answers(rows, "prm", grader)
    # The first two paths of each question; the endless step of "b" has no answer.
    assert found.answers.valid.tolist() == [[True, True], [True, False], [True, True], [True, True]]
    assert found.answers.answer.tolist() == [[0, 0], [0, -1], [0, 1], [0, 1]]
    assert found.right.tolist() == [[True, True], [True, False], [False, False], [False, True]]
    assert found.answers.score[0].tolist() == pytest.approx([0.8, 0.8])
