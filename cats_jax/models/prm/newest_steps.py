"""Checks of paths by the rules of `StepScorer`, which all PRM bridges make before any work."""

from __future__ import annotations

from typing import NoReturn

from ...errors import ScorerContractError
from ...protocols import Path, Question


def check_steps(question: Question, path: Path, name: str) -> None:
    """Raise ScorerContractError if a path has no step, or a blank one."""
    if not path:
        broken(question, 0, "the path has no step", name)
    for index, step in enumerate(path):
        if not step.text.strip():
            broken(question, index, "the step is blank", name)


def check_score(score: float, question: Question, step: int, name: str) -> None:
    """Raise ScorerContractError if a score is not a number in [0, 1]."""
    if not 0.0 <= score <= 1.0:  # False for NaN, too
        broken(question, step, f"the score is {score}, expected [0, 1]", name)


def broken(
    question: Question,
    step: int,
    reason: str,
    name: str,
    kind: type[ScorerContractError] = ScorerContractError,
) -> NoReturn:
    """Raise an error that names the PRM, the question and the step."""
    raise kind(
        f"PRM {name!r}, question {question.id!r}, step {step}: {reason}",
        question_id=question.id,
        step=step,
    )
