"""The grader of answers that are integers in a box; untrusted text is only scanned and compared."""

from __future__ import annotations

from collections.abc import Sequence

from .boxes import extract_boxed
from .thinking import without_thinking

_MAX_INTEGER_DIGITS = 100
"""Longer digit strings are compared as text, because converting them takes quadratic time."""


class BoxedIntegerGrader:
    r"""Grader for tasks whose answers are integers in `\boxed{}`, such as the embedded world's.

    Two answers are the same if they are the same integer in ASCII digits, or the same text.
    """

    def extract(self, steps: Sequence[str]) -> str | None:
        r"""The last closed `\boxed{}` of the newest step, outside of any thought, or None."""
        return extract_boxed(without_thinking(steps))

    def equivalent(self, first: str, second: str) -> bool:
        """Whether both are the same integer, or the same text."""
        return _normalise(first) == _normalise(second)


def _normalise(answer: str) -> int | str:
    answer = answer.strip()
    digits = answer.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_INTEGER_DIGITS:
        return int(answer)
    return answer
