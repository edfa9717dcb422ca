"""Bounds on texts of models, data sets and recipes, which may be of any length."""

from __future__ import annotations

from typing import Any

MAX_TEXT = 20_000
"""Most characters of a text that a page holds; the page says how long the text was."""


def bounded(text: str) -> str | list[Any]:
    """The text, or [its first `MAX_TEXT` characters, its length] if it is longer."""
    return text if len(text) <= MAX_TEXT else [text[:MAX_TEXT], len(text)]


def shortened(value: object, most: int) -> str:
    """The value as a text of at most `most` characters, the last of which is "…" if it was cut."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"
