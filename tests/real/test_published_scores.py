"""Published answers, grades and rewards of 100 MATH questions with eight solutions each.

The file is the example of QwenLM/Qwen2.5-Math for RM@k and maj@k (Apache-2.0):
`evaluation/data/eval_rm_maj_example/math_cot_100.jsonl`, with grades by that repository's code and
rewards of whole solutions by Qwen2.5-Math-RM-72B. Its documentation states no figure for the
example. `PUBLISHED` is what its script `evaluation/rm_maj_eval.py` prints for this file. All other
expectations are computed here in plain Python from the file's own grades and rewards, and from the
texts of the boxes.

A reward is an unbounded number, from -4.3 to 6.1 in this file, and `search` takes scores in [0, 1].
The sigmoid maps one to the other. It increases strictly, so that best-of-8 is the same under any
such map. A weighted vote is not: it depends on the map, and the sigmoid makes every vote positive.
"""

import json
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import search
from cats_jax.grading import MathGrader
from cats_jax.live.tree import AnswerClasses
from search.state import empty_paths

PUBLISHED = {"majority": 93, "best": 94}
"""Number of the 100 questions that are answered right, by the publisher's grades."""


@pytest.fixture(scope="module")
def rows(shared):
    lines = shared("real/qwen2.5_math_100x8.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 100
    for row in rows:
        assert {len(row[key]) for key in ("responses", "correct", "reward_scores")} == {8}
    return rows


@pytest.fixture(scope="module")
def grader():
    with MathGrader(workers=1, seconds=5.0) as grader:
        yield grader


@pytest.fixture(scope="module")
def classes(rows, grader):
    """Classes of equal answers as a live search numbers them, i32[100, 8]."""
    found = []
    for row in rows:
        numbers = AnswerClasses(grader)
        found.append([numbers.number(grader.extract([text])) for text in row["responses"]])
    return np.array(found, np.int32)


def boxed(text):
    """The content of the last box, by counting braces."""
    start = end = text.rindex("\\boxed{") + len("\\boxed{")
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[start : end - 1]


def sigmoid(reward):
    return 1 / (1 + math.exp(-reward))


def first_with_most(answers, votes):
    """The first row whose answer has the largest sum of votes."""
    totals = Counter()
    for answer, vote in zip(answers, votes, strict=True):
        totals[answer] += vote
    return answers.index(max(totals, key=totals.__getitem__))


def expected_rows(row, rule, k):
    """The row that a rule chooses among the first k solutions."""
    answers = [boxed(text) for text in row["responses"][:k]]
    rewards = row["reward_scores"][:k]
    if rule == "best":
        return rewards.index(max(rewards))
    votes = [1] * k if rule == "majority" else map(sigmoid, rewards)
    return first_with_most(answers, votes)


def chosen_rows(rows, classes, rule, k, aggregation="min"):
    """The rows that `search` chooses among the first k solutions, each a path of one step."""
    rewards = jnp.array([row["reward_scores"] for row in rows], jnp.float32)
    scores = jax.nn.sigmoid(rewards)

    @jax.vmap
    def choose(answer, score):
        paths = empty_paths(8, 3, None)
        paths = paths.replace(
            valid=jnp.arange(8) < k,
            done=jnp.ones(8, bool),
            depth=jnp.ones(8, jnp.int32),
            step_scores=paths.step_scores.at[:, 0].set(score),
            answer=answer,
            weight=jnp.ones(8, jnp.float32),
        )
        by = search.aggregations.aggregation(aggregation)
        return search.answers.answer_rule(rule)(None, paths, search.Context(), by)

    return choose(jnp.array(classes), scores).tolist()


def test_grades_are_the_published_ones_but_for_one(rows, grader):
    """The gold answer `10{,}000` is 10000 to us, and not to the publisher's code."""
    differing = []
    for row in rows:
        for index, (text, correct) in enumerate(zip(row["responses"], row["correct"], strict=True)):
            grade = grader.grade(text, row["answer"])
            assert grade.error == ""
            if grade.correct != correct:
                differing.append((row["id"], index, boxed(text), row["answer"], correct))
    assert differing == [("72", 7, "10000", "10{,}000", False)]
    assert sum(sum(row["correct"]) for row in rows) == 728


def test_classes_of_answers_are_those_of_the_boxes(rows, classes):
    """In these solutions equal answers to a question are spelt alike, and unequal ones are not."""
    for row, numbers in zip(rows, classes, strict=True):
        texts = [boxed(text) for text in row["responses"]]
        assert numbers.tolist() == [list(dict.fromkeys(texts)).index(text) for text in texts]
        # Grades never differ within a class.
        assert len(set(zip(numbers, row["correct"], strict=True))) == len(set(texts))
    assert sum(numbers.max() > 0 for numbers in classes) == 12


def respelt(answer):
    """The same number in another spelling; other answers as they are."""
    if answer.removeprefix("-").isdecimal():
        return f"\\frac{{{2 * int(answer)}}}{{2}}"
    return answer.replace("\\frac", "\\dfrac")


def test_classes_do_not_depend_on_spelling(rows, classes, grader):
    """Every second answer in another spelling, which a count of texts would not join."""
    num_respelt = 0
    for row, numbers in zip(rows, classes, strict=True):
        answers = [boxed(text) for text in row["responses"]]
        mixed = [respelt(answer) if i % 2 else answer for i, answer in enumerate(answers)]
        num_respelt += mixed != answers
        live = AnswerClasses(grader)
        assert [live.number(answer) for answer in mixed] == numbers.tolist()
    assert num_respelt > 80


@pytest.mark.parametrize("rule", ["best", "majority", "weighted"])
def test_rules_choose_the_solutions_that_plain_python_chooses(rows, classes, rule):
    for k in range(1, 9):
        chosen = chosen_rows(rows, classes, rule, k)
        assert chosen == [expected_rows(row, rule, k) for row in rows], k


@pytest.mark.parametrize("name", sorted(search.aggregations.AGGREGATIONS))
def test_the_best_of_solutions_of_one_step_has_the_best_reward_by_every_path_score(
    rows, classes, name
):
    chosen = chosen_rows(rows, classes, "best", 8, name)
    assert chosen == [expected_rows(row, "best", 8) for row in rows]


@pytest.mark.parametrize(("rule", "more"), [("best", 1), ("majority", 0)])
def test_as_many_answers_are_right_as_the_publisher_finds(rows, classes, grader, rule, more):
    """The solution whose grade differs from ours has the best reward of its question."""
    right, ours = 0, 0
    for row, index in zip(rows, chosen_rows(rows, classes, rule, 8), strict=True):
        right += row["correct"][index]
        ours += grader.grade(row["responses"][index], row["answer"]).correct
    assert (right, ours) == (PUBLISHED[rule], PUBLISHED[rule] + more)
