"""The policy's own confidence in place of a PRM.

The score of a step is the geometric mean of its sampled tokens' probabilities under the policy, at
temperature 1 and without truncation. Tokens that were put in, as at a thought's budget, do not
count. The policy reports the probabilities, so a score costs nothing. It says how sure the policy
is, not whether the step is right: fit a calibration before a comparison with a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ScorerContractError
from ..protocols import Path, Question, Scoring, TokenUsage
from ..specs.models import PrmSpec


class ConfidenceScorer:
    """A `StepScorer` whose score is the field `confidence` of a path's newest step, in [0, 1].

    A search scores equal steps of one parent once, with the confidence of the first one.
    """

    name = "confidence"
    num_parameters = 0
    sparsity_total = 0.0
    sparsity_last_layer = 0.0

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """The confidence of the last step of each path.

        Raises:
            ScorerContractError: a last step is blank, or its log-probability is not known.
        """
        scores: list[float | None] = []
        for question, path in zip(questions, paths, strict=True):
            step, where = path[-1], f"question {question.id!r}, step {len(path) - 1}"
            if not step.text.strip():
                raise ScorerContractError(f"{where}: a blank step has no score")
            if step.confidence is None:
                raise ScorerContractError(
                    f"{where}: the policy's log-probability of the step is not known, and the "
                    "score is made from it: take a policy that reports it, and paths that one "
                    "sampled"
                )
            scores.append(step.confidence)
        usage = [TokenUsage() for _ in paths]
        return Scoring(scores=scores, usage=usage, inside_seconds=0.0)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Nothing is cached."""


def confidence_scorer(spec: PrmSpec) -> ConfidenceScorer:
    """What `prms: [confidence]` in a recipe stands for."""
    return ConfidenceScorer()
