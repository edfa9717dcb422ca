"""Calls of the policy: one for all questions, or one per question if the policy is concurrent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any

from ..errors import GeneratorContractError
from ..protocols import Generation, StepGenerator, facts_of
from .accounting import charge_generation
from .calls import generate
from .model_calls import ModelCalls
from .new_candidates import NewCandidates
from .pending_requests import PendingRequest
from .slots import Slot, in_order
from .timings import Stopwatch


class PolicyCalls(ModelCalls[StepGenerator, Generation, list[PendingRequest]]):
    """Calls of the policy in progress, with their requests.

    The requests include copies, for which the policy is not called.
    """

    def slots(self, *, running: bool = False) -> set[Slot]:
        """Slots with a call in progress; `running`: without those whose call has ended."""
        return {
            asked.slot
            for call, requests in self.in_progress.items()
            if not (running and call.done())
            for asked in requests
        }

    def begin(self, requests: Sequence[PendingRequest], busy: Stopwatch) -> None:
        """Begin the calls for `requests`."""
        groups: dict[int, list[PendingRequest]] = {}
        alone = facts_of(self._model).concurrent
        for asked in requests:
            group = asked.slot.index if alone else 0
            groups.setdefault(group, []).append(asked)
        with busy("policy"):
            self.tell()
            for each in groups.values():
                self.in_progress[self._call(each)] = each

    def sampled(self, done: Collection[Future[Any]]) -> list[Future[Generation]]:
        """The calls in progress that are in `done`.

        Raises:
            Exception: the error of a call. A broken contract is not raised; it fails a question.
        """
        sampled = [call for call in self.in_progress if call in done]
        for call in sampled:
            if not isinstance(call.exception(), GeneratorContractError):
                call.result()
        return sampled

    def finish(self, calls: Sequence[Future[Generation]], busy: Stopwatch) -> NewCandidates:
        """Add the samples of finished calls to the trees, and charge for the calls."""
        new = NewCandidates()
        made: list[tuple[list[PendingRequest], Generation]] = []
        for call in calls:
            requests = self.in_progress.pop(call)
            new.slots += in_order(asked.slot for asked in requests)
            made += self._generated(call, requests, busy)
        for requests, generation in made:
            busy.inside("policy", generation.inside_seconds)
            charge_generation(requests, generation, self._model.num_parameters)
            new.add(requests, generation)
        return new

    def _call(self, requests: Sequence[PendingRequest]) -> Future[Generation]:
        sent = [asked.request for asked in requests if asked.copy is None]
        if not sent:
            nothing: Future[Generation] = Future()
            nothing.set_result(Generation([], [], 0.0))
            return nothing
        return self._executor.submit(generate, self._model, sent)

    def _generated(
        self, call: Future[Generation], requests: list[PendingRequest], busy: Stopwatch
    ) -> list[tuple[list[PendingRequest], Generation]]:
        """What a finished call returned, with its requests.

        If the call broke the contract, the policy is called again for each question, so that only
        the question at fault fails. No question is charged for the broken call.
        """
        try:
            return [(requests, call.result())]
        except GeneratorContractError as error:
            slots = in_order(asked.slot for asked in requests)
            if len(slots) == 1:
                slots[0].failure = str(error)
                return []
        self.take_back(slots)
        made: list[tuple[list[PendingRequest], Generation]] = []
        for slot in slots:
            own = [asked for asked in requests if asked.slot is slot]
            with busy("policy"):
                again = self._call(own)
            made += self._generated(again, own, busy)
        return made
