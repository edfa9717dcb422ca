"""What a model may forget: everything but the live paths of the open questions."""

from __future__ import annotations

from ..protocols import Path, Question, StepGenerator, StepScorer


class LivePaths:
    """Live paths of questions, passed to the policy or the PRM before its next call."""

    def __init__(self, model: StepGenerator | StepScorer) -> None:
        self._model = model
        self._untold: dict[Question, list[Path]] = {}

    def keep_only(self, question: Question, live: list[Path]) -> None:
        """Note that only the paths `live` of a question can still grow; empty if it has ended."""
        # The newest list is enough: an earlier path that it lacks is dead.
        self._untold[question] = live

    def tell(self) -> None:
        """Pass the live paths to the model, which frees all others."""
        for question, live in self._untold.items():
            self._model.keep_only(question, live)
        self._untold.clear()
