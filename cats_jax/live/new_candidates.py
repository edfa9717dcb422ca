"""New candidates of a tick: added to the trees, then written to the rows of the expansion."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..protocols import Generation
from .path_certainty import path_certainty
from .pending_requests import PendingRequest
from .results import Candidate
from .slots import Slot
from .step_vectors import projected
from .tree import why_invalid


@dataclass(frozen=True, slots=True)
class NewCandidate:
    """A sampled candidate, its slot, its row of the expansion, and its parent's frontier slot.

    `vector` is the vector of its step, if the search reads vectors.
    """

    slot: Slot
    row: int
    parent_slot: int
    candidate: Candidate
    vector: np.ndarray | None


@dataclass(slots=True)
class NewCandidates:
    """All candidates that the questions in `slots` requested, and those that need scores."""

    slots: list[Slot] = field(default_factory=list)
    candidates: list[NewCandidate] = field(default_factory=list)
    to_score: list[NewCandidate] = field(default_factory=list)

    def add(self, requests: Sequence[PendingRequest], generation: Generation) -> None:
        """Add the samples of one call to the trees.

        `requests` includes the copies, for which `generation` has no samples.
        """
        sampled = iter(generation.samples)
        rows: defaultdict[int, itertools.count[int]] = defaultdict(itertools.count)
        for asked in requests:
            slot = asked.slot
            if asked.copy is None:
                children = next(sampled)
                if asked.request.temperature == 0.0:
                    slot.greedy[asked.parent] = children[0]
            else:
                children = [asked.copy] * len(asked.request.seeds)
            usable = (sample for sample in children if why_invalid(sample) is None)
            if slot.reads_log_probs and any(sample.log_prob is None for sample in usable):
                slot.failure = _NO_LOG_PROBS
            for pool_row, sample in enumerate(children, start=asked.first_row):
                candidate = slot.tree.add(
                    asked.parent, sample, step=slot.step, phase=slot.phase, pool_row=pool_row
                )
                vector = sample.vector if slot.reads_vectors else None
                row = next(rows[slot.index])
                new = NewCandidate(slot, row, asked.parent_slot, candidate, vector)
                self.candidates.append(new)
                asks = asked.scored or (asked.score_ends and candidate.done)
                if candidate.invalid is None and asks:
                    self.to_score.append(new)
                elif candidate.invalid is None:
                    slot.unscored.setdefault((candidate.parent, candidate.text), []).append(
                        candidate
                    )

    def write(self, arrays: dict[str, Any]) -> None:
        """Write the candidates into the arrays `[B, capacity]` of an expansion."""
        for new in self.candidates:
            slot, candidate, at = new.slot, new.candidate, (new.slot.index, new.row)
            arrays["parent"][at] = new.parent_slot
            arrays["num_tokens"][at] = candidate.num_tokens
            if candidate.invalid is not None:  # also where the PRM can't read the path
                continue
            slot.valid_in_step += 1
            arrays["valid"][at] = slot.failure is None
            arrays["score"][at] = candidate.score or 0.0
            arrays["done"][at] = candidate.done
            arrays["answer"][at] = slot.tree.answer_class(candidate.answer)
            arrays["text"][at] = slot.tree.text_class(candidate.text)
            # A strategy that reads a missing value must not take it for a probability of 1.
            arrays["log_prob"][at] = np.nan if candidate.log_prob is None else candidate.log_prob
            if slot.certainty is not None:
                tokens = slot.tree.token_certainties(candidate.id)
                arrays["certainty"][at] = path_certainty(tokens, slot.certainty)
            if new.vector is not None:
                arrays["vector"][at] = projected(new.vector)
            arrays["embedding"][at] = candidate.id


_NO_LOG_PROBS = (
    "the policy reports no log-probabilities, which the strategy reads: leave out the policy's "
    "log_probs=False, or take another strategy"
)
