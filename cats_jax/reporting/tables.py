"""Tables for a terminal."""

from __future__ import annotations

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from .fitting import fitting, table_width
from .sheets import Sheet


def terminal_table(sheet: Sheet, room: int, *, framed: bool) -> tuple[Table, int, list[str]]:
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


def new_table(title: str, *columns: str) -> Table:
    """A table without rows, whose columns are never wrapped.

    Columns are right-aligned; those whose name begins with "<", which is not shown, left-aligned.
    """
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        justify = "left" if column.startswith("<") else "right"
        table.add_column(column.removeprefix("<"), justify=justify, no_wrap=True)
    return table
