r"""Statements such as `x < -1 or x > 2`, read as intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .structure import structure

_RELATION = re.compile(r"([<>]=?|=|\\(?:leqslant|geqslant|leq|geq|le|ge|lt|gt)(?![a-zA-Z]))")
_VARIABLE = re.compile(r"[a-zA-Z]|\\(?:alpha|beta|gamma|delta|lambda|mu|theta|phi|omega)")
# A bound is one number or formula.
_NO_BOUND = re.compile(r"[,;:&]|\\(?:ne|neq|in|pm|mp|approx|infty|cup|cap)(?![a-zA-Z])")
_CONNECTIVE = re.compile(r"\\l(and|or)(?![a-zA-Z])")
_AND, _OR = re.compile(r"\\land(?![a-zA-Z])"), re.compile(r"\\lor(?![a-zA-Z])")
_LOWEST, _HIGHEST = r"(-\infty", r"\infty)"
_TURNED = {"<": ">", ">": "<", "=": "="}
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
    if len(items) > _MOST:
        return []
    sets = [_interval(item) for item in items]
    if None in sets or len({one[0] for one in sets if one}) != 1:
        return []
    texts = [one[1] for one in sets if one]
    return [] if all(text.startswith(r"\{") for text in texts) else texts


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


def _unwrapped(text: str) -> str:
    """The text without parentheses around it."""
    found = structure(text)
    return found.items[0] if found.kind == "one" else text


def _items(text: str) -> list[str]:
    found = structure(text)
    return list(found.items) if found.kind in ("one", "list") else [text]


def _interval(item: str) -> tuple[str, str] | None:
    r"""The variable and the set of `x<2`, `2>x`, `1\le x<2` or `x=2`; None for other texts."""
    sides = [side.strip() for side in _RELATION.split(_unwrapped(item))]
    if len(sides) == 5 and _direction(sides[1]) == _direction(sides[3]) != "=":
        if _direction(sides[1]) == ">":
            sides.reverse()
        lower, _, variable, _, upper = sides
        opening, closing = "[("[_strict(sides[1])], "])"[_strict(sides[3])]
        bounds = [lower, upper]
    elif len(sides) == 3:
        variable, relation, bound = sides
        direction = _direction(relation)
        if not _VARIABLE.fullmatch(variable):
            variable, bound, direction = bound, variable, _TURNED[direction]
        lower, upper = (r"-\infty", bound) if direction == "<" else (bound, r"\infty")
        opening = "[("[_strict(relation) or direction == "<"]
        closing = "])"[_strict(relation) or direction == ">"]
        bounds = [bound]
    else:
        return None
    own = re.compile(rf"(?<![\\a-zA-Z]){re.escape(variable)}(?![a-zA-Z])")
    if not _VARIABLE.fullmatch(variable) or not all(bounds):
        return None
    if any(_NO_BOUND.search(bound) or own.search(bound) for bound in bounds):
        return None
    if len(sides) == 3 and _direction(sides[1]) == "=":
        return variable, rf"\{{{bounds[0]}\}}"
    return variable, f"{opening}{lower},{upper}{closing}"


def _direction(relation: str) -> str:
    return relation[0] if relation[0] in "<>=" else {"l": "<", "g": ">"}[relation[1]]


def _strict(relation: str) -> bool:
    return relation in ("<", ">", r"\lt", r"\gt")
