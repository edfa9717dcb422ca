"""The host loop: the core's `plan` and `commit` around a real policy and a real PRM.

A `SearchBatch` has a fixed number of slots, one question each, as one batched `SearchState`. A tick
plans all slots, and commits those that request no samples. If there are none, it calls the policy
once, calls the PRM once if candidates need scores, and commits all slots. A concurrent model is
called in threads; a tick then commits the slots whose samples and scores have arrived. If a call
breaks the model's contract (see `contract`), the model is called again, once per question. Keys and
seeds depend on the question, never on its slot, so results do not depend on the order in which
calls end.

If the strategy compares its answers, a search leaves its slot when it ends. `comparisons` keeps it
until the judge has chosen.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np

from ..protocols import AnswerGrader, StepGenerator, StepScorer
from .accounting import Accounts
from .comparisons import Comparisons
from .expander import Expander
from .jobs import Job, SearchSettings
from .ledger import Ledger
from .results import SearchResult
from .slot_states import SlotStates
from .slots import Slot
from .ticks import SearchInputs
from .timings import Stopwatch, Timings
from .tree import SearchTree


class SearchBatch:
    """A batch of questions that advance together.

    `run` searches the waiting questions. A caller whose questions arrive during the search calls
    `advance` repeatedly instead, and `close` at the end.
    """

    def __init__(
        self,
        *,
        settings: SearchSettings,
        params: Any,
        policy: StepGenerator,
        scorer: StepScorer | None,
        grader: AnswerGrader,
        waiting: deque[Job],
        slots: int,
        most: int,
        finish: Callable[[SearchResult], None],
        timings: Timings,
        comparisons: Comparisons | None,
    ) -> None:
        """Set up empty slots for the questions in `waiting`; `finish` gets each result.

        At most `most` slots are in use at a time. The caller may append to `waiting` between two
        calls of `advance`.
        """
        self._settings = settings
        self._grader = grader
        self._waiting = waiting
        self._finish = finish
        self._slots: list[Slot | None] = [None] * slots
        self._unused = slots - most
        self._states = SlotStates(settings, params, slots, timings)
        self._expander = Expander(
            policy, scorer, slots, settings.capacity, vectors=settings.strategy.needs_vectors
        )
        self._accounts = Accounts(timings, policy, scorer)
        self._comparisons = comparisons

    def run(self) -> None:
        """Search until every question has ended."""
        try:
            while self.advance():
                pass
        finally:
            self.close()

    def advance(self) -> bool:
        """Put waiting questions into free slots, then advance some questions by one phase.

        Returns:
            False if no question is open; the models then keep nothing of earlier questions.
        """
        with self._accounts.host():
            self._refill()
        compared = self._compare()
        for result in compared:
            self._finish(result)
        if not self._open():
            self._expander.forget()
            return bool(compared or self._comparisons)
        observed, advanced = self._tick()
        with self._accounts.host():
            results = self._settle(observed, advanced)
        for result in results:
            self._finish(result)
        return True

    def drop(self, ids: Container[str]) -> list[str]:
        """End open questions without a result; those with a call in progress stay open.

        Returns:
            Ids of the questions that ended. Their slots are free for the next call of `advance`.
        """
        away = self._expander.away()
        here = [slot for slot in self._open() if slot not in away]
        dropped = [slot for slot in here if slot.job.question.id in ids]
        for slot in dropped:
            self._free(slot)
        compared = [] if self._comparisons is None else self._comparisons.drop(ids)
        return [*(slot.job.question.id for slot in dropped), *compared]

    def progress(self) -> Iterator[tuple[str, int, Ledger]]:
        """Id, completed steps and costs so far of each open question."""
        for slot in self._open():
            yield slot.job.question.id, slot.step, slot.tree.ledger
        if self._comparisons is not None:
            yield from self._comparisons.progress()

    def close(self) -> None:
        """Let the models forget the open questions, and end the threads of concurrent models.

        Calls in progress are not awaited, and their questions are not forgotten.
        """
        away = self._expander.away(running=True)
        for slot in self._open():
            if slot not in away:
                self._expander.keep_only(slot.tree.question, [])
        # A model that fails here has failed before: that error is the one to show.
        with contextlib.suppress(Exception):
            self._expander.forget()
        self._expander.close()
        if self._comparisons is not None:
            self._comparisons.close()

    def _refill(self) -> None:
        """Put waiting questions into free slots; a search that is being compared takes a place."""
        opened: dict[int, SearchInputs] = {}
        compared = 0 if self._comparisons is None else len(self._comparisons)
        places = len(self._slots) - len(self._open()) - compared - self._unused
        for index, slot in enumerate(self._slots):
            if slot is None and self._waiting and len(opened) < places:
                job = self._waiting.popleft()
                tree = SearchTree(job.question, self._grader)
                reads_log_probs = self._settings.reads_log_probs(job.inputs)
                strategy = self._settings.strategy
                read = reads_log_probs, strategy.certainty, strategy.needs_vectors
                self._slots[index] = Slot(index, job, tree, *read)
                opened[index] = job.inputs
        self._states.open(opened)

    def _compare(self) -> list[SearchResult]:
        """Results of the searches whose comparisons have ended."""
        if not self._comparisons:
            return []
        self._expander.forget()
        return self._comparisons.advance(len(self._open()))

    def _tick(self) -> tuple[dict[str, Any], list[Slot]]:
        """Advance some questions by one phase; also return the slots that advanced.

        If some questions request no samples, they alone advance, and no model is called. So each
        call of the policy serves all questions without a call in progress.
        """
        busy, num_phases = Stopwatch(), self._settings.strategy.num_phases
        with busy("core"):
            counts = [0 if slot is None else slot.tick(num_phases) for slot in self._slots]
            planned, request = self._states.plan(counts)
        slots, away = self._open(), self._expander.away()
        here = [slot for slot in slots if slot not in away]
        asking = np.any(request.num_samples > 0, axis=1)
        advancing = [slot for slot in here if not asking[slot.index]]
        if advancing:
            expansion = self._expander.nothing()
        else:
            self._expander.begin(here, request, busy)
            own_seconds = self._accounts.own_seconds
            advancing, expansion = self._expander.receive(len(slots), own_seconds, busy)
        with busy("core"):
            indices = [slot.index for slot in advancing]
            observed = self._states.commit(planned, expansion, indices, len(slots))
        for slot in advancing:
            slot.record(observed, num_phases)
        self._accounts.end_tick(busy, slots)
        return observed, advancing

    def _settle(self, observed: dict[str, Any], advanced: list[Slot]) -> list[SearchResult]:
        """Free the slots of questions that ended, and return their results.

        Models forget dead paths of the other questions.
        """
        results: list[SearchResult] = []
        for slot in advanced:
            end = slot.end(observed, self._settings)
            if end is not None:
                result = slot.result(observed, *end)
                if self._comparisons is not None:
                    result = self._comparisons.add(result, slot.tree.answer_class)
                if result is not None:
                    results.append(result)
                self._free(slot)
            elif slot.phase == 0:
                slot.valid_in_step = 0
                live = slot.tree.forget_steps_outside(slot.alive(observed, "frontier"))
                self._expander.keep_only(slot.tree.question, live)
        return results

    def _free(self, slot: Slot) -> None:
        self._expander.keep_only(slot.tree.question, [])
        self._slots[slot.index] = None
        self._states.close(slot.index)

    def _open(self) -> list[Slot]:
        """The slots that hold a question, in order."""
        return [slot for slot in self._slots if slot is not None]
