"""Console, tables and progress bars; plain text if the output is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
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
        self._begun: dict[str, _Bar] = {}
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
        label = f"[{len(self._begun) + 1}/{self._cells}] {title}"
        task = self._bars.add_task(
            label.replace("[", "\\["), total=total, completed=len(rows), figures=""
        )
        cell = _Bar(label, task, total, len(rows), len(rows), sum(row.correct for row in rows))
        self._begun[title] = cell
        self._bars.update(task, figures=cell.figures())
        if cell.done == total:
            self._line(cell, "already there")

    def row(self, title: str, row: Row) -> None:
        """Count one more finished question of a cell."""
        cell = self._begun[title]
        cell.right += row.correct
        cell.done += 1
        cell.tokens += row.ledger.tokens
        self._bars.update(cell.task, completed=cell.done, figures=cell.figures())
        if cell.done == cell.total:
            self._line(cell, f"done in {time.monotonic() - cell.started:.1f} s")
        elif time.monotonic() - cell.printed > _SECONDS_BETWEEN_LINES:
            self._line(cell, "running")

    def _line(self, cell: _Bar, what: str) -> None:
        cell.printed = time.monotonic()
        if not self._console.is_terminal:
            self._console.print(
                f"{cell.label}: {cell.done}/{cell.total}, {cell.figures()}, {what}",
                markup=False,
                soft_wrap=True,
            )


@dataclass
class _Bar:
    """A cell and its bar.

    Attributes:
        label: number and title of the cell.
        task: the bar.
        total: number of questions.
        before: rows of an earlier run.
        done: rows.
        right: rows with the right answer.
        tokens: tokens of the rows of this run.
        started: when the cell began, in seconds of the monotonic clock.
        printed: when its last line was printed.
    """

    label: str
    task: TaskID
    total: int
    before: int
    done: int
    right: int
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def figures(self) -> str:
        """Accuracy so far, speed, and the time that is left."""
        if not self.done:
            return ""
        seconds = max(time.monotonic() - self.started, 1e-9)
        new = self.done - self.before
        text = f"accuracy {self.right / self.done:.3f}"
        if not new:
            return text
        left = seconds / new * (self.total - self.done)
        return (
            f"{text}, {60 * new / seconds:.0f} questions/min, {self.tokens / seconds:.0f} "
            f"tokens/s, {_duration(left)} left"
        )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
