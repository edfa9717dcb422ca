"""Progress of long work: bars that fit any terminal, or a line every 20 seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from .time_left import TimeLeft, duration

if TYPE_CHECKING:
    from ..evaluation.cells import Cell
    from ..evaluation.evaluate import Evaluation
    from ..runs.folder import Row

_SECONDS_BETWEEN_LINES = 20.0


class _Shown:
    """Bars on a console, which are there in a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console, self._bars = console, _bars(console)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()


class ProgressBar(_Shown):
    """A bar with the share that is done; without a terminal, a line every 20 seconds.

    `total` is the value of `show` at which the task is done.
    """

    def __init__(self, console: Console, title: str, total: float) -> None:
        super().__init__(console)
        self._title, self._total = title, total
        self._started = self._printed = time.monotonic()
        self._first: float | None = None
        self._task = self._bars.add_task(title, total=total, count="0%", figures="")

    def show(self, done: float) -> None:
        """Show how much of the total is done; the first call states what was done before."""
        if self._first is None:
            self._first, self._started = done, time.monotonic()
        count, figures = f"{done / self._total:.0%}", ""
        if done > self._first:
            rate = (time.monotonic() - self._started) / (done - self._first)
            figures = f"{duration(rate * (self._total - done))} left"
        self._bars.update(self._task, completed=done, count=count, figures=figures)
        waited = time.monotonic() - self._printed
        if not self._console.is_terminal and waited > _SECONDS_BETWEEN_LINES:
            self._printed = time.monotonic()
            parts = ", ".join(filter(None, (count, figures)))
            self._console.print(f"{self._title}: {parts}", markup=False, soft_wrap=True)


class ProgressBars(_Shown):
    """A `recording.Observer`: a bar for each open cell, and one for the whole run.

    A line is printed when a cell ends; without a terminal, also every 20 seconds, in place of bars.
    """

    def __init__(
        self, console: Console, cells: Sequence[Cell], questions: int, in_flight: int
    ) -> None:
        """Start without a cell; the arguments are those of the run, see `TimeLeft`."""
        super().__init__(console)
        self._cells = len(cells)
        # Larger batches take longer, though not in proportion, and every phase is a call.
        weights = {
            cell.title: (cell.num_candidates * cell.strategy.num_phases) ** 0.5 for cell in cells
        }
        self._time_left = TimeLeft(weights, questions, in_flight)
        self._begun: dict[str, _Cell] = {}
        self._started = time.monotonic()
        self._whole = self._bars.add_task(f"all {len(cells)} cells", count="", figures="", total=1)

    @classmethod
    def of(cls, console: Console, evaluation: Evaluation) -> ProgressBars:
        """The bars of an evaluation."""
        count = len(evaluation.questions.questions)
        return cls(console, evaluation.cells, count, evaluation.recipe.in_flight)

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """Add a bar for a cell."""
        label = f"[{len(self._begun) + 1}/{self._cells}] {title}"
        cell = _Cell(label, total, len(rows), sum(row.correct for row in rows))
        self._begun[title] = cell
        self._time_left.begin(title, total, len(rows))
        if cell.done == total:
            self._line(cell, "already there")
        else:
            cell.task = self._bars.add_task(label, total=total, count="", figures="")
            self._update(cell)
        self._update_whole()

    def row(self, title: str, row: Row) -> None:
        """Count one more finished question of a cell."""
        cell = self._begun[title]
        cell.right += row.correct
        cell.done += 1
        cell.tokens += row.ledger.tokens
        self._time_left.end_question(title)
        self._update(cell)
        self._update_whole()
        seconds = time.monotonic() - cell.started
        if cell.done == cell.total:
            if cell.task is not None:
                self._bars.remove_task(cell.task)
            self._line(cell, f"{seconds:.1f} s", f"{cell.tokens / max(seconds, 1e-9):.0f} tokens/s")
        elif time.monotonic() - cell.printed > _SECONDS_BETWEEN_LINES:
            cell.printed = time.monotonic()
            if not self._console.is_terminal:
                self._line(cell, f"all cells: {self._time_left.share:.0%}", self._left())

    def _update(self, cell: _Cell) -> None:
        if cell.task is not None:
            count = f"{cell.done}/{cell.total}"
            self._bars.update(
                cell.task, completed=cell.done, count=count, figures=cell.accuracy("acc. ")
            )

    def _update_whole(self) -> None:
        share = self._time_left.share
        self._bars.update(self._whole, completed=share, count=f"{share:.0%}", figures=self._left())

    def _left(self) -> str:
        left = self._time_left.seconds(time.monotonic() - self._started)
        return "" if left is None else f"{duration(left)} left"

    def _line(self, cell: _Cell, *more: str) -> None:
        """Print the figures of a cell; the last ones are left out if the line is too short."""
        parts = [f"{cell.label}: {cell.done}/{cell.total}", cell.accuracy("accuracy "), *more]
        parts = [part for part in parts if part]
        while len(parts) > 1 and len(", ".join(parts)) > self._console.width:
            parts.pop()
        self._console.print(", ".join(parts), markup=False, soft_wrap=True)


@dataclass
class _Cell:
    """A cell that has begun: its label, questions, rows (`done`), right rows, tokens and bar.

    `started` and `printed`, when its last line was printed, are of the monotonic clock.
    """

    label: str
    total: int
    done: int
    right: int
    tokens: int = 0
    task: TaskID | None = None
    started: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def accuracy(self, word: str) -> str:
        """Accuracy so far after a word; "" without a row."""
        return f"{word}{self.right / self.done:.3f}" if self.done else ""


class _Fixed(ProgressColumn):
    """A column with a field of the tasks, which other columns can't make narrower."""

    def __init__(self, name: str) -> None:
        super().__init__(Column(no_wrap=True, min_width=10, justify="right"))
        self._name = name

    def render(self, task: Task) -> Text:
        return Text(str(task.fields[self._name]))


def _bars(console: Console) -> Progress:
    """Bars whose titles alone are cut on a narrow terminal."""
    title = Column(ratio=1, no_wrap=True, overflow="ellipsis", min_width=8)
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=title),
        BarColumn(bar_width=16, table_column=Column(no_wrap=True, min_width=16)),
        _Fixed("count"),
        _Fixed("figures"),
        console=console,
        transient=True,
        expand=True,
        disable=not console.is_terminal,
    )
