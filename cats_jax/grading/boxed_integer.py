"""Extraction of boxed answers, and comparison of integers.

Text written by a language model is untrusted. It is only scanned and compared here, never run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_INTEGER_DIGITS = 100
"""Longer digit strings are compared as text, because their conversion takes quadratic time."""

_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
# `\{` and `\}` are characters of a set, `\\` is a line break: none opens or closes a group.
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def extract_boxed(text: str) -> str | None:
    r"""Content of the last closed `\boxed{...}`, nested braces included, or None.

    An unclosed `\boxed{` is no answer. The scan is linear in the length of the text.
    """
    end = len(text)
    for box in reversed(list(_BOX.finditer(text))):
        depth = 1
        for brace in _BRACE.finditer(text, box.end(), end):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                return text[box.end() : brace.start()].strip()
        # An unclosed last box hides the text behind it; look at the one before, up to it.
        end = box.start()
    return None


class BoxedIntegerJudge:
    r"""Judge for tasks whose answers are integers in `\boxed{}`, such as the embedded world's.

    Two answers are the same if they are the same integer in ASCII digits, or the same text.
    """

    def extract(self, steps: Sequence[str]) -> str | None:
        r"""The last closed `\boxed{}` of the newest step, or None."""
        return extract_boxed(steps[-1]) if steps else None

    def equivalent(self, first: str, second: str) -> bool:
        """Whether both are the same integer, or the same text."""
        return _normalise(first) == _normalise(second)


def _normalise(answer: str) -> int | str:
    answer = answer.strip()
    digits = answer.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_INTEGER_DIGITS:
        return int(answer)
    return answer
