"""`MathGrader`, which extracts, compares and grades mathematical answers."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadInputError
from .canonical import canonical
from .extraction import final_answer, given_answer
from .plain_numbers import BasedNumber, PlainNumber, plain_number
from .structure import depth
from .thinking import without_thinking
from .workers import WorkerFailure, WorkerPool

MAX_ANSWER_CHARS = 2000
"""Longer answers are the same only if their texts are equal."""

MAX_DEPTH = 50
"""Deeper nested brackets take exponential time to parse: such answers are the same only if their
spellings or their numbers are equal.
"""

_MEMORY = 1 << 14
"""Size of each cache of spellings, values and comparisons."""

_MOST_SECONDS = 3600  # the wall limit is 60 times as long, and `poll` waits at most 24 days

_LEAST_MEMORY = 256
"""With less, in MiB, sympy and math-verify fail in ways that look like unequal answers."""

_APART = 1e-9
"""Relative difference of values above which two expressions are certainly not equal."""

# The answer x = 5 alone, not y = 5, which is another line or plane; also x_1 < 5, 0 < x < 5, 5 > x
# and f(x) < 5 alone.
_ORDER = r"(?:[<>]=?|[≤≥]|\\(?:leqslant|geqslant|leq?|geq?|lt|gt)(?![a-zA-Z]))"
_COORDINATE = re.compile(
    rf"(?:[^=xyz]*{_ORDER}\s*|[\s$*\\(\[]*)"
    rf"([xyz](?:_\{{?\d+\}}?)?|[a-zA-Z]\(x\))"
    rf"(?=\s*(?:=|{_ORDER})[^=xyz]*$|[\s$.)\]\\]*$)"
)


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one prediction.

    Attributes:
        correct: whether the prediction is the gold answer; False if this could not be decided.
        error: why it could not be decided, in one line; "" if it was decided.
    """

    correct: bool
    error: str = ""


class MathGrader:
    """Grader of mathematical answers in LaTeX or plain text, with hard limits on every comparison.

    Texts are brought to one spelling, and plain numbers are compared exactly. Worker processes
    compare all other answers by the rules of `comparison`. A text is never run as code, and its
    comparison costs no more than the limits.

    Several threads may use one object; a copy in another process has workers of its own. The
    workers end with `close` or with the process.
    """

    def __init__(self, *, workers: int = 2, seconds: float = 5.0, memory_mb: int = 1024) -> None:
        """Store the limits; worker processes are started when they are first needed.

        Args:
            workers: largest number of worker processes at a time, at least 1.
            seconds: limit of CPU time for one comparison, in seconds, at most 3600.
            memory_mb: limit of the address space of a worker process, in MiB, at least 256.

        Raises:
            BadInputError: an argument is out of range.
        """
        if workers < 1 or not 0 < seconds <= _MOST_SECONDS or memory_mb < _LEAST_MEMORY:
            raise BadInputError(
                f"workers={workers}, seconds={seconds:g}, memory_mb={memory_mb}: give at least 1 "
                f"worker, above 0 to {_MOST_SECONDS} seconds, and at least {_LEAST_MEMORY} MiB"
            )
        self._settings = {"workers": workers, "seconds": seconds, "memory_mb": memory_mb}
        self.workers = workers
        self._pool = WorkerPool(workers, seconds, memory_mb)
        self._spell = functools.lru_cache(_MEMORY)(_spelling)
        # No bound method, which would keep this object and its processes alive.
        self._decide = functools.lru_cache(_MEMORY)(_Decider(self._pool))

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(MathGrader, **self._settings), ()

    def __enter__(self) -> MathGrader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes; a later comparison starts new ones."""
        self._pool.close()

    def extract(self, steps: Sequence[str]) -> str | None:
        """The answer that the newest step marks as final outside of any thought, or None."""
        return final_answer(without_thinking(steps))

    def equivalent(self, first: str, second: str) -> bool:
        """Whether two answers are the same; False if the comparison hit a limit."""
        return self.compare(first, second).correct

    def grade(self, prediction: str, gold: str, tolerance: float | None = None) -> Grade:
        """Grade a solution, or an answer alone, against a gold answer.

        Args:
            prediction: text whose answer is extracted; a text without an answer is wrong.
            gold: a bare answer, or a text that marks its answer as final.
            tolerance: largest absolute difference at which numbers count as equal, if the data set
                allows one.
        """
        answer, gold = given_answer(prediction), final_answer(gold) or gold
        return Grade(False) if answer is None else self.grade_answer(answer, gold, tolerance)

    def grade_answer(self, answer: str, gold: str, tolerance: float | None = None) -> Grade:
        """Grade a bare answer against a bare gold answer, as `grade`."""
        names = {match[1] for match in map(_COORDINATE.match, (answer, gold)) if match}
        # The line y = 5 may also be written as f(x) = 5.
        names = {
            "y" if name.endswith("(x)") else name.strip("}").replace("{", "") for name in names
        }
        # Not in `compare`: 5 equals both x = 5 and y = 5, and a vote needs an equivalence relation.
        return Grade(False) if len(names) > 1 else self.compare(answer, gold, tolerance)

    def compare(self, first: str, second: str, tolerance: float | None = None) -> Grade:
        """Grade whether two bare answers are the same; symmetric, with cached results."""
        if first.strip() == second.strip():
            return Grade(True)
        for text in (first, second):
            if len(text) > MAX_ANSWER_CHARS:
                return Grade(
                    False, f"an answer of {len(text)} characters: at most {MAX_ANSWER_CHARS}"
                )
        one, two = self._spell(first), self._spell(second)
        if one.text == two.text:
            # Two texts of only spaces and full stops are not answers that agree.
            return Grade(bool(one.text))
        if not one.text or not two.text:
            return Grade(False)
        if one.number is not None and two.number is not None:
            based = isinstance(one.number, BasedNumber) or isinstance(two.number, BasedNumber)
            if tolerance is None or based:  # numbers in a base have no tolerance
                return Grade(one.number == two.number)
        for spelling in (one, two):
            if spelling.depth > MAX_DEPTH:
                return Grade(False, f"an answer nested {spelling.depth} deep: at most {MAX_DEPTH}")
        try:
            return self._decide(min(one.text, two.text), max(one.text, two.text), tolerance)
        except _PassingError as error:
            return Grade(False, str(error))


class _PassingError(Exception):
    """A failure that may pass, so that it must not be remembered as the result of a comparison."""


class _Decider:
    """Decides by the worker processes, whose values of answers are remembered."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._values: OrderedDict[str, complex] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, first: str, second: str, tolerance: float | None) -> Grade:
        values = self._values.get(first), self._values.get(second)
        if tolerance is None and values[0] is not None and values[1] is not None:
            size = max(abs(values[0]), abs(values[1]))
            if abs(values[0] - values[1]) > _APART * size:
                return Grade(False)
        try:
            reply: dict[str, Any] = self._pool.ask(
                {"first": first, "second": second, "tolerance": tolerance}
            )
        except WorkerFailure as failure:
            reply = {"error": str(failure), "passes": failure.passes}
        if "error" in reply:
            message = f"comparing {_short(first)} with {_short(second)}: {reply['error']}"
            if reply.get("passes"):
                raise _PassingError(message)
            return Grade(False, message)
        with self._lock:
            for text, value in zip((first, second), reply["values"], strict=True):
                if value is not None:
                    self._values[text] = complex(*value)
            while len(self._values) > _MEMORY:
                self._values.popitem(last=False)
        return Grade(reply["equal"])


@dataclass(frozen=True, slots=True)
class _Spelling:
    text: str
    number: PlainNumber | None
    depth: int


def _spelling(answer: str) -> _Spelling:
    text = canonical(answer)
    return _Spelling(text, plain_number(text), depth(text))


def _short(text: str) -> str:
    return json.dumps(text if len(text) <= 40 else text[:37] + "...")
