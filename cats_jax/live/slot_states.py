"""The core's side of a batch: the states of its slots, which `plan` and `commit` replace."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import search

from . import ticks
from .arrays import slot_mask, stack
from .compilations import num_compilations
from .jobs import SearchSettings
from .timings import Timings


class SlotStates:
    """One `SearchState` with a leading axis B, and the other inputs of the core.

    An empty slot has the budget 0: its search is over before it begins.

    Attributes:
        state: state of the B slots; NumPy or JAX arrays `[B, ...]`.
    """

    def __init__(self, settings: SearchSettings, params: Any, slots: int, timings: Timings) -> None:
        self._settings = settings
        self._params = params
        context = jax.tree.map(np.float32, search.Context())
        key = np.asarray(jax.random.key_data(jax.random.key(0)))
        self._idle = ticks.SearchInputs(np.int32(1), np.int32(0), context, key)
        self._inputs = [self._idle] * slots
        self._stacked = stack(self._inputs)
        started, compiled = time.perf_counter(), num_compilations()
        self.state = ticks.first_states(self._stacked, **settings.shapes)
        if num_compilations() > compiled:
            timings.add("compiling", time.perf_counter() - started)
        self._memory: Any = None  # of the recorder
        # Slots whose question is gone, but whose arrays are not yet replaced.
        self._closed: set[int] = set()

    def close(self, index: int) -> None:
        """Mark a slot's question as gone; the next `open` replaces the slot's arrays."""
        self._closed.add(index)

    def open(self, opened: Mapping[int, ticks.SearchInputs]) -> None:
        """Begin searches in the slots of `opened`; other closed slots become empty."""
        for index in self._closed - opened.keys():
            self._inputs[index] = self._idle
        for index, inputs in opened.items():
            self._inputs[index] = inputs
        replaced = self._closed | opened.keys()
        if replaced:
            self._stacked = stack(self._inputs)
            fresh = ticks.first_states(self._stacked, **self._settings.shapes)
            mask = slot_mask(replaced, len(self._inputs))
            self.state = ticks.where_slots(mask, fresh, self.state)
            self._closed.clear()

    def plan(self, counts: Sequence[int]) -> tuple[search.Plan, search.Request]:
        """The plan of all slots, and its requests on the host.

        `counts` are the phases since the search of each slot began, `[B]`.
        """
        planned = ticks.plan(
            self._params,
            self._stacked.key,
            np.asarray(counts, np.int32),
            self.state,
            self._settings.strategy,
        )
        return planned, jax.device_get(planned.request)

    def commit(
        self,
        planned: search.Plan,
        expansion: search.Expansion,
        advancing: Collection[int],
        num_open: int,
    ) -> dict[str, Any]:
        """Commit the slots in `advancing`; those of other open questions keep their states.

        `planned` is what `plan` returned. `expansion` has the candidates, `[B, capacity]`.

        Returns:
            The values of the tick that the host reads, see `ticks.commit`, each `[B, ...]`.
        """
        before, memory = self.state, self._memory
        after, observed = ticks.commit(
            self._params, before, planned, expansion, self._settings.strategy
        )
        if self._settings.recorder is not None:
            tick = search.Tick(before, planned, expansion, observed["output"], after)
            self._memory, observed["record"] = ticks.record(memory, tick, self._settings.recorder)
        if len(advancing) < num_open:
            mask = slot_mask(advancing, len(self._inputs))
            after = ticks.where_slots(mask, after, before)
            if memory is not None:
                self._memory = ticks.where_slots(mask, self._memory, memory)
        self.state = after
        return jax.device_get(observed)
