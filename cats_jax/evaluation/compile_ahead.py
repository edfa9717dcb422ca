"""Compilation of a run's programs beside its searches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ..live.compiling import compile_search, num_slots
from ..live.driver import Limits, SearchSettings
from ..specs.recipe import Recipe
from .cells import Cell


class CompileAhead:
    """A thread that compiles the programs of the cells to come, in their order.

    XLA compiles without Python's lock, so that a search on another core goes on meanwhile.
    """

    def __init__(self, recipe: Recipe, cells: Sequence[tuple[Cell, int]]) -> None:
        """Begin.

        Args:
            recipe: recipe of the run.
            cells: cells in the order of their searches, each with its number of questions.
        """
        self._thread = ThreadPoolExecutor(1, "compiler")
        self._compiled: dict[int, Future[None]] = {}
        for cell, questions in cells:
            settings = SearchSettings(
                strategy=cell.strategy,
                num_candidates=cell.num_candidates,
                max_depth=recipe.max_depth,
                limits=Limits(),
            )
            slots = num_slots(min(recipe.in_flight, questions))
            future = self._thread.submit(compile_search, settings, cell.params, slots)
            self._compiled[id(cell)] = future

    def wait(self, cell: Cell) -> None:
        """Wait until the programs of a cell are compiled."""
        self._compiled[id(cell)].result()

    def close(self) -> None:
        """Compile nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
