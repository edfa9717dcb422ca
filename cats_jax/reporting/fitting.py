"""Which columns of a table fit into a line."""

from __future__ import annotations

from collections.abc import Sequence


def fitting(
    widths: Sequence[int], ranks: Sequence[int], room: int, gap: int, frame: int
) -> list[int]:
    """Indices of the columns that fit side by side, ascending.

    Columns are left out one at a time until the rest fits: first those of the largest rank, and of
    equal ranks the rightmost. Columns of rank 0 are always kept.

    Args:
        widths, ranks: width in characters and rank, at least 0, of each column.
        room: width of a line, in characters.
        gap, frame: widths of the gap between two columns and of both edges together.
    """
    kept = list(range(len(widths)))
    while table_width([widths[index] for index in kept], gap, frame) > room:
        leaving = max(kept, key=lambda index: (ranks[index], index), default=None)
        if leaving is None or ranks[leaving] == 0:
            break
        kept.remove(leaving)
    return kept


def table_width(widths: Sequence[int], gap: int, frame: int) -> int:
    """Characters of a line of the table."""
    return sum(widths) + gap * max(len(widths) - 1, 0) + frame
