"""The `expand` of a tick: candidates from a real policy, with scores from a real PRM.

A tick waits for the models here. A concurrent policy is called once for each question, and the core
waits for an eighth of the questions only. One call of the PRM scores the samples that have arrived,
while the policy samples for other questions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import search

from ..protocols import Path, Question, StepGenerator, StepScorer
from .arrays import blank_expansion
from .pending_requests import pending_requests
from .policy_calls import PolicyCalls
from .prm_calls import PRMCalls
from .slots import Slot, in_order
from .timings import Stopwatch

_PATIENCE, _MOST_SECONDS = 2, 0.25
"""How long the driver waits for models at least: a factor, and a limit in seconds.

The factor multiplies the time of the driver's own work in the last tick, see `Accounts`. The limit
is for ticks that compile a program, which takes seconds.
"""

_GATHER = 8
"""The core commits when 1 / `_GATHER` of the open questions have their candidates and scores."""


class Expander:
    """Policy and PRM, and their calls in progress.

    `scorer` is None if the strategy reads no scores. An expansion is `[slots, capacity]`, and has
    vectors if `vectors` is true.
    """

    def __init__(
        self,
        policy: StepGenerator,
        scorer: StepScorer | None,
        slots: int,
        capacity: int,
        *,
        vectors: bool,
    ) -> None:
        self._shape = slots, capacity, vectors
        self._policy = PolicyCalls(policy, slots)
        self._prm = None if scorer is None else PRMCalls(scorer, slots)
        self._models = [calls for calls in (self._policy, self._prm) if calls is not None]

    def away(self, *, running: bool = False) -> set[Slot]:
        """Slots with a call in progress; `running`: without those whose call has ended."""
        return {slot for calls in self._models for slot in calls.slots(running=running)}

    def nothing(self) -> search.Expansion:
        """An expansion `[B, capacity]` without a candidate."""
        return search.Expansion(**blank_expansion(*self._shape))

    def begin(self, slots: Sequence[Slot], request: search.Request, busy: Stopwatch) -> None:
        """Begin the calls of the policy for slots without a call in progress.

        `request` has the requests of all slots, as NumPy arrays `[B, F]`.
        """
        requests = [asked for slot in slots for asked in pending_requests(slot, request)]
        self._policy.begin(requests, busy)

    def receive(
        self, num_open: int, own_seconds: float, busy: Stopwatch
    ) -> tuple[list[Slot], search.Expansion]:
        """Wait until an eighth of the `num_open` open questions have their candidates and scores.

        The driver waits at least `_PATIENCE` times `own_seconds`, up to a limit. During this time,
        a call of the PRM waits for all awaited samples, so that fast models get one large call.
        Afterwards, the samples of an eighth of the questions are enough for a call.

        Returns:
            The slots whose candidates have arrived, and the candidates, `[B, capacity]`.
        """
        enough = -(-num_open // _GATHER)
        least = time.perf_counter() + min(_PATIENCE * own_seconds, _MOST_SECONDS)
        arrived: list[Slot] = []
        arrays = blank_expansion(*self._shape)
        while calls := self._in_progress():
            rest = least - time.perf_counter()
            if len(arrived) >= enough and rest <= 0:
                break
            done = {call for call in calls if call.done()}
            complete = [] if self._prm is None else self._prm.finish(done, busy)
            sampled = self._policy.sampled(done)
            awaited = len(self._policy.in_progress)
            wanted = enough if rest <= 0 else awaited
            if sampled and len(sampled) >= min(wanted, awaited):
                new = self._policy.finish(sampled, busy)
                if self._prm is not None and new.to_score:
                    self._prm.begin(new, busy)
                else:
                    complete.append(new)
            elif not complete:
                with busy("waiting"):
                    wait(
                        [call for call in calls if call not in done],
                        timeout=rest if rest > 0 else None,
                        return_when=FIRST_COMPLETED,
                    )
            for new in complete:
                new.write(arrays)
                arrived += new.slots
        return in_order(arrived), search.Expansion(**arrays)

    def keep_only(self, question: Question, live: list[Path]) -> None:
        """Let the models forget all paths of a question but `live`, from a later call on."""
        for calls in self._models:
            calls.keep_only(question, live)

    def forget(self) -> None:
        """Let the models forget now, without a further call."""
        for calls in self._models:
            calls.tell()

    def close(self) -> None:
        """End the threads of concurrent models; calls in progress are not awaited."""
        for calls in self._models:
            calls.close()

    def _in_progress(self) -> list[Future[Any]]:
        return [call for model in self._models for call in model.in_progress]
