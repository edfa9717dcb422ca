"""The parts of a text in which a model thinks before it answers."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
)
_OPENING = frozenset(opening.lower() for opening, _ in _TAGS)
_TAG = re.compile("|".join(re.escape(tag) for pair in _TAGS for tag in pair), re.IGNORECASE)


def without_thinking(steps: Iterable[str]) -> str:
    """The last of several steps without the thinking in it; "" if there is no step.

    A thought may begin in one step and end in another. An unclosed thought ends with the text. If a
    closing tag has no opening tag, the prompt opened the thought, and all text before the tag is
    part of it.
    """
    outside, thinking = "", False
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
        outside = " ".join(parts)
    return outside
