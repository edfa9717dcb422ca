"""Decides which worker searches which batch, so that all stay busy and little is done twice.

A worker remembers the paths that it has sampled and the programs that it has compiled. Cells that
share paths therefore belong to the worker that began the first of them, and any other cell to the
worker that began it. When no more cells come, every worker takes any batch that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ..live.results import SearchResult
from ..protocols import Question


@dataclass(frozen=True, eq=False)
class Batch:
    """Questions of a cell that one worker searches at once.

    Attributes:
        cell: index of the cell in the grid.
        pool: name of the pool of paths that the cell shares with others, see `Cell.pool`.
        questions: the questions.
        on_result: gets each result.
    """

    cell: int
    pool: str | None
    questions: tuple[Question, ...]
    on_result: Callable[[SearchResult], None]


class BatchQueue:
    """Batches that wait for a worker; workers are numbers."""

    def __init__(self) -> None:
        self._waiting: list[Batch] = []
        # By pool and question: the worker that remembers the paths.
        self._homes: dict[tuple[str, str], int] = {}
        # By pool, or by cell without one: the worker that began it.
        self._owners: dict[str | int, int] = {}

    def put(self, batch: Batch) -> None:
        """Add a batch."""
        self._waiting.append(batch)

    def take(self, worker: int, *, helping: bool) -> Batch | None:
        """Remove and return the batch that suits a worker best; None: the worker should wait.

        The worker's own batches come first: it remembers paths of their questions, or it began
        their pool or cell. Batches that belong to no worker come second. If `helping`, other
        workers' batches come last; otherwise they are not taken.
        """

        def rank(batch: Batch) -> int:
            owner = self._owner(batch)
            return 0 if owner == worker else 1 if owner is None else 2

        # Of batches with the same rank, the first.
        batch = min(self._waiting, key=rank, default=None)
        if batch is None or (rank(batch) == 2 and not helping):
            return None
        self._waiting.remove(batch)
        self._owners.setdefault(_group(batch), worker)
        if batch.pool is not None:
            self._homes.update(((batch.pool, each.id), worker) for each in batch.questions)
        return batch

    def _owner(self, batch: Batch) -> int | None:
        """The worker that remembers most of a batch, else the one that began its group, or None."""
        known: Counter[int] = Counter()
        if batch.pool is not None:
            keys = ((batch.pool, question.id) for question in batch.questions)
            known.update(self._homes[key] for key in keys if key in self._homes)
        return max(known, key=known.__getitem__, default=self._owners.get(_group(batch)))


def _group(batch: Batch) -> str | int:
    return batch.cell if batch.pool is None else batch.pool
