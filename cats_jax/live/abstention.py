"""Answer or abstain: an answer is given if the score of its path reaches a threshold."""

from __future__ import annotations

import dataclasses

from .results import SearchResult


def answer_score(result: SearchResult) -> float | None:
    """Score of the path that gave the answer, in [0, 1]; None without an answer or a score."""
    if result.answer is None or result.chosen is None:
        return None
    return result.paths[result.chosen].path_score


def decided(result: SearchResult, threshold: float | None) -> SearchResult:
    """The result, without its answer if the answer's score is below `threshold`, in [0, 1].

    The threshold None gives all answers.

    Returns:
        The result itself, or a copy without answer and chosen path, with the status `no_answer`.
    """
    if threshold is None or result.answer is None:
        return result
    score = answer_score(result)
    if score is not None and score >= threshold:
        return result
    shown = "has no score" if score is None else f"has the score {score:.3f}"
    return dataclasses.replace(
        result,
        answer=None,
        chosen=None,
        status="no_answer",
        reason=f"abstains: its answer {shown}, and answers from {threshold:.3f} on are given",
    )
