"""A question in progress: its slot of the batch, and what one tick asks for and gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import search

from ..protocols import StepRequest, StepSample
from .arrays import of_slot
from .jobs import Job
from .results import Candidate, DecisionRow
from .tree import SearchTree


@dataclass(slots=True)
class Slot:
    """A question in progress."""

    job: Job
    tree: SearchTree
    records: list[Any] = field(default_factory=list)
    step: int = 0
    phase: int = 0
    used: int = 0
    valid_in_step: int = 0
    num_recorded: int = 0
    greedy: dict[int, StepSample] = field(default_factory=dict)  # of this step, by parent
    # Of this step, by parent and text: candidates that were not sent to the PRM.
    unscored: dict[tuple[int, str], list[Candidate]] = field(default_factory=dict)
    failure: str | None = None

    def of_equal_text(self, candidate: Candidate) -> list[Candidate]:
        """The candidate, and those of equal text and parent that were not sent to the PRM."""
        return [candidate, *self.unscored.get((candidate.parent, candidate.text), ())]


@dataclass(slots=True)
class Asked:
    """A request for children, the slot and pool rows of its children, and perhaps the child.

    A greedy child of a node that has one already is a copy, for which the policy is not called.
    """

    slot: int
    parent_slot: int
    parent: int
    first_row: int
    scored: bool
    score_ends: bool
    request: StepRequest
    copy: StepSample | None = None


@dataclass(frozen=True, slots=True)
class NewCandidate:
    """A sampled candidate, its slot, its row of the expansion, and its parent's frontier slot."""

    slot: int
    row: int
    parent_slot: int
    candidate: Candidate


@dataclass(slots=True)
class Grown:
    """All candidates that the questions in `slots` requested, and those that need scores."""

    slots: list[int]
    candidates: list[NewCandidate]
    to_score: list[NewCandidate]


def decision_rows(slot: Slot, observed: dict[str, Any], index: int) -> Iterator[DecisionRow]:
    """The decisions that a question's nodes took in this tick."""
    decision: search.Decision = of_slot(observed["output"].report, index)
    request: search.Request = of_slot(observed["request"], index)
    for node_slot in np.flatnonzero(decision.valid):
        yield DecisionRow(
            step=slot.step,
            phase=slot.phase,
            node=int(request.embedding[node_slot]),
            features=tuple(float(value) for value in decision.features[node_slot]),
            action=int(decision.action[node_slot]),
            num_extra=int(decision.num_extra[node_slot]),
            num_retain=int(decision.num_retain[node_slot]),
            temperature=float(request.temperature[node_slot]),
            top_p=float(request.top_p[node_slot]),
            top_k=int(request.top_k[node_slot]),
            granted=int(request.num_samples[node_slot]),
            reward=float(decision.reward[node_slot]),
        )
