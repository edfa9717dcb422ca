"""A PRM of this package for libraries that hold answers as text."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cats_jax.protocols import Question, Step, StepScorer

SEPARATOR = "\n\n"
"""What stands between the reasoning steps of the embedded world."""


class TextScorer:
    """Scores of answers by a `StepScorer`, every answer read from its beginning.

    The PRMs that these libraries are published with read the whole answer in every call, too, and
    keep no cache between calls. Threads take turns.

    Args:
        scorer: PRM that scores the last step of each path.

    Attributes:
        computed: number of tokens computed so far.
    """

    def __init__(self, scorer: StepScorer):
        self._scorer = scorer
        self._lock = threading.Lock()
        self.computed = 0

    def scores(self, question: str, answers: Sequence[str]) -> list[float]:
        """The score of the last step of each answer, in [0, 1]; 0 if there is none to score."""
        asked = Question(question, question)
        paths = [
            tuple(Step(text, ()) for text in answer.split(SEPARATOR) if text.strip())
            for answer in answers
        ]
        whole = [path for path in paths if path]
        with self._lock:
            scoring = self._scorer.score([asked] * len(whole), whole)
            self._scorer.keep_only(asked, ())
            self.computed += sum(usage.computed for usage in scoring.usage)
        found = iter(scoring.scores)
        return [(next(found) or 0.0) if path else 0.0 for path in paths]
