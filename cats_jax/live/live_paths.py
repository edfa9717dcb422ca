"""What a model may forget: everything but the live paths of the open questions."""

from __future__ import annotations

from ..protocols import Path, Question, StepGenerator, StepScorer


class LivePaths:
    """Live paths of questions, which the model is told before its next call.

    Args:
        model: the policy or the PRM.
    """

    def __init__(self, model: StepGenerator | StepScorer) -> None:
        self._model = model
        self._untold: dict[Question, list[Path]] = {}

    def keep_only(self, question: Question, live: list[Path]) -> None:
        """Only the paths `live` of a question can still grow; without paths, it has ended."""
        # Later calls replace earlier ones: paths only ever die.
        self._untold[question] = live

    def tell(self) -> None:
        """Tell the model which paths to keep, so that it frees the others."""
        for question, live in self._untold.items():
            self._model.keep_only(question, live)
        self._untold.clear()
