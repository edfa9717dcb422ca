"""Live curves of an evaluation: TensorBoard files in the run folder, Weights & Biases on demand."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadInputError
from ..runs.folder import Row
from ..storage.durable import refuse_link

FOLDER = "tensorboard"
"""Name of the folder of event files in a run folder; `tensorboard --logdir runs` shows all runs."""

_SECONDS_BETWEEN_FLUSHES = 5.0


class Tracker:
    """A `recording.Observer`: accuracy, tokens and speed of each cell as its questions end."""

    def __init__(self, sinks: Sequence[TensorBoard | WeightsAndBiases]) -> None:
        """The sinks are closed with the tracker."""
        self._sinks = sinks
        self._cells: dict[str, _Curves] = {}

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *exception: object) -> None:
        for sink in self._sinks:
            sink.close()

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """A cell begins, perhaps with rows of an earlier run."""
        self._cells[title] = _Curves(
            before=len(rows),
            done=len(rows),
            right=sum(row.correct for row in rows),
            tokens=sum(row.ledger.tokens for row in rows),
        )

    def row(self, title: str, row: Row) -> None:
        """One more question of a cell has ended."""
        cell = self._cells[title]
        cell.done += 1
        cell.right += row.correct
        cell.tokens += row.ledger.tokens
        minutes = max(time.monotonic() - cell.started, 1e-9) / 60
        values = {
            "accuracy": cell.right / cell.done,
            "tokens per question": cell.tokens / cell.done,
            "questions per minute": (cell.done - cell.before) / minutes,
        }
        for name, value in values.items():
            for sink in self._sinks:
                sink.scalar(f"{title}/{name}", value, cell.done)


@dataclass
class _Curves:
    """Sums over the rows of a cell; `before` of them are of an earlier run."""

    before: int
    done: int
    right: int
    tokens: int
    started: float = field(default_factory=time.monotonic)


class TensorBoard:
    """TensorBoard event files. If they can't be written the curves end, but the run continues."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Open an event file in `tensorboard` in a run folder; BadInputError if that is a link."""
        from tensorboardX.event_file_writer import EventsWriter

        # This thread writes: a separate thread would end with a traceback if it could not write.
        refuse_link(folder / FOLDER)
        self._writer: EventsWriter | None = None
        with contextlib.suppress(OSError):
            (folder / FOLDER).mkdir(exist_ok=True)
            self._writer = EventsWriter(str(folder / FOLDER / "events"))
        self._flushed = time.monotonic()

    def scalar(self, name: str, value: float, step: int) -> None:
        """One point of a curve."""
        if self._writer is None:
            return
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        event = Event(wall_time=time.time(), step=step, summary=scalar(name, value))
        try:
            self._writer.write_event(event)
            if time.monotonic() - self._flushed > _SECONDS_BETWEEN_FLUSHES:
                self._writer.flush()
                self._flushed = time.monotonic()
        except OSError:
            self._writer = None

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


class WeightsAndBiases:
    """A run of a Weights & Biases project.

    Raises:
        BadInputError: the package is not installed.
    """

    def __init__(self, project: str, name: str, config: Mapping[str, Any]) -> None:
        """Begin the run; `config` is shown with it."""
        try:
            import wandb  # type: ignore[import-not-found]
        except ModuleNotFoundError as error:
            raise BadInputError(
                "--wandb: Weights & Biases is not installed: pip install wandb, or leave the "
                "option out; TensorBoard files are written in any case"
            ) from error
        self._run = wandb.init(project=project, name=name, config=dict(config))

    def scalar(self, name: str, value: float, step: int) -> None:
        """One point of a curve, logged with its x value, because each cell has its own x-axis."""
        self._run.log({name: value, f"{name.rpartition('/')[0]}/questions": step})

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()
