"""Calls of the PRM: each scores the newest steps of candidates of one or more questions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any

from ..errors import ScorerContractError
from ..protocols import Path, Question, Scoring, StepScorer
from .accounting import charge_scoring
from .calls import score
from .model_calls import ModelCalls
from .new_candidates import NewCandidate, NewCandidates
from .slots import Slot, in_order
from .timings import Stopwatch


class PRMCalls(ModelCalls[StepScorer, Scoring, NewCandidates]):
    """Calls of the PRM in progress, with their candidates, also those that need no score."""

    def slots(self, *, running: bool = False) -> set[Slot]:
        """Slots with a call in progress; `running`: without those whose call has ended."""
        return {
            slot
            for call, new in self.in_progress.items()
            if not (running and call.done())
            for slot in new.slots
        }

    def begin(self, new: NewCandidates, busy: Stopwatch) -> None:
        """Begin the call for `new.to_score`."""
        with busy("prm"):
            self.tell()
            call = self._executor.submit(score, self._model, *_paths(new.to_score))
            self.in_progress[call] = new

    def finish(self, done: Collection[Future[Any]], busy: Stopwatch) -> list[NewCandidates]:
        """Write the scores of the calls in `done` to their candidates, and charge for the calls."""
        finished = [call for call in self.in_progress if call in done]
        return [self._scored(call, busy) for call in finished]

    def _scored(self, call: Future[Scoring], busy: Stopwatch) -> NewCandidates:
        """The candidates of a finished call, with their scores.

        If the call broke the contract, the PRM is called again for each question, so that only the
        question at fault fails.
        """
        new = self.in_progress.pop(call)
        try:
            self._add(call.result(), new.to_score, busy)
        except ScorerContractError:
            slots = in_order(each.slot for each in new.to_score)
            self.take_back(slots, {each.candidate.id for each in new.to_score})
            for slot in slots:
                own = [each for each in new.to_score if each.slot is slot]
                try:
                    with busy("prm"):
                        scoring = score(self._model, *_paths(own))
                    self._add(scoring, own, busy)
                except ScorerContractError as error:
                    slot.failure = str(error)
        return new

    def _add(self, scoring: Scoring, scored: Sequence[NewCandidate], busy: Stopwatch) -> None:
        busy.inside("prm", scoring.inside_seconds)
        charge_scoring(scored, scoring, self._model.num_parameters)
        for new, value in zip(scored, scoring.scores, strict=True):
            if value is None:
                new.slot.tree.refuse(new.candidate)
            else:
                for candidate in new.slot.of_equal_text(new.candidate):
                    candidate.score = float(value)


def _paths(wanted: Sequence[NewCandidate]) -> tuple[list[Question], list[Path]]:
    trees = [new.slot.tree for new in wanted]
    paths = [tree.path(new.candidate.id) for tree, new in zip(trees, wanted, strict=True)]
    return [tree.question for tree in trees], paths
