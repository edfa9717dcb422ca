r"""Statements such as `x < -1 or x > 2`, read as intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .structure import structure

_RELATION = re.compile(r"([<>=]|\\(?:le|ge|ne)(?![a-zA-Z]))")
_VARIABLE = re.compile(
    r"(?:[a-zA-Z]|\\(?:alpha|beta|gamma|delta|lambda|mu|theta|phi|omega))(?:_(?:\w|\{\w+\}))?"
)
# A bound is one number or formula.
_NO_BOUND = re.compile(r"[,;:&]|\\(?:in|pm|mp|approx|infty|cup|cap)(?![a-zA-Z])")
_CONNECTIVE = re.compile(r"\\l(and|or)(?![a-zA-Z])")
_AND, _OR = re.compile(r"\\land(?![a-zA-Z])"), re.compile(r"\\lor(?![a-zA-Z])")
_LOWEST, _HIGHEST = r"(-\infty", r"\infty)"
_TURNED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_ALL = f"{_LOWEST},{_HIGHEST}"
_MOST = 8


def alternatives(text: str) -> list[list[str]]:
    r"""The alternatives of `x<-1\lor x>2\land x<5`, each as the statements that hold at once.

    A comma means the connective of the text if that has only one. Empty for a text without any.
    """
    words = set(_CONNECTIVE.findall(text))
    groups = [_AND.split(_unwrapped(part)) for part in _OR.split(text)] if words else []
    if len(words) != 1:
        return groups
    items = [item for group in groups for part in group for item in _items(part)]
    return [items] if words == {"and"} else [[item] for item in items]


def intervals(items: Sequence[str]) -> list[str]:
    r"""The statements `x<-1`, `x\ge2` as the intervals `(-\infty,-1)` and `[2,\infty)`.

    The items, at most `_MOST`, state one variable, and at least one of them is an inequality. Empty
    for all other items.
    """
    texts = _sets(items)
    points = [text for text in texts if text.startswith(r"\{")]
    return [] if r"\ne" in "".join(texts) or len(points) == len(texts) else texts


def without_points(items: Sequence[str]) -> str | None:
    r"""The set of the statements `x\ge2`, `x\ne3` that hold at once: `[2,\infty)\setminus\{3\}`.

    None unless they state one variable, and at most one of them is not of the form `x\ne3`.
    """
    texts = _sets(items)
    points = [text.removeprefix(r"\ne") for text in texts if text.startswith(r"\ne")]
    whole, *others = [text for text in texts if not text.startswith(r"\ne")] or [_ALL]
    if not points or others or whole.startswith(r"\{"):
        return None
    return rf"{whole}\setminus\{{{','.join(points)}\}}"


def common(texts: Sequence[str]) -> str | None:
    r"""What several intervals have in common: `(1,3]` of `(1,\infty)` and `(-\infty,3]`.

    The interval may be empty. None if two of them are bounded on one side, or one is a point.
    """
    lower, upper = _LOWEST, _HIGHEST
    for text in texts:
        below, comma, above = text.partition(",")
        if not comma or _LOWEST not in (lower, below) or _HIGHEST not in (upper, above):
            return None
        lower = below if lower == _LOWEST else lower
        upper = above if upper == _HIGHEST else upper
    return f"{lower},{upper}"


def _sets(items: Sequence[str]) -> list[str]:
    """The sets of at most `_MOST` statements of one variable; empty for all other items."""
    found = [_interval(item) for item in items] if len(items) <= _MOST else []
    texts = [one[1] for one in found if one]
    same = len({one[0] for one in found if one}) == 1
    return texts if same and len(texts) == len(found) else []


def _unwrapped(text: str) -> str:
    """The text without parentheses around it."""
    found = structure(text)
    return found.items[0] if found.kind == "one" else text


def _items(text: str) -> list[str]:
    found = structure(text)
    return list(found.items) if found.kind in ("one", "list") else [text]


def chain(text: str) -> tuple[list[str], list[str]]:
    r"""The sides of `3>2\ge x`, and the signs between them, turned to `x\le2<3`."""
    parts = _RELATION.split(text)
    if ">" in parts or r"\ge" in parts:
        parts = [_TURNED.get(part, part) for part in reversed(parts)]
    return [side.strip() for side in parts[::2]], parts[1::2]


def _interval(item: str) -> tuple[str, str] | None:
    r"""The variable and the set of `x<2`, `2>x`, `1\le x<2`, `x=2`, or `\ne2` for `x\ne2`."""
    sides, signs = chain(_unwrapped(item))
    if len(signs) not in (1, 2):
        return None
    place = int(len(signs) == 2 or not _VARIABLE.fullmatch(sides[0]))
    variable, bounds = sides[place], sides[:place] + sides[place + 1 :]
    own = re.compile(rf"(?<![\\a-zA-Z]){re.escape(variable)}(?![a-zA-Z])")
    if not _VARIABLE.fullmatch(variable) or not all(bounds):
        return None
    if any(_NO_BOUND.search(bound) or own.search(bound) for bound in bounds):
        return None
    if signs in (["="], [r"\ne"]):
        return variable, rf"\{{{bounds[0]}\}}" if signs == ["="] else rf"\ne{bounds[0]}"
    if not {"<", r"\le"}.issuperset(signs):
        return None
    lower = f"{'[('[signs[0] == '<']}{bounds[0]}" if place else _LOWEST
    upper = f"{bounds[-1]}{'])'[signs[-1] == '<']}" if place < len(signs) else _HIGHEST
    return variable, f"{lower},{upper}"
