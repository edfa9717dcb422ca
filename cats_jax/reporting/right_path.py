"""Where a search lost the right path, as far as the truth is known.

The embedded world's task checks every step, so it is known at which step the last right path was
lost. For other questions the gold answer shows only which finished paths are right.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .. import world
from ..live.results import ROOT, Candidate, SearchResult
from ..protocols import AnswerGrader
from ..runs.folder import Row, RunFolder
from ..world import task
from .finished_paths import path_grades
from .plain_text import one_line

Cause = Literal["none", "choice", "dropped", "not sampled", "not continued", "unknown"]
"""Why an answer is wrong.

`none`: it is right. `choice`: a finished path is right, but another one was chosen. `dropped`: a
right step was sampled but not kept, and no other right path remained. `not sampled`: a right path
was continued, but no sample was right. `not continued`: the search ended while a right path was
kept. `unknown`: no finished path is right, and the truth of steps is not known.
"""

_MAX_TEXT = 40
_MAX_KEPT = 3


@dataclass(frozen=True)
class RightPath:
    """The fate of the right path in a search.

    Attributes:
        cause: see `Cause`.
        knows_steps: whether the truth of each step is known, not only that of finished paths.
        step: reasoning step, from 0, at which the right path was lost. None if it is not known, or
            if the path was not lost before the choice.
        sentence: what happened, in words that are safe to print.
        remarks: short texts for the candidates that a drawing should mark, by id.
    """

    cause: Cause
    knows_steps: bool
    step: int | None = None
    sentence: str = ""
    remarks: Mapping[int, str] = field(default_factory=dict)

    @property
    def knowledge(self) -> str:
        """One sentence on what is known of right and wrong, and how."""
        if self.knows_steps:
            return (
                "Right and wrong steps are known from the embedded world's task, which checks them."
            )
        return "Right and wrong are known of finished paths only, by their answers, not of steps."

    @property
    def summary(self) -> str:
        """A few words for a table."""
        if self.step is not None:
            return f"{self.cause} at step {self.step + 1}"
        words: Mapping[Cause, str] = {"choice": "lost by the choice", "unknown": "no right path"}
        return words.get(self.cause, "")


def follow_right_path(
    run: RunFolder, row: Row, result: SearchResult, grader: AnswerGrader
) -> RightPath:
    """The fate of the right path in the search behind a row with a tree, `result`.

    Finished paths are graded by `grader` where steps can't be checked.
    """
    right = right_candidates(run, row, result)
    if right is None:
        return _of_answers(row, result, grader)
    return _of_steps(row, result, right)


def right_candidates(run: RunFolder, row: Row, result: SearchResult) -> frozenset[int] | None:
    """Ids of the candidates whose path is right up to and including them.

    None unless the task's checker applies: the policy is one of the embedded world's, and the
    question is one of that world's expressions with this gold answer.
    """
    if run.manifest["config"]["policy"].get("path") not in world.POLICY_NAMES:
        return None
    try:
        checker = task.StepChecker(result.question.text)
    except ValueError:
        return None
    if checker.answer != row.gold:
        return None
    checkers = {ROOT: checker}
    for candidate in result.candidates:
        parent = checkers.get(candidate.parent)
        if parent is None or not candidate.text:
            continue
        checker = copy.copy(parent)
        # The last step of a search continues to the end of the answer and may hold several steps.
        if all(checker.accept(step) for step in candidate.text.split(task.STEP_SEPARATOR)):
            checkers[candidate.id] = checker
    return frozenset(checkers) - {ROOT}


def _of_answers(row: Row, result: SearchResult, grader: AnswerGrader) -> RightPath:
    if row.correct:
        return RightPath("none", False, sentence="The answer is right.")
    # A grader of another release, or at its limits, may find no right path in a covered row.
    grades = path_grades(row, result, grader) if row.covered else {}
    right = [path.nodes[-1] for path in result.paths if grades.get(path.answer)]
    if not right:
        count = len(result.paths)
        what = "No path finished." if not count else f"None of {count} finished paths is right."
        return RightPath("unknown", False, sentence=what)
    return RightPath(
        "choice",
        False,
        sentence=_choice(result, right),
        remarks=dict.fromkeys(right, "right, not chosen"),
    )


def _of_steps(row: Row, result: SearchResult, right: frozenset[int]) -> RightPath:
    ends = [path.nodes[-1] for path in result.paths if path.nodes[-1] in right and path.answer]
    wrong = {
        candidate.id: "first wrong step"
        for candidate in result.candidates
        if candidate.kept
        and candidate.id not in right
        and (candidate.parent == ROOT or candidate.parent in right)
    }
    chosen = () if result.chosen is None else result.paths[result.chosen].nodes
    slip = next((place for place, node in enumerate(chosen) if node not in right), None)
    if row.correct:
        what = "The answer is right, and so is every step of its path."
        if slip is not None:
            what = f"The answer is right, although step {slip + 1} of its path is wrong."
        return RightPath("none", True, sentence=what, remarks=wrong)
    if ends:
        what = _choice(result, ends)
        if slip is not None:
            what += f" Its first wrong step is step {slip + 1}."
        remarks = {**wrong, **dict.fromkeys(ends, "right, not chosen")}
        return RightPath("choice", True, sentence=what, remarks=remarks)
    cause, step, what, remarks = _loss(result, right)
    kept = [c for c in result.candidates if c.kept and c.step == step]
    if kept:
        what += f" Kept at that step: {_list(kept)}."
    if cause == "dropped":
        what += _comparison(
            [c for c in result.candidates if c.id in right and c.step == step], kept
        )
    return RightPath(cause, True, step=step, sentence=what, remarks={**wrong, **remarks})


def _loss(result: SearchResult, right: frozenset[int]) -> tuple[Cause, int, str, dict[int, str]]:
    """Cause, step from 0, sentence and remarks of a search without a right finished path."""
    kept = [c for c in result.candidates if c.id in right and c.kept]
    last = max((c.step for c in kept), default=-1)
    dropped = [c for c in result.candidates if c.id in right and c.step > last]
    if dropped:
        step = min(c.step for c in dropped)
        here = [c for c in dropped if c.step == step]
        what = (
            f"The right path was lost at step {step + 1}: {_samples(len(here))} right, "
            f"and dropped: {_list(here)}."
        )
        best = max(here, key=_score)
        remark = "the right path was lost here: right, and dropped"
        return "dropped", step, what, {best.id: remark}
    parents = {c.id for c in kept} or {ROOT}
    tried = [c for c in result.candidates if c.parent in parents and c.step > last]
    if tried:
        step = min(c.step for c in tried)
        count = sum(c.step == step for c in tried)
        what = f"The right path was lost at step {step + 1}: " + (
            f"none of {count} samples that continued a right path was right."
            if count > 1
            else "the one sample that continued a right path was wrong."
        )
        samples = f"none of {count} samples is right" if count > 1 else "the one sample is wrong"
        # The remark is at the lost step, on a kept sample if there is one.
        shown = max((c for c in tried if c.step == step), key=lambda c: (c.kept, _score(c)))
        return "not sampled", step, what, {shown.id: f"the right path was lost here: {samples}"}
    step = last + 1
    what = f"The search ended ({result.status}) before step {step + 1} of a right path was sampled."
    remark = f"right, and step {step + 1} was not sampled"
    tips = {c.id: remark for c in kept if c.step == last}
    return "not continued", step, what, tips or {ROOT: "not continued"}


def _comparison(dropped: Sequence[Candidate], kept: Sequence[Candidate]) -> str:
    """A sentence unless the best dropped step scored below all kept ones; "" otherwise."""
    best = max((c.path_score for c in dropped if c.path_score is not None), default=None)
    scores = [c.path_score for c in kept if c.path_score is not None]
    if best is None or not scores or best < min(scores):
        return ""
    if best == min(scores):
        return " The dropped step tied in score with a kept one."
    return " A step with a lower score than the dropped one was kept."


def _choice(result: SearchResult, right: Sequence[int]) -> str:
    best = max((result.candidates[node - 1] for node in right), key=_score)
    count, total = len(right), len(result.paths)
    what = f"The choice lost it: {count} of {total} finished paths {'is' if count == 1 else 'are'} "
    what += "right"
    if result.chosen is None:
        return f"{what}, and none was chosen."
    chosen = result.candidates[result.paths[result.chosen].nodes[-1] - 1]
    if best.path_score is None or chosen.path_score is None:
        return f"{what}, and another was chosen."
    return (
        f"{what}, with a score of {best.path_score:.3f} at best, and one of "
        f"{chosen.path_score:.3f} was chosen."
    )


def _list(candidates: Sequence[Candidate]) -> str:
    """Distinct texts of candidates with the score of their path, highest first."""
    distinct: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=_score, reverse=True):
        distinct.setdefault(candidate.text, candidate)
    shown = [_describe(candidate) for candidate in list(distinct.values())[:_MAX_KEPT]]
    more = len(distinct) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _describe(candidate: Candidate) -> str:
    text = f"`{one_line(candidate.text, _MAX_TEXT)}`"
    if candidate.invalid is not None:
        return f"{text} (invalid: {one_line(candidate.invalid, _MAX_TEXT)})"
    return text if candidate.path_score is None else f"{text} ({candidate.path_score:.3f})"


def _samples(count: int) -> str:
    return "one sample was" if count == 1 else f"{count} samples were"


def _score(candidate: Candidate) -> float:
    return -1.0 if candidate.path_score is None else candidate.path_score
