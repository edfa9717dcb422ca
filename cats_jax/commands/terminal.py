"""Console, tables and progress bars; plain text if the output is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..reporting.plain_text import one_line
from ..reporting.sheets import Sheet
from ..reporting.tables import terminal_table
from ..runs.folder import Row

# Tables are wider than the 80 columns that rich assumes for a pipe.
_PIPE_WIDTH = 160
_SECONDS_BETWEEN_LINES = 20.0
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


def show_table(console: Console, table: Table) -> None:
    """Print a table, in plain ASCII if the output is not a terminal."""
    table.box = box.SIMPLE_HEAD if console.is_terminal else box.ASCII2
    console.print(table)


def show_sheet(console: Console, sheet: Sheet) -> None:
    """Print a table whose columns fit the console, and below it which columns did not."""
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
            f"not shown here: {', '.join(left_out)} (a wider terminal or --output of `cats-jax "
            "report` has them)"
        )
    for note in notes:
        console.print(Text(one_line(note, _MAX_TEXT), style="dim"))
    console.print()


class ProgressBars:
    """An `evaluate.Observer`: a bar per cell, with accuracy so far and questions per minute.

    Without a terminal it prints a line when a cell begins and ends, and every 20 seconds.
    """

    def __init__(self, console: Console, cells: int) -> None:
        self._console = console
        self._cells = cells
        self._cell = 0
        self._task = None
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
            transient=False,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """Add a bar for a cell."""
        self._cell += 1
        self._title, self._total = title, total
        self._right, self._done = sum(row.correct for row in rows), len(rows)
        self._before = self._done
        self._tokens = 0
        self._started = self._printed = time.monotonic()
        self._task = self._bars.add_task(
            f"[{self._cell}/{self._cells}] {title}".replace("[", "\\["),
            total=total,
            completed=self._done,
            figures=self._figures(),
        )
        if self._done == total:
            self._line("already there")

    def row(self, row: Row) -> None:
        """Count one more finished question."""
        assert self._task is not None
        self._right += row.correct
        self._done += 1
        self._tokens += row.ledger.tokens
        self._bars.update(self._task, completed=self._done, figures=self._figures())
        if self._done == self._total:
            self._line(f"done in {time.monotonic() - self._started:.1f} s")
        elif time.monotonic() - self._printed > _SECONDS_BETWEEN_LINES:
            self._line("running")

    def _figures(self) -> str:
        if not self._done:
            return ""
        seconds = max(time.monotonic() - self._started, 1e-9)
        new = self._done - self._before
        text = f"accuracy {self._right / self._done:.3f}"
        if not new:
            return text
        left = seconds / new * (self._total - self._done)
        return (
            f"{text}, {60 * new / seconds:.0f} questions/min, {self._tokens / seconds:.0f} "
            f"tokens/s, {_duration(left)} left"
        )

    def _line(self, what: str) -> None:
        self._printed = time.monotonic()
        if not self._console.is_terminal:
            self._console.print(
                f"[{self._cell}/{self._cells}] {self._title}: {self._done}/{self._total}, "
                f"{self._figures()}, {what}",
                markup=False,
                soft_wrap=True,
            )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
