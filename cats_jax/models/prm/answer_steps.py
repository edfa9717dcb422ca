"""What a PRM reads of a path with thoughts: by default the steps of the answer only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ...grading.thinking import MARKS, outside_thinking
from ...protocols import AnswerScoring, Path, Question, Scoring, TokenUsage

IN_THOUGHT, NO_ANSWER = 1.0, 0.0
"""Scores of steps without a text for the PRM: within a thought, and after one that is closed.

A step of a thought must not lower the minimum or the product of a path. A path that ends after its
thought has no answer.
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


def score_answer_steps(
    score: Callable[[Sequence[Question], Sequence[Path]], Scoring],
    questions: Sequence[Question],
    paths: Sequence[Path],
) -> Scoring:
    """`StepScorer.score` by a PRM that reads the steps of `answer_steps`.

    A step that it does not read costs nothing.
    """
    read = [answer_steps(path) for path in paths]
    asked = [i for i, (_, fixed) in enumerate(read) if not fixed or fixed[-1] is None]
    scoring = score([questions[i] for i in asked], [read[i][0] for i in asked])
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


def score_whole_answers(
    score: Callable[[Sequence[Question], Sequence[Path], Sequence[int]], AnswerScoring],
    questions: Sequence[Question],
    paths: Sequence[Path],
    known: Sequence[int],
) -> AnswerScoring:
    """`AnswerScorer.score_answers` by a PRM that reads the steps of `answer_steps`."""
    read = [answer_steps(path) for path in paths]
    before = [fixed[:count].count(None) for (_, fixed), count in zip(read, known, strict=True)]
    scoring = score(questions, [path for path, _ in read], before)
    scores: list[list[float | None]] = []
    for (_, fixed), count, found in zip(read, known, scoring.scores, strict=True):
        left = iter(found)
        scores.append([next(left) if each is None else each for each in fixed[count:]])
    return dataclasses.replace(scoring, scores=scores)
