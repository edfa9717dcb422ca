"""Choice of the judge of a run, and verdicts on the answers of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..protocols import AnswerJudge
from ..specs.recipe import QuestionSpec
from .boxed_integer import BoxedIntegerJudge
from .judge import Grade, MathJudge


def needs_math(questions: Iterable[QuestionSpec]) -> bool:
    """Whether any question is not the embedded world's, whose answers are integers in a box."""
    return any(spec.world is None for spec in questions)


def default_judge(questions: Iterable[QuestionSpec]) -> AnswerJudge:
    """The judge of the answers to a recipe's questions."""
    return make_judge("math" if needs_math(questions) else "integer")


def recorded_grader(config: Mapping[str, Any]) -> str:
    """The grader that `default_judge` chose for a run, from the configuration in its manifest."""
    specs = config["questions"]
    specs = specs if isinstance(specs, list) else [specs]
    return "integer" if all(spec.get("world") for spec in specs) else "math"


def make_judge(grader: str) -> AnswerJudge:
    """The judge of a grader: "math" for LaTeX, "integer" for integers in a box."""
    return MathJudge() if grader == "math" else BoxedIntegerJudge()


def grade_answer(
    judge: AnswerJudge, answer: str | None, gold: str, tolerance: float | None
) -> Grade:
    """The verdict on one answer; a missing answer (None) is wrong."""
    if answer is None:
        return Grade(False)
    if isinstance(judge, MathJudge):
        return judge.compare(answer, gold, tolerance)
    return Grade(judge.equivalent(answer, gold))


def is_covered(
    judge: AnswerJudge, answers: Iterable[str | None], gold: str, tolerance: float | None
) -> bool:
    """Whether any of `answers`, those of the finished paths, is right."""
    return any(
        grade_answer(judge, answer, gold, tolerance).correct for answer in dict.fromkeys(answers)
    )
