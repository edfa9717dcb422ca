"""Questions of the embedded world."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BadInputError
from ..protocols import Question
from .question_set import QuestionSet


def world_questions(
    split: str, count: int, *, seed: int = 0, levels: Sequence[int] | None = None
) -> QuestionSet:
    """Draw `count` questions of a set of the embedded world.

    Raises:
        BadInputError: the split or the levels are wrong, or the count is below 1.
    """
    from ..world import task

    if count < 1:
        raise BadInputError(f"questions: count={count}: at least one question is needed")
    try:
        problems = task.problems(
            split,  # type: ignore[arg-type]  # checked by the callee
            count,
            seed=seed,
            levels=task.LEVELS if levels is None else tuple(levels),
        )
    except ValueError as error:
        raise BadInputError(f"questions of the embedded world: {error}") from error
    return QuestionSet(
        source=f"the embedded world, set {split}, seed {seed}",
        questions=tuple(Question(problem.id, problem.text) for problem in problems),
        answers={problem.id: problem.answer for problem in problems},
        meta={problem.id: {"level": problem.level} for problem in problems},
    )
