"""Progress of one long task on stderr: a bar, or a line every 20 seconds."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 20.0


class ProgressBar:
    """A bar with the share that is done; without a terminal, a line every 20 seconds.

    Args:
        console: console to draw on.
        title: name of the task.
        total: value of `show` at which the task is done.
    """

    def __init__(self, console: Console, title: str, total: float) -> None:
        self._console, self._title, self._total = console, title, total
        self._printed = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, done: float) -> None:
        """Show how much of the total is done."""
        self._bar.update(self._task, completed=done)
        waited = time.monotonic() - self._printed
        if not self._console.is_terminal and waited > _SECONDS_BETWEEN_LINES:
            self._printed = time.monotonic()
            self._console.print(f"{self._title}: {done / self._total:.0%}", markup=False)
