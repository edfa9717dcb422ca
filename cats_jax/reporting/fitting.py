"""Which columns of a table fit into a line."""

from __future__ import annotations

from collections.abc import Sequence


def fitting(
    widths: Sequence[int], ranks: Sequence[int], room: int, gap: int, frame: int
) -> list[int]:
    """Columns that fit side by side.

    Columns are left out one at a time until the rest fits: first those of the largest rank, and of
    equal ranks the rightmost. Columns of rank 0 are always kept.

    Args:
        widths: width of each column, in characters.
        ranks: rank of each column, at least 0.
        room: width of a line, in characters.
        gap: width of the gap between two columns, in characters.
        frame: width of both edges together, in characters.

    Returns:
        Indices of the columns that stay, ascending.
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
