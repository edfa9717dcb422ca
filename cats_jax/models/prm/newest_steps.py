"""Checks of paths by the rules of `StepScorer`, which all PRM bridges make before any work."""

from __future__ import annotations

from typing import NoReturn

from ...errors import PathTooLongError, ScorerContractError
from ...protocols import Path, Question
from .answer_encoder import AnswerEncoder
from .encoder import StepEncoder
from .judge_text import JudgeEncoder


def checked_chunks(
    encoder: StepEncoder | AnswerEncoder | JudgeEncoder,
    question: Question,
    path: Path,
    *,
    context: int,
    name: str,
) -> list[tuple[int, ...]]:
    """The chunks of ids of the prompt and of each step, or of the whole answer.

    Args:
        encoder: encoder for the PRM's format and tokenizer.
        question, path: what is to be scored.
        context: largest number of tokens that the model can read.
        name: name of the PRM, for error messages.

    Raises:
        ScorerContractError: a path without steps, or a blank step.
        PathTooLongError: more tokens than the context.
    """
    check_steps(question, path, name)
    chunks = encoder.chunks(question.text, [step.text for step in path])
    total = 0
    for index, chunk in enumerate(chunks, start=len(path) - len(chunks)):
        total += len(chunk)
        if total > context:
            reason = f"the path has {total} tokens here, the context {context}"
            broken(question, max(0, index), reason, name, PathTooLongError)
    return chunks


def check_steps(question: Question, path: Path, name: str) -> None:
    """Raise ScorerContractError if a path has no step, or a blank one."""
    if not path:
        broken(question, 0, "the path has no step", name)
    for index, step in enumerate(path):
        if not step.text.strip():
            broken(question, index, "the step is blank", name)


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
