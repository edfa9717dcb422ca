"""Console and tables; plain text if the output is not a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..reporting.plain_text import one_line
from ..reporting.sheets import Sheet
from ..reporting.tables import terminal_table

# Tables are wider than the 80 columns that rich assumes for a pipe.
_PIPE_WIDTH = 160
# Of a title or a note.
_MAX_TEXT = 2000


def make_console(*, stderr: bool = False) -> Console:
    """A console for this process's output."""
    console = Console(stderr=stderr, highlight=False)
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)
    )


def say(console: Console, text: str) -> None:
    """Print a line of prose, wrapped between words on a terminal and not wrapped in a file or pipe.

    Paths and commands are for copying: print those by `console.print` with `soft_wrap`.
    """
    console.print(Text(text), soft_wrap=not console.is_terminal)


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
