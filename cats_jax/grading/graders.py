"""Choice of the grader of a run, and grades of the answers of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..protocols import AnswerGrader
from ..specs.recipe import QuestionSpec
from .boxed_integer import BoxedIntegerGrader
from .math_grader import Grade, MathGrader


def needs_math(questions: Iterable[QuestionSpec]) -> bool:
    """Whether any question is not the embedded world's, whose answers are integers in a box."""
    return any(spec.world is None for spec in questions)


def default_grader(questions: Iterable[QuestionSpec]) -> AnswerGrader:
    """The grader of the answers to a recipe's questions."""
    return make_grader("math" if needs_math(questions) else "integer")


def recorded_grader(config: Mapping[str, Any]) -> str:
    """The grader of a run's rows, "math" or "integer", from the configuration in its manifest.

    It is the grader of `rescore` if that has one of these names, otherwise the questions' grader.
    """
    name = (config.get("rescored") or {}).get("grader")
    return name if name in ("math", "integer") else questions_grader(config)


def questions_grader(config: Mapping[str, Any]) -> str:
    """The grader that `default_grader` chose for a run, from the configuration in its manifest."""
    specs = config["questions"]
    specs = specs if isinstance(specs, list) else [specs]
    return "integer" if all(spec.get("world") for spec in specs) else "math"


def make_grader(name: str) -> AnswerGrader:
    """The grader of a name: "math" for LaTeX, "integer" for integers in a box."""
    return MathGrader() if name == "math" else BoxedIntegerGrader()


def grade_answer(
    grader: AnswerGrader, answer: str | None, gold: str, tolerance: float | None
) -> Grade:
    """The grade of one answer; a missing answer (None) is wrong."""
    if answer is None:
        return Grade(False)
    if isinstance(grader, MathGrader):
        return grader.grade_answer(answer, gold, tolerance)
    return Grade(grader.equivalent(answer, gold))


def is_covered(
    grader: AnswerGrader, answers: Iterable[str | None], gold: str, tolerance: float | None
) -> bool:
    """Whether any of `answers`, those of the finished paths, is right."""
    return any(
        grade_answer(grader, answer, gold, tolerance).correct for answer in dict.fromkeys(answers)
    )
