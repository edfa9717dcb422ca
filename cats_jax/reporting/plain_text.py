"""Text of models and run folders, made safe for one line of a terminal."""

from __future__ import annotations

_READ = 8
"""Characters looked at, as a multiple of those shown: a text may be of any length."""


def printable(text: str) -> str:
    """Text with U+FFFD for what moves the cursor or changes the direction of writing."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def one_line(text: str, most: int) -> str:
    """Text on one line, blanks joined, as `printable`.

    Args:
        text: any text, also hostile.
        most: most characters of the result, at least 1; "…" ends a text that was cut.
    """
    shown = printable(" ".join(text[: _READ * most].split()))
    whole = len(shown) <= most and len(text) <= _READ * most
    return shown if whole else shown[: most - 1] + "…"
