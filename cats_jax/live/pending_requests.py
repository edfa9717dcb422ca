"""Turns the core's request of a slot into requests for steps, which the policy understands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

import search

from ..protocols import StepRequest, StepSample, TokenCertainty
from .seeds import candidate_seed
from .slots import Slot


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request for children of one node.

    The policy samples a node's greedy child once; later greedy children are copies of it.

    Attributes:
        slot: slot of the question.
        parent_slot: the node's slot of the frontier.
        parent: id of the node.
        first_row: pool row of the first child.
        scored: whether the PRM is to score the children.
        score_ends: whether the PRM is to score the children that end their paths.
        request: the request to the policy.
        copy: the node's earlier greedy child, or None.
    """

    slot: Slot
    parent_slot: int
    parent: int
    first_row: int
    scored: bool
    score_ends: bool
    request: StepRequest
    copy: StepSample | None


def pending_requests(slot: Slot, request: search.Request) -> Iterator[PendingRequest]:
    """The requests of an open slot; `request` has those of all slots, NumPy arrays `[B, F]`."""
    index, job, row = slot.index, slot.job, slot.used
    certainty = None if slot.certainty is None else cast(TokenCertainty, slot.certainty.token)
    for parent_slot in np.flatnonzero(request.num_samples[index]):
        at = (index, parent_slot)
        count, parent = int(request.num_samples[at]), int(request.embedding[at])
        seeds = tuple(
            candidate_seed(job.seed, job.seed_name, slot.step, slot.phase, row + offset)
            for offset in range(count)
        )
        step_request = StepRequest(
            question=slot.tree.question,
            path=slot.tree.path(parent),
            seeds=seeds,
            temperature=float(request.temperature[at]),
            top_p=float(request.top_p[at]),
            top_k=int(request.top_k[at]),
            to_end=bool(request.to_end[at]),
            rewrites=slot.tree.is_finished(parent),
            certainty=certainty,
            vectors=slot.reads_vectors,
        )
        yield PendingRequest(
            slot=slot,
            parent_slot=int(parent_slot),
            parent=parent,
            first_row=row,
            scored=bool(request.scored[at]),
            score_ends=bool(request.score_ends[at]),
            request=step_request,
            copy=slot.greedy.get(parent) if step_request.temperature == 0.0 else None,
        )
        row += count
