"""The embedded task: generator, question sets and the exact checker of every step."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cats_jax.world import task

PROBLEMS = [
    task.generate_problem(random.Random(seed), level) for level in task.LEVELS for seed in range(8)
]


def evaluate(text: str) -> int:
    """An independent oracle: rewrites innermost parentheses until none is left."""
    expression = text.removesuffix("=?")
    compute = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a // b,
        "%": lambda a, b: a % b,
    }

    def value(match: re.Match) -> str:
        return str(compute[match[2]](int(match[1]), int(match[3])))

    expression = f"({expression})"
    while not expression.isdigit():
        expression = re.sub(r"\((\d+)([-+*/%])(\d+)\)", value, expression)
    return int(expression)


def any_order(text: str, rng: random.Random) -> list[str]:
    """A right solution that reduces the operations in a random order, by rewriting the text."""
    expression = f"({text.removesuffix('=?')})"
    steps = []
    while not expression.isdigit():
        match = rng.choice(list(re.finditer(r"\((\d+)([-+*/%])(\d+)\)", expression)))
        result = evaluate(match[0][1:-1] + "=?")
        steps.append(f"{match[1]}{match[2]}{match[3]}={result}")
        expression = expression[: match.start()] + str(result) + expression[match.end() :]
    return [*steps, f"\\boxed{{{expression}}}"]


@pytest.mark.parametrize("level", task.LEVELS)
def test_a_level_has_its_operations(level):
    for problem in task.problems("prm", 20, levels=(level,)):
        assert problem.level == level
        assert len(problem.steps) == level + 3
        assert sum(symbol in "+-*/%" for symbol in problem.text) == level + 2
        assert all(1 <= int(step.split("=")[1]) <= 999 for step in problem.steps[:-1])
        allowed = {1: "+-*", 2: "+-*", 3: "+-*/", 4: "+-*/%", 5: "+-*/%"}[level]
        assert set(problem.text) <= set("0123456789()=?" + allowed)


@given(st.integers(0, 2**32), st.sampled_from(task.LEVELS))
def test_reference_solutions_are_right(seed, level):
    problem = task.generate_problem(random.Random(seed), level)
    assert int(problem.answer) == evaluate(problem.text)
    assert problem.steps[-1] == f"\\boxed{{{problem.answer}}}"
    assert task.check_steps(problem.text, problem.steps) == [True] * len(problem.steps)
    assert problem.id == task.problem_id(problem.text)
    assert re.fullmatch("w-[0-9a-f]{12}", problem.id)


@given(st.integers(0, 2**32), st.sampled_from(PROBLEMS))
def test_any_order_of_reductions_is_right(seed, problem):
    steps = any_order(problem.text, random.Random(seed))
    assert task.check_steps(problem.text, steps) == [True] * len(steps)


@given(st.data(), st.sampled_from(PROBLEMS))
def test_a_corrupted_digit_is_wrong_from_there_on(data, problem):
    index = data.draw(st.integers(0, len(problem.steps) - 1))
    step = problem.steps[index]
    # Only the stated value: another operand could be some other right step.
    start = step.index("=") + 1 if "=" in step else len("\\boxed{")
    positions = [i for i in range(start, len(step)) if step[i].isdigit()]
    position = data.draw(st.sampled_from(positions))
    digit = data.draw(st.sampled_from([d for d in "0123456789" if d != step[position]]))
    steps = list(problem.steps)
    steps[index] = step[:position] + digit + step[position + 1 :]
    expected = [True] * index + [False] * (len(steps) - index)
    assert task.check_steps(problem.text, steps) == expected


def test_equal_operations_are_read_in_every_way():
    text = "((5+3)*2)+((5+3)-1)=?"
    # The step 5+3=8 may stand for the left or the right operation; both ways to go on are right.
    for rest in (["8*2=16", "5+3=8", "8-1=7"], ["8-1=7", "5+3=8", "8*2=16"]):
        steps = ["5+3=8", *rest, "16+7=23", "\\boxed{23}"]
        assert task.check_steps(text, steps) == [True] * 6
    assert task.check_steps(text, ["5+3=8", "8*2=16", "8-1=7"]) == [True, True, False]
    assert task.check_steps(text, ["5+3=8", "5+3=8", "5+3=8"]) == [True, True, False]


def test_what_counts_as_wrong():
    text = "(3+4)*5=?"
    right = ["3+4=7", "7*5=35", "\\boxed{35}"]
    assert task.check_steps(text, right) == [True] * 3
    assert task.check_steps(text, [*right, "\\boxed{35}"]) == [True, True, True, False]
    assert task.check_steps(text, ["\\boxed{35}"]) == [False]  # not a reduction of everything
    assert task.check_steps(text, ["4+3=7"]) == [False]  # other operands
    assert task.check_steps(text, ["3+4=07"]) == [False]  # other spelling
    assert task.check_steps(text, ["3+4=7 "]) == [False]
    assert task.check_steps(text, ["3+4=7\n"]) == [False]
    assert task.check_steps(text, ["3+4=8", "7*5=35"]) == [False, False]
    assert task.check_steps(text, []) == []


HOSTILE = [
    "",
    "\0",
    "9" * 100_000 + "+1=2",
    "1+1=" + "9" * 5000,
    "(" * 100_000,
    "\\boxed{" * 10_000,
    "\\boxed{" + "9" * 100_000 + "}",
    "\\boxed{}",
    "\u0663+\u0664=\u0667",  # Arabic-Indic digits
    "\uff13+\uff14=\uff17",  # full-width digits
    "3+4=7\0",
    "\ud800",
    "3+4=\u00b2",
    "__import__('os')",
    "1/0=0",
    "1%0=0",
    "=",
    "-1+8=7",
]


@pytest.mark.parametrize("step", HOSTILE)
def test_hostile_steps_are_wrong(step):
    assert task.check_steps("(3+4)*5=?", [step, "3+4=7"]) == [False, False]


@given(st.lists(st.text(max_size=30), max_size=5))
def test_no_text_crashes_the_checker(steps):
    assert len(task.check_steps("(3+4)*5=?", steps)) == len(steps)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not end"),
        ("=?", "0 operations"),
        ("5=?", "0 operations"),
        ("3+4", "does not end"),
        ("3+4+5=?", "exactly two operands"),
        ("(3+4=?", "unbalanced"),
        ("3+4)=?", "unbalanced"),
        ("()+1=?", "exactly two operands"),
        ("+3=?", "exactly two operands"),
        ("(3)(4)+1=?", "exactly two operands"),
        ("3 + 4=?", "characters other"),
        ("\u0663+4=?", "characters other"),
        ("03+4=?", "leading zero"),
        ("1234567890+4=?", "more than 9 digits"),
        ("3/0=?", "undefined"),
        ("3/2=?", "undefined"),
        ("3-4=?", "undefined"),
        ("3%0=?", "undefined"),
        ("99999*99999=?", "99999\\*99999 has more than 9 digits"),
        ("(" * 300 + "=?", "operations"),
        ("(" * 600 + "=?", "characters, at most"),
        ("1+" * 16 + "1+1=?", "operations"),
    ],
)
def test_a_malformed_question_is_an_error_that_says_why(text, problem):
    with pytest.raises(ValueError, match=problem):
        task.check_steps(text, ["3+4=7"])


def test_too_many_steps_are_refused():
    with pytest.raises(ValueError, match="at most 1024"):
        task.check_steps("3+4=?", ["3+4=7"] * 1025)


def test_the_checker_stays_fast_where_readings_multiply():
    nodes = ["(1+1)"] * 8
    while len(nodes) > 1:
        nodes = [f"({left}+{right})" for left, right in zip(nodes[::2], nodes[1::2], strict=True)]
    text = nodes[0][1:-1] + "=?"
    steps = ["1+1=2"] * 8 + ["2+2=4"] * 4 + ["4+4=8"] * 2 + ["8+8=16", "\\boxed{16}"]
    assert all(task.check_steps(text, steps))
    assert not task.check_steps(text, ["1+1=2"] * 9)[-1]


def test_right_steps_are_exactly_those_accepted():
    checker = task.StepChecker("((5+3)*2)+((5+3)-1)=?")
    assert checker.right_steps() == ["5+3=8"]
    assert checker.accept("5+3=8")
    assert sorted(checker.right_steps()) == ["5+3=8", "8*2=16", "8-1=7"]
    assert not checker.accept("8*2=17")
    assert checker.right_steps() == []


# --- Question sets ---------------------------------------------------------------------------


def test_question_sets_are_disjoint_and_large():
    texts = {
        split: {problem.text for problem in task.problems(split, 500)}
        for split in task.QUESTION_SETS
    }
    for split, members in texts.items():
        assert len(members) == 500
        assert {task.question_set(text) for text in members} == {split}
    for one, other in itertools.combinations(texts.values(), 2):
        assert not one & other


def test_the_rule_gives_every_set_its_share():
    rng = random.Random(0)
    sets = [task.question_set(task.generate_problem(rng, 3).text) for _ in range(2000)]
    shares = {split: sets.count(split) / len(sets) for split in task.QUESTION_SETS}
    expected = {"prm": 0.6, "controller": 0.2, "validation": 0.1, "test": 0.1}
    assert shares == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("split", task.QUESTION_SETS)
def test_problems_are_balanced_and_prefixes_agree(split):
    problems = task.problems(split, 53)
    assert problems == task.problems(split, 103)[:53]
    counts = [sum(problem.level == level for problem in problems) for level in task.LEVELS]
    assert max(counts) - min(counts) <= 1
    assert len({problem.id for problem in problems}) == 53


def test_seeds_and_levels_select_questions():
    assert task.problems("test", 20, seed=0) != task.problems("test", 20, seed=1)
    assert {problem.level for problem in task.problems("test", 9, levels=(2, 4))} == {2, 4}
    assert task.problems("test", 0) == []


def test_questions_never_change():
    """Published figures belong to these questions: the generator may not drift."""
    assert [problem.text for problem in task.problems("test", 5)] == PINNED


PINNED = [
    "((15*3)-10)+42=?",
    "(((61+76)*3)-89)+11=?",
    "((((57*6)+51)-41)/4)*8=?",
    "((95/5)+38)+(((5+22)+39)*2)=?",
    "((((((4-2)+36)+76)/6)+63)%4)*3=?",
]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("train", 5), "known question sets: prm, controller, validation, test"),
        (("test", -1), "negative"),
        (("test", 5, 0, ()), "levels is empty"),
        (("test", 5, 0, (1, 1)), "names a level twice"),
        (("test", 5, 0, (6,)), "known levels"),
    ],
)
def test_bad_arguments_are_named(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        task.problems(*arguments)
