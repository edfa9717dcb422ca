"""The host's side of one search: texts, ids and costs of the question's tree.

The core knows a path by an integer, its `embedding`: the id of its newest candidate here. Pruning
moves these ids about in the graph; nothing on the host is ever re-aligned.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocols import AnswerJudge, Path, Question, Step, StepSample
from .ledger import Ledger
from .results import ROOT, Candidate, DecisionRow


class SearchTree:
    """All candidates of one question, and the classes of their texts and answers."""

    def __init__(self, question: Question, judge: AnswerJudge) -> None:
        """An empty tree."""
        self.question = question
        self.candidates: list[Candidate] = []
        self.decisions: list[DecisionRow] = []
        self.ledger = Ledger()
        self._judge = judge
        self._paths: dict[int, Path] = {ROOT: ()}
        self._text_class: dict[str, int] = {}
        self._answer_class: dict[str, int] = {}
        self._representatives: list[str] = []

    def add(
        self, parent: int, sample: StepSample, *, step: int, phase: int, pool_row: int
    ) -> Candidate:
        """Append a sampled step; says whether it is usable and whether it ends an answer."""
        candidate = Candidate(
            id=len(self.candidates) + 1,
            parent=parent,
            step=step,
            phase=phase,
            pool_row=pool_row,
            text=sample.step.text,
            token_ids=sample.step.token_ids,
            num_tokens=len(sample.step.token_ids),
            log_prob=sample.log_prob,
            invalid=_why_invalid(sample),
        )
        self.candidates.append(candidate)
        if candidate.invalid is None:
            self._paths[candidate.id] = (*self.path(parent), sample.step)
            answer = self._judge.extract([step.text for step in self.path(candidate.id)])
            # A closed answer ends the path even where the model would go on talking.
            candidate.done = sample.finish == "end" or answer is not None
            candidate.answer = answer
        return candidate

    def path(self, node: int) -> Path:
        """Steps from the question to a valid candidate."""
        path = self._paths.get(node)
        # A strategy with a memory may come back to a path that was forgotten.
        return self._rebuild(node) if path is None else path

    def nodes(self, node: int) -> list[int]:
        """Candidate ids from the first step to `node`."""
        ids: list[int] = []
        while node != ROOT:
            ids.append(node)
            node = self.candidates[node - 1].parent
        return ids[::-1]

    def text_class(self, text: str) -> int:
        """Equal for equal step texts."""
        return self._text_class.setdefault(text, len(self._text_class))

    def answer_class(self, answer: str | None) -> int:
        """Class of equivalent answers, -1 for None; each new text meets one answer per class."""
        if answer is None:
            return -1
        if answer not in self._answer_class:
            for index, representative in enumerate(self._representatives):
                if self._judge.equivalent(representative, answer):
                    self._answer_class[answer] = index
                    break
            else:
                self._answer_class[answer] = len(self._representatives)
                self._representatives.append(answer)
        return self._answer_class[answer]

    def forget_steps_outside(self, live: Sequence[int]) -> list[Path]:
        """Drop the step objects of paths that can't grow any more; returns the live paths."""
        keep = {ROOT}
        for node in live:
            keep.update(self.nodes(node))
        self._paths = {node: path for node, path in self._paths.items() if node in keep}
        return [self.path(node) for node in live]

    def _rebuild(self, node: int) -> Path:
        steps = [self.candidates[index - 1] for index in self.nodes(node)]
        return tuple(Step(step.text, step.token_ids) for step in steps)


def _why_invalid(sample: StepSample) -> str | None:
    if sample.finish in ("length", "context"):
        return sample.finish
    return None if sample.step.text.strip() else "blank"
