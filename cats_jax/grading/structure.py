r"""Lists, sets, tuples and intervals: an answer's outermost structure, by its brackets alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .plain_numbers import plain_number

_OPENING, _CLOSING = "([{", ")]}"

_SIGN = re.compile(r"\\(?:pm|mp)")
_MOST_SIGNS = 6
_SIDES = re.compile(r"[<>=]|\\(?:[lg]e|ne|in)(?![a-zA-Z])")
_EXCLUDED = re.compile(r"[^<>=\\]+\\ne(?![a-zA-Z])")
_NAMED = re.compile(r"(\\?[a-zA-Z]+)=([^=]+)")

Kind = Literal["one", "list", "ratio", "()", "[]", "(]", "[)", "or", "and"]
"""Structure of an answer: one answer ("one"), several in any order ("list"), three or more numbers
whose ratio counts ("ratio"), a tuple or an interval with these brackets, or inequalities between
"or" or "and" that `comparison` can't write as one set."""


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
    `x=1,y=2` is the point `(1,2)`, with the coordinates in the order of their names. `1\pm2` is the
    list of both values. `1,234` is a number if `separators` is true, otherwise a list.
    """
    if plain_number(text) is not None and (separators or "," not in text):
        return Structure("one", (text,))
    items = _split(text, separators=separators)
    if len(items) > 1:
        return _point(items) or _list(items)
    if len(items := _between(text, ":")) > 2 and all(items):
        return Structure("ratio", tuple(items))
    if text.startswith(r"\{") and text.endswith(r"\}") and _encloses(text, 1):
        inside = _split(text[2:-2], separators=separators)
        if len(inside) == 1 and (inside[0] == r"\emptyset" or inside[0].startswith(r"\{")):
            return Structure("list", tuple(inside))  # a set whose one element is a set
        return _point(inside) or _list(inside)
    if text.startswith("{") and text.endswith("}") and _encloses(text, 0):
        inside = _split(text[1:-1], separators=separators)
        is_number = separators and plain_number(text[1:-1]) is not None
        if len(inside) > 1 and any(inside) and not is_number:
            return _list(inside)
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and _encloses(text, 0):
        inside = _split(text[1:-1], separators=separators)
        if len(inside) > 1:
            if text[0] + text[-1] == "()" and _SIGN.search(text):
                return _list([text])  # (\pm1,2)
            if text[0] == "(" and (point := _point(inside)):
                return point  # (x=1,y=2)
            brackets: dict[str, Kind] = {"()": "()", "[]": "[]", "(]": "(]", "[)": "[)"}
            return Structure(brackets[text[0] + text[-1]], tuple(inside))
        if text[0] == "(" and text[-1] == ")" and inside[0]:
            return structure(inside[0])
    return _list([text]) if _SIGN.search(text) else Structure("one", (text,))


def is_set(text: str) -> bool:
    r"""Whether one pair of braces, `\{ \}` or `{ }`, encloses the text."""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        return _encloses(text, 1)
    return text.startswith("{") and text.endswith("}") and _encloses(text, 0)


def depth(text: str) -> int:
    """Largest number of brackets of any kind that are open at a time."""
    deepest = level = 0
    for character in text:
        level += (character in _OPENING) - (character in _CLOSING)
        deepest = max(deepest, level)
    return deepest


def _list(items: list[str]) -> Structure:
    if (excluded := _EXCLUDED.match(items[0])) and not any(map(_SIDES.search, items[1:])):
        items = [items[0], *(excluded[0] + item for item in items[1:])]  # x\ne1,2
    found = tuple(one.removeprefix("+") for item in items for one in _values(item) if one)
    if len(found) == 1 and found[0].startswith("("):
        return structure(found[0])  # {(1,2)}
    return Structure("list" if len(found) != 1 else "one", found)


def _values(item: str) -> list[str]:
    r"""The values of an item: two for each `\pm`, but two in all if there is a `\mp`."""
    opposite = {r"\pm": r"\mp", r"\mp": r"\pm"}
    if r"\mp" in item:
        choices = [item, _SIGN.sub(lambda sign: opposite[sign[0]], item)]
        return [one.replace(r"\pm", "+").replace(r"\mp", "-") for one in choices]
    values = [item]
    for _ in range(min(item.count(r"\pm"), _MOST_SIGNS)):
        values = [one.replace(r"\pm", sign, 1) for one in values for sign in "+-"]
    return values


def _point(items: list[str]) -> Structure | None:
    """The point of items such as x=1 with different names, or the points of x=1,y=2,x=3,y=4."""
    found = [(match[1], match[2]) for item in items if (match := _NAMED.fullmatch(item))]
    names = sorted({name for name, _ in found}, key=lambda name: name.removeprefix("\\"))
    size = len(names)
    if len(found) < len(items) or size < 2:
        return None
    parts = [dict(found[start : start + size]) for start in range(0, len(found), size)]
    if any(len(part) < size for part in parts):
        return None
    points = [tuple(part[name] for name in names) for part in parts]
    if len(points) == 1:
        return Structure("()", points[0])
    return Structure("list", tuple(f"({';'.join(point)})" for point in points))


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
