"""The parts of a text in which a model thinks before it answers."""

from __future__ import annotations

import re
from collections.abc import Iterable

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
)
"""Tags that open and close a thought."""

MARKS = tuple({tag[0] for pair in TAGS for tag in pair})
"""First characters of all tags; a text without them has no tag."""

_OPENING = frozenset(opening.lower() for opening, _ in TAGS)
_TAG = re.compile("|".join(re.escape(tag) for pair in TAGS for tag in pair), re.IGNORECASE)


def without_thinking(steps: Iterable[str]) -> str:
    """The last of several steps without the thinking in it; "" if there is no step.

    See `outside_thinking`.
    """
    outside = outside_thinking(steps)
    return outside[-1][0] if outside else ""


def outside_thinking(steps: Iterable[str]) -> list[tuple[str, bool]]:
    """Several steps without the thinking in them.

    A thought may begin in one step and end in another. An unclosed thought ends with the text. If a
    closing tag has no opening tag, the prompt opened the thought, and all text of the step before
    the tag is part of it.

    Returns:
        For each step its text outside of thoughts, and whether it ends within a thought.
    """
    outside: list[tuple[str, bool]] = []
    thinking = False
    for step in steps:
        parts, start = [], 0
        for tag in _TAG.finditer(step):
            opens = tag[0].lower() in _OPENING
            if opens and not thinking:
                parts.append(step[start : tag.start()])
            elif not opens and not thinking:
                parts.clear()
            thinking, start = opens, tag.end()
        if not thinking:
            parts.append(step[start:])
        # A blank separates the texts before and after a thought.
        outside.append((" ".join(parts), thinking))
    return outside
