r"""Lists, sets, tuples and intervals: an answer's outermost structure, by its brackets alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .plain_numbers import plain_number

_OPENING, _CLOSING = "([{", ")]}"

Kind = Literal["one", "list", "()", "[]", "(]", "[)"]
"""Structure of an answer: one answer ("one"), several in any order ("list"), or a tuple or an
interval with these brackets."""


@dataclass(frozen=True, slots=True)
class Structure:
    """An answer as its items.

    Attributes:
        kind: structure of the answer.
        items: canonical texts of the items; one item for "one".
    """

    kind: Kind
    items: tuple[str, ...]


def structure(text: str, *, separators: bool = True) -> Structure:
    r"""The outermost structure of a canonical text.

    `1,2`, `\{1,2\}` and `{1,2}` are the same list; braces around one item are a group of LaTeX, and
    so are those of `{1,234}` if `separators` is true. `(1,2)` is ordered, and its brackets count.
    `1\pm2` is the list of both values. `1,234` is a number if `separators` is true, otherwise a
    list.
    """
    if plain_number(text) is not None and (separators or "," not in text):
        return Structure("one", (text,))
    items = _split(text, separators=separators)
    if len(items) > 1:
        return _list(items)
    if text.startswith(r"\{") and text.endswith(r"\}") and _encloses(text, 1):
        return _list(_split(text[2:-2]))
    if text.startswith("{") and text.endswith("}") and _encloses(text, 0):
        inside = _split(text[1:-1])
        is_number = separators and plain_number(text[1:-1]) is not None
        if len(inside) > 1 and any(inside) and not is_number:
            return _list(inside)
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and _encloses(text, 0):
        inside = _split(text[1:-1])
        if len(inside) > 1:
            brackets: dict[str, Kind] = {"()": "()", "[]": "[]", "(]": "(]", "[)": "[)"}
            return Structure(brackets[text[0] + text[-1]], tuple(inside))
        if text[0] == "(" and text[-1] == ")" and inside[0]:
            return structure(inside[0])
    return _list([text]) if r"\pm" in text else Structure("one", (text,))


def depth(text: str) -> int:
    """Largest number of brackets of any kind that are open at a time."""
    deepest = level = 0
    for character in text:
        level += (character in _OPENING) - (character in _CLOSING)
        deepest = max(deepest, level)
    return deepest


def _list(items: list[str]) -> Structure:
    both = [
        one
        for item in items
        for one in (
            (
                item.replace(r"\pm", "+").replace(r"\mp", "-"),
                item.replace(r"\pm", "-").replace(r"\mp", "+"),
            )
            if r"\pm" in item
            else (item,)
        )
    ]
    found = tuple(item.removeprefix("+") for item in both if item)
    return Structure("list" if len(found) != 1 else "one", found)


def _split(text: str, *, separators: bool = False) -> list[str]:
    """Parts between the commas and semicolons that no bracket encloses.

    With `separators`, a number such as 1,234 between semicolons is one part.
    """
    parts = _between(text, ";")
    if separators and len(parts) > 1:
        return [
            item
            for part in parts
            for item in ([part] if plain_number(part) is not None else _between(part, ","))
        ]
    return _between(text, ",;")


def _between(text: str, marks: str) -> list[str]:
    parts, level, start = [], 0, 0
    for position, character in enumerate(text):
        if character in _OPENING:
            level += 1
        elif character in _CLOSING:
            level -= 1
        elif character in marks and level == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()]


def _encloses(text: str, opening: int) -> bool:
    """Whether the bracket at `opening` is closed by the last character."""
    level = 0
    for position in range(opening, len(text)):
        level += (text[position] in _OPENING) - (text[position] in _CLOSING)
        if level == 0:
            return position == len(text) - 1
    return False
