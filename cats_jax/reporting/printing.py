"""Tables on a console, cut to its width; plain text if the output is not a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .plain_text import one_line
from .sheets import Sheet

PIPE_WIDTH = 160
"""Columns of a file or pipe. Tables are wider than the 80 that rich assumes."""

_MAX_TEXT = 2000
"""Most characters of a title or a note."""


def show_table(console: Console, table: Table) -> None:
    """Print a table, in plain ASCII if the output is not a terminal."""
    table.box = box.SIMPLE_HEAD if console.is_terminal else box.ASCII2
    console.print(table)


def new_table(title: str, *columns: str) -> Table:
    """A table without rows, whose columns are never wrapped.

    Columns are right-aligned; those whose name begins with "<", which is not shown, left-aligned.
    """
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        justify = "left" if column.startswith("<") else "right"
        table.add_column(column.removeprefix("<"), justify=justify, no_wrap=True)
    return table


def show_sheet(console: Console, sheet: Sheet) -> None:
    """Print the columns of a table that fit the console, and below them the names of the others."""
    table, width, left_out = _terminal_table(sheet, console.width, framed=not console.is_terminal)
    console.print(Text(one_line(sheet.title, _MAX_TEXT), style="bold"))
    whole = console.width
    # Wider than the console only where rows could not be told apart otherwise.
    console.width = max(whole, width)
    show_table(console, table)
    console.width = whole
    notes = list(sheet.notes)
    if left_out:
        notes.append(
            f"not shown here: {', '.join(left_out)} (a wider terminal has them, and so have files "
            "of `cats-jax report --output`)"
        )
    for note in notes:
        console.print(Text(one_line(note, _MAX_TEXT), style="dim"))
    console.print()


def _terminal_table(sheet: Sheet, room: int, *, framed: bool) -> tuple[Table, int, list[str]]:
    """The columns of a sheet that fit into lines of `room` characters.

    If `framed`, lines are drawn around columns, which takes room.

    Returns:
        The table, the width that it needs, and the titles of the columns that were left out. The
        width exceeds `room` only if the columns of rank 0 alone exceed it.
    """
    rows = sheet.rows()
    widths = [
        max(map(cell_len, [column.title, *(row[index] for row in rows)]))
        for index, column in enumerate(sheet.columns)
    ]
    gap, frame = (3, 4) if framed else (2, 0)
    kept = fitting(widths, [column.rank for column in sheet.columns], room, gap, frame)
    table = new_table("")
    table.show_edge = table.pad_edge = framed
    table.padding = (0, 1) if framed else (0, 1, 0, 0)
    for index in kept:
        column = sheet.columns[index]
        table.add_column(
            Text(column.title), justify="left" if column.left else "right", no_wrap=True
        )
    for number, row in enumerate(rows):
        if sheet.begins_section(number):
            table.add_section()
        # As `Text`: a label may look like rich's markup.
        table.add_row(*(Text(row[index]) for index in kept))
    left_out = [column.title for i, column in enumerate(sheet.columns) if i not in kept]
    return table, table_width([widths[index] for index in kept], gap, frame), left_out


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
