"""What a PRM reads of a path with thoughts: by default the steps of the answer only."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from ...errors import ScorerContractError
from ...grading.thinking import MARKS, outside_thinking
from ...protocols import AnswerScoring, Path, Question, Scoring, TokenUsage

IN_THOUGHT, NO_ANSWER = 1.0, 0.0
"""Scores of steps without a text for the PRM: within a thought, and after one that is closed.

A step of a thought must not lower a path's minimum or product. A closed thought alone has no
answer.
"""


def answer_steps(path: Path) -> tuple[Path, list[float | None]]:
    """The steps of a path outside of thoughts.

    Returns:
        The steps that have a text there, with this text; a path without tags as it is. For each
        step of the path the score that it has without the PRM; None for a step that the PRM reads.
    """
    if not any(mark in step.text for step in path for mark in MARKS):
        return path, [None] * len(path)
    read, fixed = [], []
    for step, (text, is_open) in zip(
        path, outside_thinking([step.text for step in path]), strict=True
    ):
        if text == step.text or text.strip():
            read.append(step if text == step.text else dataclasses.replace(step, text=text.strip()))
            fixed.append(None)
        else:
            fixed.append(IN_THOUGHT if is_open else NO_ANSWER)
    return tuple(read), fixed


@contextlib.contextmanager
def counted_as_given(questions: Sequence[Question], paths: Sequence[Path]) -> Iterator[None]:
    """Make errors of the `with` block name a step by its place in its path, thoughts included.

    Args:
        questions, paths: the questions, and their paths before `answer_steps`. If the step of an
            error may be at several places in a question's paths, the message names all of them.

    Raises:
        ScorerContractError: the error of the block, with the place in `step`.
    """
    try:
        yield
    except ScorerContractError as error:
        own = [path for q, path in zip(questions, paths, strict=True) if q.id == error.question_id]
        places = sorted({place for path in own for place in _places(path, error.step)})
        if error.step is None or places in ([], [error.step]):
            raise
        named = " or ".join(map(str, places))
        text = str(error).replace(f"step {error.step}:", f"step {named}:", 1)
        raise type(error)(text, question_id=error.question_id, step=places[0]) from error


def _places(path: Path, step: int | None) -> list[int]:
    """The place in a path of the step with this number among those that a PRM reads; or none."""
    read = [place for place, score in enumerate(answer_steps(path)[1]) if score is None]
    return [] if step is None else read[step : step + 1]


class AnswerStepScorer(abc.ABC):
    """A `StepScorer` that reads the steps of `answer_steps`; other steps are free.

    Args:
        thoughts: whether the PRM reads the thoughts in a path's steps, too.
    """

    def __init__(self, *, thoughts: bool):
        self._reads_thoughts = thoughts

    def count_tokens(self, question: Question, path: Path) -> int:
        """Number of tokens of a path as the model reads it, prompt included.

        Raises:
            ScorerContractError: a path without steps, a blank step, or a path longer than the
                model's context.
        """
        if self._reads_thoughts:
            return self._count_tokens(question, path)
        with counted_as_given([question], [path]):
            return self._count_tokens(question, answer_steps(path)[0] or path)

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Scores the last step of each path; see `StepScorer.score`, and the class for usage.

        Raises:
            ValueError: not one question per path.
            ScorerContractError: a path without steps, or a blank step, both before any work; or see
                the class.
            RunStoppedError: see the class.
        """
        if len(questions) != len(paths):
            raise ValueError(f"{len(questions)} questions for {len(paths)} paths")
        if self._reads_thoughts:
            return self._score(questions, paths)
        read = [answer_steps(path) for path in paths]
        asked = [i for i, (_, fixed) in enumerate(read) if not fixed or fixed[-1] is None]
        with counted_as_given(questions, paths):
            scoring = self._score([questions[i] for i in asked], [read[i][0] for i in asked])
        if len(asked) == len(paths):
            return scoring
        scores = [fixed[-1] if fixed else None for _, fixed in read]
        usage, seconds = [TokenUsage()] * len(paths), [0.0] * len(paths)
        for place, i in enumerate(asked):
            scores[i], usage[i] = scoring.scores[place], scoring.usage[place]
            if scoring.seconds is not None:
                seconds[i] = scoring.seconds[place]
        return Scoring(
            scores, usage, scoring.inside_seconds, None if scoring.seconds is None else seconds
        )

    @abc.abstractmethod
    def _count_tokens(self, question: Question, path: Path) -> int:
        """`count_tokens` of a path whose steps are all read."""

    @abc.abstractmethod
    def _score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """`score` of paths whose steps are all read."""


def score_whole_answers(
    score: Callable[[Sequence[Question], Sequence[Path], Sequence[int]], AnswerScoring],
    questions: Sequence[Question],
    paths: Sequence[Path],
    known: Sequence[int],
) -> AnswerScoring:
    """`AnswerScorer.score_answers` by a PRM that reads the steps of `answer_steps`."""
    read = [answer_steps(path) for path in paths]
    before = [fixed[:count].count(None) for (_, fixed), count in zip(read, known, strict=True)]
    with counted_as_given(questions, paths):
        scoring = score(questions, [path for path, _ in read], before)
    scores: list[list[float | None]] = []
    for (_, fixed), count, found in zip(read, known, scoring.scores, strict=True):
        left = iter(found)
        scores.append([next(left) if each is None else each for each in fixed[count:]])
    return dataclasses.replace(scoring, scores=scores)
