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

_CLOSING = {opening.lower(): closing.lower() for opening, closing in TAGS}
"""The tag that closes a thought, by the tag that opens it."""

_TAG = re.compile(
    "|".join(re.escape(tag) for pair in TAGS for tag in pair), re.IGNORECASE | re.ASCII
)


def without_thinking(steps: Iterable[str]) -> str:
    """The last of several steps as by `outside_thinking`; "" if there is no step."""
    outside = outside_thinking(steps)
    return outside[-1][0] if outside else ""


def answer_text(steps: Iterable[str]) -> str:
    """All steps of an answer without the thinking in them, with blank lines between them."""
    return "\n\n".join(filter(None, (text.strip() for text, _ in outside_thinking(steps))))


def outside_thinking(steps: Iterable[str]) -> list[tuple[str, bool]]:
    """Several steps without the thinking in them.

    A thought may begin in one step and end in another. It ends at the closing tag of its opening
    tag, or with the text; other tags in it are part of it. A closing tag without an opening tag
    ends a thought that the prompt opened: all text of the step before the tag is part of it.

    Returns:
        For each step its text outside of thoughts, and whether it ends within a thought.
    """
    outside: list[tuple[str, bool]] = []
    closing: str | None = None
    for step in steps:
        parts, start = [], 0
        for tag in _TAG.finditer(step):
            name = tag[0].lower()
            if closing is not None and name != closing:
                continue
            if name in _CLOSING:
                parts.append(step[start : tag.start()])
            elif closing is None:
                parts.clear()
            closing, start = _CLOSING.get(name), tag.end()
        if closing is None:
            parts.append(step[start:])
        # A blank separates the texts before and after a thought.
        outside.append((" ".join(parts), closing is not None))
    return outside
