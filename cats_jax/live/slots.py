"""A question in progress: its record in a slot of the batch, and its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import search

from ..protocols import StepSample
from .arrays import of_slot
from .decisions import decision_rows
from .jobs import Job, SearchSettings
from .results import ROOT, Candidate, SearchResult, Status, path_of
from .tree import SearchTree, nothing_valid_in


@dataclass(slots=True, eq=False)
class Slot:
    """A question in progress.

    Attributes:
        index: its place in the arrays of the batch.
        job: the question, with its own values.
        tree: its search tree.
        reads_log_probs: whether its search reads log-probabilities of the policy.
        certainty: certainty of paths that its search reads, or None.
        reads_vectors: whether its search reads vectors of steps.
        records: what the recorder returned for each tick.
        step, phase: completed reasoning steps, and ticks within the one in progress.
        used: rows of the step's pool in use.
        valid_in_step: usable candidates of the step.
        num_recorded: number of the tree's candidates whose path scores are recorded.
        greedy: greedy children of this step, by parent.
        unscored: candidates of this step that were not sent to the PRM, by parent and text.
        failure: why the search failed, or None.
        answered: the last node that the search would have answered with, or None.
    """

    index: int
    job: Job
    tree: SearchTree
    reads_log_probs: bool
    certainty: search.certainty.Certainty | None
    reads_vectors: bool
    records: list[Any] = field(default_factory=list)
    step: int = 0
    phase: int = 0
    used: int = 0
    valid_in_step: int = 0
    num_recorded: int = 0
    greedy: dict[int, StepSample] = field(default_factory=dict)
    unscored: dict[tuple[int, str], list[Candidate]] = field(default_factory=dict)
    failure: str | None = None
    answered: int | None = None

    def tick(self, num_phases: int) -> int:
        """Number of phases since the question began."""
        return self.step * num_phases + self.phase

    def of_equal_text(self, candidate: Candidate) -> list[Candidate]:
        """The candidate, and those of equal text and parent that were not sent to the PRM."""
        return [candidate, *self.unscored.get((candidate.parent, candidate.text), ())]

    def alive(self, observed: dict[str, Any], part: str) -> list[int]:
        """Ids of the nodes in a part of the state, "frontier" or "finished"."""
        valid = observed[f"{part}_valid"][self.index]
        return [int(node) for node in observed[f"{part}_embedding"][self.index][valid]]

    def record(self, observed: dict[str, Any], num_phases: int) -> None:
        """Add a tick's record, decisions, path scores and kept candidates.

        `observed` is what `ticks.commit` returned, on the host.
        """
        index, tree = self.index, self.tree
        if "record" in observed:
            self.records += [None] * (self.tick(num_phases) - len(self.records))
            self.records.append(of_slot(observed["record"], index))
        tree.decisions.extend(decision_rows(observed, index, step=self.step, phase=self.phase))
        tree.ledger.unsolved += int(search.costs.unsolved(observed["output"].report, index))
        for candidate in tree.candidates[self.num_recorded :]:
            if candidate.score is not None:
                path_score = float(observed["output"].path_score[index, candidate.pool_row])
                for each in self.of_equal_text(candidate):
                    each.path_score = path_score
        self.num_recorded = len(tree.candidates)
        self.step = int(observed["step"][index])
        self.phase = int(observed["phase"][index])
        self.used = int(observed["used"][index])
        if self.phase == 0:
            self.greedy.clear()
            self.unscored.clear()
            for part in ("frontier", "finished"):
                for node in self.alive(observed, part):
                    if node != ROOT:
                        tree.candidates[node - 1].kept = True
        if (row := int(observed["chosen"][index])) >= 0:
            self.answered = self.alive(observed, "finished")[row]

    def end(self, observed: dict[str, Any], settings: SearchSettings) -> tuple[Status, str] | None:
        """How the search ended, failed or was stopped by a limit, and why; None if it continues."""
        terminal = observed["terminal"][self.index]
        nothing_valid = self.failure is None and self.phase == 0 and self.valid_in_step == 0
        # Paths that finished earlier still give an answer. A method with a memory may continue.
        over = nothing_valid and terminal
        if over and not self.alive(observed, "finished"):
            # A rewrite is a whole answer in any step.
            whole = settings.strategy.rewriting is not None
            # A step in which the method stops has no candidates.
            step = max((each.step for each in self.tree.candidates), default=self.step - 1)
            last = whole or step + 1 >= settings.max_depth
            self.failure = nothing_valid_in(self.tree.candidates, step, last=last)
        if self.failure is not None:
            return "failed", self.failure
        if terminal and observed["cut_by_budget"][self.index]:
            return "budget", f"budget of {self.job.inputs.budget} candidates spent"
        return ("answered", "") if terminal else settings.limits.exceeded(self.tree.ledger)

    def result(self, observed: dict[str, Any], status: Status, reason: str) -> SearchResult:
        """The result of a search that ended with this status; a failed search has no answer.

        A limit on tokens or seconds may come while the method has put its finished paths aside, as
        particle Gibbs does with its reference. The last answer before that then stands.
        """
        tree, row = self.tree, int(observed["chosen"][self.index])
        finished = self.alive(observed, "finished")
        if row < 0 and self.answered is not None and status in ("max_tokens", "max_seconds"):
            finished = [node for node in finished if node != self.answered]
            row = len(finished)
            finished.append(self.answered)
        chosen = None if row < 0 or status == "failed" else row
        paths = [path_of(tree.nodes(node), tree.candidates) for node in finished]
        answer = None if chosen is None else paths[chosen].answer
        return SearchResult(
            question=tree.question,
            answer=answer,
            chosen=chosen,
            status="no_answer" if status == "answered" and answer is None else status,
            reason=reason,
            steps=self.step,
            paths=paths,
            candidates=tree.candidates,
            decisions=tree.decisions,
            ledger=tree.ledger,
            records=self.records,
        )


def in_order(slots: Iterable[Slot]) -> list[Slot]:
    """Distinct slots, by their places in the batch."""
    return sorted(set(slots), key=lambda slot: slot.index)
