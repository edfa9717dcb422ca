"""Text of models and run folders, made safe for one line of a terminal."""

from __future__ import annotations

_READ = 8
"""Number of characters read, as a multiple of those shown: a text may be of any length."""


def printable(text: str) -> str:
    """The text with U+FFFD for characters that move the cursor or change the writing direction."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def one_line(text: str, most: int) -> str:
    """The text as by `printable`, on one line, with each run of white space as one blank.

    The result has at most `most` characters, at least 1; a text that was cut ends with "…".
    """
    shown = printable(" ".join(text[: _READ * most].split()))
    whole = len(shown) <= most and len(text) <= _READ * most
    return shown if whole else shown[: most - 1] + "…"
