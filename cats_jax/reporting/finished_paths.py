"""Scores and truths of the finished paths in a run's trees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..grading.graders import grade_answer
from ..live.results import SearchResult
from ..protocols import AnswerGrader
from ..runs.folder import Row, RunFolder


@dataclass(frozen=True)
class FinishedPaths:
    """Finished paths that have an answer and a score.

    Attributes:
        scores: f64[n] in [0, 1], the path scores.
        truths: f64[n], 1 where the answer is right and 0 where it is not.
        questions: str[n], id of each path's question.
    """

    scores: np.ndarray
    truths: np.ndarray
    questions: np.ndarray


def finished_paths(run: RunFolder, rows: Iterable[Row], grader: AnswerGrader) -> FinishedPaths:
    """The finished paths of those rows that have a tree.

    Raises:
        BadInputError: a tree is damaged.
    """
    scores: list[float] = []
    truths: list[float] = []
    questions: list[str] = []
    for row in rows:
        if row.tree is None:
            continue
        result = run.tree(row)
        grades = path_grades(row, result, grader)
        for answer, score in scored_answers(result):
            scores.append(min(max(score, 0.0), 1.0))
            truths.append(float(grades[answer]))
            questions.append(row.question)
    return FinishedPaths(np.array(scores), np.array(truths), np.array(questions, str))


def path_grades(row: Row, result: SearchResult, grader: AnswerGrader) -> dict[str | None, bool]:
    """Whether each answer of the finished paths is right; a path without an answer has None."""
    return {
        answer: grade_answer(grader, answer, row.gold, row.tolerance).correct
        for answer in {path.answer for path in result.paths}
    }


def scored_answers(result: SearchResult) -> list[tuple[str, float]]:
    """(answer, score) of the finished paths that have both."""
    return [
        (path.answer, path.path_score)
        for path in result.paths
        if path.answer is not None and path.path_score is not None
    ]
