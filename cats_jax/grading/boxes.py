r"""Answers in boxes: `\boxed{...}`, with braces and without, alone and in a list."""

from __future__ import annotations

import re
from typing import NamedTuple

from .canonical import OR, are_forms_of_one_number

_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![a-zA-Z])\s*(\{)?")
# `\{` and `\}` are characters of a set, `\\` is a line break: they open and close no group.
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# TeX would box the next character only, but people mean the number or the formula.
_UNBRACED = re.compile(
    r"[-+−]?\\?\$?(?:\d[\d.,/]*(?:\\?%)?|[a-zA-Z](?![a-zA-Z])|\\(?:[dt]?frac|sqrt|text|pi)(?![a-zA-Z]))"
    r"[^\s$]{0,200}"
)
_FORMULA_END = re.compile(r"\\[)\]]|\$")
_MARKS = r"(?:\s|\$|\\[()\[\]]|\\[,;: ]|\\q?quad(?![a-zA-Z]))*"
_WORD = r"(?:\\text\s*\{\s*(?:and|or)\s*\}|(?:and|or)\b)"
_BETWEEN = re.compile(
    rf"{_MARKS}(?:[,;&]{_MARKS}{_WORD}?|{_WORD}){_MARKS}(?:([a-zA-Z](?:_\w)?)\s*={_MARKS})?"
)
_NAME = re.compile(r"(?<![a-zA-Z\\])([a-zA-Z](?:_\w)?)\s*=[\s$]*$")


_LONGEST_GAP = 60
_MOST_BOXES = 100


class _Box(NamedTuple):
    start: int
    end: int
    content: str


def extract_boxed(text: str) -> str | None:
    r"""Content of the last closed `\boxed{...}`, nested braces included, or None; linear time."""
    box = _last_before(text, list(_BOX.finditer(text)), len(text))
    return box.content if box else None


def boxed_answer(text: str) -> str | None:
    r"""The answer in the last boxes of a text, or None.

    Boxes in one list, such as `\boxed{4}, \boxed{6} and \boxed{10}`, are one answer of several
    items.
    """
    openings = list(_BOX.finditer(text))
    box = _last_before(text, openings, len(text))
    if box is None:
        return None
    boxes = [box]
    while len(boxes) < _MOST_BOXES:
        before = _last_before(text, openings, boxes[-1].start)
        if before is None or not _in_one_list(text, before, boxes[-1]):
            break
        boxes.append(before)
    if len(boxes) == 2:
        after, before = boxes
        is_or = OR.search(text, before.end, after.start)
        if is_or and are_forms_of_one_number(before.content, after.content):
            return before.content
    contents = dict.fromkeys(box.content for box in reversed(boxes) if box.content)
    return "; ".join(contents)


def _in_one_list(text: str, before: _Box, after: _Box) -> bool:
    """Whether only a comma, "and" or "or" stands between two boxes."""
    if not before.content or after.start - before.end > _LONGEST_GAP:
        return False
    gap = _BETWEEN.fullmatch(text, before.end, after.start)
    if gap is None or gap[1] is None:
        return gap is not None
    # x = 2 or x = 3 is a list of values, but x = 2, y = 3 is not.
    named = _NAME.search(text[max(0, before.start - _LONGEST_GAP) : before.start])
    return named is not None and named[1] == gap[1]


def _last_before(text: str, openings: list[re.Match[str]], end: int) -> _Box | None:
    """The last closed box before `end`; removes it and all later ones from `openings`."""
    while openings:
        opening = openings.pop()
        if opening.end() > end:
            continue
        content = _content(text, opening, end)
        if content is not None:
            return content
        # An unclosed box hides the text after it, so only the text before it is searched further.
        end = opening.start()
    return None


def _content(text: str, opening: re.Match[str], end: int) -> _Box | None:
    if opening[1] is None:
        bare = _UNBRACED.match(text, opening.end(), end)
        if bare is None:
            return None
        content = bare[0]
        stop = _FORMULA_END.search(content, 2)
        content = (content[: stop.start()] if stop else content).rstrip(".,;:!?)*")
        return _Box(opening.start(), opening.end() + len(content), content)
    depth = 1
    for brace in _BRACE.finditer(text, opening.end(), end):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return _Box(opening.start(), brace.end(), text[opening.end() : brace.start()].strip())
    return None
