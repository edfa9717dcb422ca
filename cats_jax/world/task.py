r"""The embedded task: reduce an expression, one operation a step, with an exact checker.

A question is a fully parenthesised expression such as ``((50*4)-21)+15=?``. A solution reduces one
operation per step and ends with the boxed value::

    50*4=200
    200-21=179
    179+15=194
    \boxed{194}

Level L has L + 2 operations, hence L + 3 steps. Operations with two numbers can be reduced in any
order, so a branching expression has several right solutions; the reference takes the leftmost.

Text is the only interface: `check_steps` parses the question itself and never trusts a caller's
answer. This module imports only the standard library.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

STEP_SEPARATOR = "\n\n"
"""The text between two steps, and between the question and its first step."""

LEVELS = (1, 2, 3, 4, 5)
QuestionSet = Literal["prm", "controller", "validation", "test"]
QUESTION_SETS: tuple[QuestionSet, ...] = get_args(QuestionSet)

# Bounds on what the checker reads, far above what the generator writes. They keep the work for a
# hostile text small: a reduction state is a subset of at most `MAX_OPERATIONS` nodes.
MAX_QUESTION_CHARS = 512
MAX_STEP_CHARS = 256
MAX_NUMBER_DIGITS = 9
MAX_OPERATIONS = 16
MAX_STEPS = 1024

_NUMBER = rf"(0|[1-9][0-9]{{0,{MAX_NUMBER_DIGITS - 1}}})"
_REDUCTION = re.compile(rf"{_NUMBER}([-+*/%]){_NUMBER}={_NUMBER}")
_BOXED = re.compile(rf"\\boxed\{{{_NUMBER}\}}")
_TOKEN = re.compile(r"[0-9]+|[-+*/%()]")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One question with its reference solution.

    Attributes:
      id: stable name, a hash of `text`.
      text: the question, e.g. ``(3+4)*5=?``.
      level: 1..5; `level` + 2 operations.
      answer: decimal digits of the value.
      steps: the reference solution, the boxed step included.
    """

    id: str
    text: str
    level: int
    answer: str
    steps: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Operation:
    """An inner node of an expression; operands are numbers or operations."""

    symbol: str
    left: Expression
    right: Expression


Expression = int | Operation


# --- Questions and their sets ----------------------------------------------------------------


def problem_id(text: str) -> str:
    """A stable name of a question, from its text alone."""
    return "w-" + hashlib.sha256(text.encode()).hexdigest()[:12]


def question_set(text: str) -> QuestionSet:
    """The set a question belongs to, by the hash of its text: 60/20/10/10 percent.

    Every question that can be generated belongs to exactly one set, at any time. So nothing that
    was trained on one set has seen a question of another.
    """
    digest = hashlib.sha256(b"cats-jax question set:" + text.encode()).digest()
    share = int.from_bytes(digest[:4], "big") % 100
    if share < 60:
        return "prm"
    if share < 80:
        return "controller"
    return "validation" if share < 90 else "test"


def generate_problem(rng: random.Random, level: int) -> Problem:
    """One random problem of a level; `rng` is advanced."""
    expression, _ = _random_expression(rng, level + 2, _grammar(level))
    return _problem_of(expression, level)


def problem_stream(split: QuestionSet, level: int, seed: int = 0) -> Iterator[Problem]:
    """Endless distinct problems of one set and level, the same for the same arguments."""
    _check_split(split)
    rng = random.Random(f"cats-jax world {seed} {level}")
    seen: set[str] = set()
    while True:
        problem = generate_problem(rng, level)
        if question_set(problem.text) == split and problem.text not in seen:
            seen.add(problem.text)
            yield problem


def problems(
    split: QuestionSet, count: int, seed: int = 0, levels: Sequence[int] = LEVELS
) -> list[Problem]:
    """`count` distinct problems of one set; the levels take turns.

    Args:
      split: one of `QUESTION_SETS`.
      count: how many; the levels' counts differ by one at most.
      seed: another seed gives other questions (a few may coincide).
      levels: which levels, in the order of their turns.

    Returns:
      The problems; a smaller `count` returns a prefix of the same list.
    """
    _check_split(split)
    if count < 0:
        raise ValueError(f"count = {count}: a number of problems cannot be negative")
    if not levels:
        raise ValueError(f"levels is empty; known levels: {LEVELS}")
    if len(set(levels)) != len(levels):
        raise ValueError(f"levels = {tuple(levels)} names a level twice")
    for level in levels:
        _grammar(level)
    streams = itertools.cycle([problem_stream(split, level, seed) for level in levels])
    return [next(stream) for stream in itertools.islice(streams, count)]


# --- Checking --------------------------------------------------------------------------------


def check_steps(question_text: str, steps: Sequence[str]) -> list[bool]:
    """Whether each step is right given that every step before it is.

    A step ``a op b=c`` is right iff an operation that was not reduced before now has exactly the
    two numbers a and b, and c is its value. The boxed step is right iff every operation was reduced
    and it holds the value. After a wrong step, and after the boxed one, every step is wrong. If
    equal operations make it ambiguous which one a step reduced, the checker follows all readings. A
    solution is right if one reading of it is right.

    Args:
      question_text: a question of this world.
      steps: texts of any content and length; only exact spelling (no blanks, no leading zeros)
        counts as right.

    Returns:
      One bool for each step.

    Raises:
      ValueError: if the question is not an expression of this world or too many steps are given.
    """
    if len(steps) > MAX_STEPS:
        raise ValueError(f"{len(steps)} steps; the checker takes at most {MAX_STEPS}")
    checker = StepChecker(question_text)
    return [checker.accept(step) for step in steps]


class StepChecker:
    """Checks the steps of a growing path one by one; `check_steps` checks a whole path.

    The state is the set of possible readings, each a bit mask over the expression's operations
    (bit i: operation i has been reduced).
    """

    def __init__(self, question_text: str):
        operations = _flatten(parse_question(question_text))
        self._operations = operations
        self._answer = operations[-1].value
        self._readings: frozenset[int] = frozenset({0})
        self._open = True  # False after a wrong step and after the boxed one

    @property
    def answer(self) -> str:
        """The value of the question's expression, in decimal digits."""
        return str(self._answer)

    def accept(self, step: str) -> bool:
        """Whether `step` is right after the steps accepted so far; it becomes part of the path."""
        return self._open and self._advance(step)

    def right_steps(self) -> list[str]:
        """Every text that would be right now, without repetition; none after a wrong step."""
        if not self._open:
            return []
        texts = {
            f"{op.left}{op.symbol}{op.right}={op.value}": None
            for reading in sorted(self._readings)
            for index, op in enumerate(self._operations)
            if not reading >> index & 1 and reading & op.needs == op.needs
        }
        return list(texts) or [boxed(str(self._answer))]

    def _advance(self, step: str) -> bool:
        if written := parse_reduction(step):
            self._readings = frozenset(
                reading | 1 << index
                for reading in self._readings
                for index, op in enumerate(self._operations)
                if not reading >> index & 1
                and reading & op.needs == op.needs
                and (op.left, op.symbol, op.right, op.value) == written
            )
            self._open = bool(self._readings)
            return self._open
        self._open = False
        everything = (1 << len(self._operations)) - 1
        match = _BOXED.fullmatch(step) if len(step) <= MAX_STEP_CHARS else None
        return match is not None and everything in self._readings and int(match[1]) == self._answer


def boxed(answer: str) -> str:
    """The closing step that states `answer`."""
    return f"\\boxed{{{answer}}}"


def parse_reduction(step: str) -> tuple[int, str, int, int] | None:
    """Left operand, operation, right operand and stated value of a step ``a op b=c``, or None."""
    match = _REDUCTION.fullmatch(step) if len(step) <= MAX_STEP_CHARS else None
    return match and (int(match[1]), match[2], int(match[3]), int(match[4]))


def apply_operation(symbol: str, left: int, right: int) -> int | None:
    """The value of ``left symbol right``; None where this world does not define it.

    Undefined are a negative difference, an inexact quotient, and division or remainder by zero.
    """
    if symbol == "+":
        return left + right
    if symbol == "-":
        return left - right if left >= right else None
    if symbol == "*":
        return left * right
    if right == 0:
        return None
    if symbol == "/":
        return left // right if left % right == 0 else None
    if symbol == "%":
        return left % right
    raise ValueError(f"unknown operation {symbol!r}; known: + - * / %")


@functools.lru_cache(maxsize=256)  # checking one question's many paths parses it once
def parse_question(text: str) -> Operation:
    """The expression of a question such as ``(3+4)*5=?``, in which a step can state every value.

    Raises:
      ValueError: the text is not such a question; the message names the error.
    """
    if problem := _syntax_problem(text):
        raise _not_a_question(text, problem)
    # A stack of unfinished parentheses instead of recursion; each holds operand, symbol, operand.
    stack: list[list[int | str | Operation]] = [[]]
    for token in _TOKEN.findall(text[:-2]):
        if token == "(":
            stack.append([])
        elif token == ")":
            inner = _close(stack.pop(), text)
            if not stack:
                raise _not_a_question(text, "unbalanced parentheses")
            stack[-1].append(inner)
        else:
            stack[-1].append(token if token in "+-*/%" else int(token))
    if len(stack) != 1:
        raise _not_a_question(text, "unbalanced parentheses")
    expression = _close(stack[0], text)
    _flatten(expression)  # raises where a value is undefined or too long
    return expression


def format_expression(expression: Expression) -> str:
    """The text of an expression, parentheses around every operation but the outermost."""

    def inner(node: Expression) -> str:
        return str(node) if isinstance(node, int) else f"({format_expression(node)})"

    if isinstance(expression, int):
        return str(expression)
    return f"{inner(expression.left)}{expression.symbol}{inner(expression.right)}"


def _not_a_question(text: str, problem: str) -> ValueError:
    return ValueError(f"{text[:80]!r} is not a question of the embedded world: {problem}")


def _syntax_problem(text: str) -> str | None:
    """The error that the tokens alone show, or None."""
    if len(text) > MAX_QUESTION_CHARS:
        return f"{len(text)} characters, at most {MAX_QUESTION_CHARS} are read"
    if not text.endswith("=?"):
        return "it does not end in '=?'"
    tokens = _TOKEN.findall(text[:-2])
    if "".join(tokens) != text[:-2]:
        return "characters other than digits, + - * / % and parentheses"
    if any(token[0].isdigit() and not re.fullmatch(_NUMBER, token) for token in tokens):
        return f"a number with a leading zero or more than {MAX_NUMBER_DIGITS} digits"
    num_operations = sum(token in "+-*/%" for token in tokens)
    if not 1 <= num_operations <= MAX_OPERATIONS:
        return f"{num_operations} operations, between 1 and {MAX_OPERATIONS} are read"
    return None


def _close(items: list[int | str | Operation], text: str) -> Operation:
    """The operation inside one pair of parentheses."""
    if len(items) == 3:
        left, symbol, right = items
        if isinstance(symbol, str) and not isinstance(left, str) and not isinstance(right, str):
            return Operation(symbol, left, right)
    raise _not_a_question(text, "each parenthesis must hold exactly two operands")


@dataclasses.dataclass(frozen=True)
class _FlatOperation:
    """An operation with its operands' values and the bit mask of the operations that it needs."""

    symbol: str
    left: int
    right: int
    value: int
    needs: int


def _flatten(expression: Operation) -> list[_FlatOperation]:
    """The operations of an expression in reference order, the outermost last."""
    flat: list[_FlatOperation] = []

    def visit(node: Expression) -> tuple[int, int]:
        """Value of `node` and the mask of its own operation (0 for a number)."""
        if isinstance(node, int):
            return node, 0
        left, left_mask = visit(node.left)
        right, right_mask = visit(node.right)
        value = apply_operation(node.symbol, left, right)
        if value is None or value >= 10**MAX_NUMBER_DIGITS:
            many = f"has more than {MAX_NUMBER_DIGITS} digits"
            problem = f"{left}{node.symbol}{right} {'is undefined' if value is None else many}"
            raise _not_a_question(format_expression(expression) + "=?", problem)
        flat.append(_FlatOperation(node.symbol, left, right, value, left_mask | right_mask))
        return value, 1 << (len(flat) - 1)

    visit(expression)  # depth is bounded by MAX_OPERATIONS
    return flat


def _problem_of(expression: Operation, level: int) -> Problem:
    text = format_expression(expression) + "=?"
    flat = _flatten(expression)
    answer = str(flat[-1].value)
    steps = tuple(f"{op.left}{op.symbol}{op.right}={op.value}" for op in flat)
    return Problem(problem_id(text), text, level, answer, (*steps, boxed(answer)))


# --- Generation ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Grammar:
    """The parameters of the expressions of one level.

    Attributes:
      max_leaf: largest number written in a question.
      max_value: largest value of any operation.
      weights: how often each operation is drawn.
      branch: probability that an operation gets operations on both sides.
    """

    max_leaf: int
    max_value: int
    weights: dict[str, int]
    branch: float


_GRAMMARS = {
    1: _Grammar(50, 200, {"+": 3, "-": 3, "*": 1}, 0.0),
    2: _Grammar(99, 500, {"+": 3, "-": 3, "*": 2}, 0.0),
    3: _Grammar(99, 999, {"+": 3, "-": 3, "*": 2, "/": 1}, 0.15),
    4: _Grammar(99, 999, {"+": 2, "-": 2, "*": 3, "/": 1, "%": 1}, 0.25),
    5: _Grammar(99, 999, {"+": 2, "-": 2, "*": 3, "/": 1, "%": 1}, 0.3),
}

# Factors, divisors and moduli are single digits, so that the tables behind them are small enough
# for a tiny model to master; the sums and differences have up to three digits.
_MAX_FACTOR = 9
_MIN_DIVIDEND = 30  # of a remainder: smaller ones are too often their own remainder
_OPERATION_DRAWS = 12


def _grammar(level: int) -> _Grammar:
    if level not in _GRAMMARS:
        raise ValueError(f"level = {level!r}; known levels: {LEVELS}")
    return _GRAMMARS[level]


def _check_split(split: str) -> None:
    if split not in QUESTION_SETS:
        raise ValueError(f"split = {split!r}; known question sets: {', '.join(QUESTION_SETS)}")


def _random_expression(
    rng: random.Random, num_operations: int, grammar: _Grammar
) -> tuple[Operation, int]:
    """A random expression of `num_operations` >= 1 with values in 1..max_value, and its value.

    Operands are drawn first, then operations until one fits. If none fits, new operands are drawn.
    """
    while True:
        operands = _random_operands(rng, num_operations, grammar)
        for _ in range(_OPERATION_DRAWS):
            symbol = rng.choices(list(grammar.weights), list(grammar.weights.values()))[0]
            left, left_value = operands[0]
            if operands[1] is None:
                number = _random_number(rng, symbol, left_value, grammar)
                if number is None:
                    continue
                right, right_value = number, number
            elif symbol in "/%":
                continue  # only numbers written in the question divide
            else:
                right, right_value = operands[1]
            value = apply_operation(symbol, left_value, right_value)
            if value is not None and 1 <= value <= grammar.max_value:
                return Operation(symbol, left, right), value


_Operand = tuple[Expression, int]


def _random_operands(
    rng: random.Random, num_operations: int, grammar: _Grammar
) -> tuple[_Operand, _Operand | None]:
    """Left operand and right operand with their values; None for a number to be drawn later."""
    if num_operations == 1:
        leaf = rng.randint(2, grammar.max_leaf)
        return (leaf, leaf), None
    if num_operations >= 3 and rng.random() < grammar.branch:
        num_right = rng.randint(1, num_operations - 2)
        left = _random_expression(rng, num_operations - 1 - num_right, grammar)
        return left, _random_expression(rng, num_right, grammar)
    return _random_expression(rng, num_operations - 1, grammar), None


def _random_number(
    rng: random.Random, symbol: str, left_value: int, grammar: _Grammar
) -> int | None:
    """A right operand for ``left_value symbol ?``, or None if the operation does not fit."""
    if symbol == "+":
        return rng.randint(2, grammar.max_leaf)
    if symbol == "-":
        return rng.randint(2, min(grammar.max_leaf, max(3, left_value)))
    if symbol == "*":
        largest = min(_MAX_FACTOR, grammar.max_value // left_value)
        return rng.randint(2, largest) if largest >= 2 else None
    if symbol == "/":
        divisors = [d for d in range(2, _MAX_FACTOR + 1) if left_value % d == 0 and left_value > d]
        return rng.choice(divisors) if divisors else None
    return rng.randint(3, _MAX_FACTOR) if left_value >= _MIN_DIVIDEND else None
