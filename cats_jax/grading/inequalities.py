r"""Alternatives such as `x < -1 or x > 2`, read as intervals."""

from __future__ import annotations

import re

from .structure import Structure

_RELATION = re.compile(r"([<>]=?|=|\\(?:leqslant|geqslant|leq|geq|le|ge|lt|gt)(?![a-zA-Z]))")
_VARIABLE = re.compile(r"[a-zA-Z]|\\(?:alpha|beta|gamma|delta|lambda|mu|theta|phi|omega)")
# A bound is one number or formula.
_NO_BOUND = re.compile(r"[,;:&]|\\(?:ne|neq|in|pm|mp|approx|infty|cup|cap)(?![a-zA-Z])")
_TURNED = {"<": ">", ">": "<", "=": "="}
_MOST = 8


def intervals(found: Structure) -> list[str]:
    r"""The list `x<-1`, `x\ge2` as the intervals `(-\infty,-1)` and `[2,\infty)`.

    The items, at most `_MOST`, state one variable, and at least one of them is an inequality. Empty
    for any other structure.
    """
    if found.kind != "list" or len(found.items) > _MOST:
        return []
    sets = [_interval(item) for item in found.items]
    if None in sets or len({one[0] for one in sets if one}) != 1:
        return []
    texts = [one[1] for one in sets if one]
    return [] if all(text.startswith(r"\{") for text in texts) else texts


def _interval(item: str) -> tuple[str, str] | None:
    r"""The variable and the set of `x<2`, `2>x`, `1\le x<2` or `x=2`; None for other texts."""
    sides = [side.strip() for side in _RELATION.split(item)]
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
