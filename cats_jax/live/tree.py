"""The host's side of one search: texts, ids and costs of the question's tree.

The core identifies a path by an integer, its `embedding`: the id of the path's newest candidate in
the tree. Pruning moves these ids between rows of the core's arrays and leaves the tree unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..protocols import AnswerGrader, Path, Question, Step, StepSample, confidence
from .ledger import Ledger
from .results import PRM_CONTEXT, ROOT, Candidate, DecisionRow


class SearchTree:
    """All candidates of one question, and the classes of their texts and answers."""

    def __init__(self, question: Question, grader: AnswerGrader) -> None:
        self.question = question
        self.candidates: list[Candidate] = []
        self.decisions: list[DecisionRow] = []
        self.ledger = Ledger()
        self._grader = grader
        self._paths: dict[int, Path] = {ROOT: ()}
        # Path and answer of each distinct continuation of a node: samples are often equal.
        self._continued: dict[tuple[int, int, str], tuple[StepSample, Path, str | None, bool]] = {}
        self._certainties: dict[int, np.ndarray] = {}  # of the tokens of each candidate
        self._text_class: dict[str, int] = {}
        self._answers = AnswerClasses(grader)

    def add(
        self, parent: int, sample: StepSample, *, step: int, phase: int, pool_row: int
    ) -> Candidate:
        """Append a sampled step; a child of a finished path is a rewrite of that path.

        Returns:
            The new candidate. `invalid` says whether it is usable, `done` whether it ends its path.
        """
        rewrites = parent if self.is_finished(parent) else None
        parent = parent if rewrites is None else ROOT
        candidate = Candidate(
            id=len(self.candidates) + 1,
            parent=parent,
            step=step,
            phase=phase,
            pool_row=pool_row,
            text=sample.step.text,
            token_ids=sample.step.token_ids,
            num_tokens=sample.num_tokens,
            log_prob=sample.log_prob,
            invalid=why_invalid(sample),
            rewrites=rewrites,
        )
        self.candidates.append(candidate)
        if sample.certainties is not None:
            self._certainties[candidate.id] = np.asarray(sample.certainties, np.float32)
        if candidate.invalid is None:
            path, candidate.answer, candidate.done = self._continue(parent, sample)
            self._paths[candidate.id] = path
        return candidate

    def is_finished(self, node: int) -> bool:
        """Whether a node ends its path."""
        return node != ROOT and self.candidates[node - 1].done

    def refuse(self, candidate: Candidate) -> None:
        """Make a candidate invalid because the PRM can't read its path."""
        candidate.invalid, candidate.answer, candidate.done = PRM_CONTEXT, None, False
        del self._paths[candidate.id]

    def path(self, node: int) -> Path:
        """Steps from the question to a valid candidate."""
        path = self._paths.get(node)
        if path is None:  # a strategy with a memory may return to a path that was forgotten
            path = tuple(candidate_step(self.candidates[each - 1]) for each in self.nodes(node))
        return path

    def token_certainties(self, node: int) -> np.ndarray:
        """Certainties of the tokens from the question to a candidate, f32[tokens]."""
        return np.concatenate([self._certainties[each] for each in self.nodes(node)])

    def nodes(self, node: int) -> list[int]:
        """Candidate ids from the first step to `node`."""
        ids: list[int] = []
        while node != ROOT:
            ids.append(node)
            node = self.candidates[node - 1].parent
        return ids[::-1]

    def text_class(self, text: str) -> int:
        """Number of a step text, from 0 in order of appearance; equal texts have equal numbers."""
        return self._text_class.setdefault(text, len(self._text_class))

    def answer_class(self, answer: str | None) -> int:
        """Class of equivalent answers, from 0; -1 for None."""
        return -1 if answer is None else self._answers.number(answer)

    def forget_steps_outside(self, live: Sequence[int]) -> list[Path]:
        """Drop the stored paths of all nodes but `live` and their ancestors; returns live paths."""
        keep = {ROOT}
        for node in live:
            keep.update(self.nodes(node))
        self._paths = {node: path for node, path in self._paths.items() if node in keep}
        self._continued.clear()
        return [self.path(node) for node in live]

    def _continue(self, parent: int, sample: StepSample) -> tuple[Path, str | None, bool]:
        """The path that ends in a valid sample, its answer, and whether it is done."""
        key = (parent, id(sample.step), sample.finish)  # the sample in `found` keeps the id valid
        found = self._continued.get(key)
        if found is None:
            path = (*self.path(parent), sampled_step(sample))
            found = (sample, path, *answer_and_end(self._grader, path, sample))
            self._continued[key] = found
        return found[1:]


class AnswerClasses:
    """Numbers of classes of equivalent answers, in order of appearance."""

    def __init__(self, grader: AnswerGrader) -> None:
        self._grader = grader
        self._numbers: dict[str, int] = {}
        self._representatives: list[str] = []

    def number(self, answer: str) -> int:
        """The answer's class, from 0; a new text is compared with one answer per class."""
        if answer not in self._numbers:
            for number, representative in enumerate(self._representatives):
                if self._grader.equivalent(representative, answer):
                    self._numbers[answer] = number
                    break
            else:
                self._numbers[answer] = len(self._representatives)
                self._representatives.append(answer)
        return self._numbers[answer]


def sampled_step(sample: StepSample) -> Step:
    """The step of a sample as part of a path, with the policy's confidence in it."""
    step = sample.step
    return Step(step.text, step.token_ids, confidence(sample.log_prob, sample.num_tokens))


def candidate_step(candidate: Candidate) -> Step:
    """The step of a candidate as part of a path; it may lack token ids if the tree was stored."""
    known = confidence(candidate.log_prob, candidate.num_tokens)
    return Step(candidate.text, tuple(candidate.token_ids or ()), known)


def why_invalid(sample: StepSample) -> str | None:
    """Why a sampled step can't be used: its finish or "blank"; None if it can be used."""
    if sample.finish in ("length", "context"):
        return sample.finish
    return None if sample.step.text.strip() else "blank"


def nothing_valid_in(candidates: Sequence[Candidate], step: int, *, last: bool) -> str:
    """Why a search failed whose candidates of one step are all invalid: the commonest reason.

    `last`: paths were sampled to their end in this step.
    """
    reasons = Counter(each.invalid for each in candidates if each.step == step and each.invalid)
    if not reasons:
        return f"step {step} has no candidate: the strategy requested none, or kept none before"
    reason, _ = max(reasons.items(), key=lambda item: item[1], default=(None, 0))
    limit = "max_answer_tokens" if last else "max_step_tokens"
    # A chat endpoint limits whole answers, and none of their steps.
    whole = "" if last else " (max_answer_tokens if a chat endpoint samples whole answers)"
    said = {
        "length": f"cut at {limit} tokens, raise the policy's {limit}{whole}",
        "context": "cut at the end of the policy's context, raise its max_model_len if it is set",
        PRM_CONTEXT: "longer than the PRM can read, take shorter steps or another PRM",
        "blank": "white space alone, check the policy's format and step_separator",
    }
    return f"every candidate of step {step} is invalid: {said.get(str(reason), reason)}"


def answer_and_end(grader: AnswerGrader, path: Path, sample: StepSample) -> tuple[str | None, bool]:
    """The answer, or None, of a path whose last step is a valid sample, and whether it is done."""
    answer = grader.extract([step.text for step in path])
    # A closed answer ends the path even if the model would continue.
    return answer, sample.finish == "end" or answer is not None
