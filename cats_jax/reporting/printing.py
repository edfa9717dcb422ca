"""Tables on a console; plain text if the output is not a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .plain_text import one_line
from .sheets import Sheet
from .tables import terminal_table

PIPE_WIDTH = 160
"""Columns of a file or pipe. Tables are wider than the 80 that rich assumes."""

_MAX_TEXT = 2000
"""Most characters of a title or a note."""


def show_table(console: Console, table: Table) -> None:
    """Print a table, in plain ASCII if the output is not a terminal."""
    table.box = box.SIMPLE_HEAD if console.is_terminal else box.ASCII2
    console.print(table)


def show_sheet(console: Console, sheet: Sheet) -> None:
    """Print the columns of a table that fit the console, and below them the names of the others."""
    table, width, left_out = terminal_table(sheet, console.width, framed=not console.is_terminal)
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
