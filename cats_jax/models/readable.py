"""Whether the policies of the embedded world can read the questions of a recipe."""

from __future__ import annotations

from collections.abc import Iterable

from ..grading.graders import needs_math
from ..protocols import Question
from ..specs.models import PolicySpec
from ..specs.recipe import QuestionSpec
from .source import ModelFolders, ModelSource, check_world_question, is_world_policy


def check_readable(
    models: ModelSource,
    policy: PolicySpec,
    specs: Iterable[QuestionSpec],
    questions: Iterable[Question],
) -> None:
    """Check questions for a policy of the embedded world; `specs` are those of their sets.

    Raises:
        BadInputError: the policy is one of these, and can't read a question.
    """
    # Another source may have another policy by the same name. The world's questions are readable.
    if isinstance(models, ModelFolders) and is_world_policy(policy) and needs_math(specs):
        for question in questions:
            check_world_question(question.text, policy, question.id)
