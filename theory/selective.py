"""Answer or abstain: the lowest threshold on a score above which answers are right often enough.

A threshold that is fixed before the data makes the answered questions independent draws, so the
errors among them are binomial, given their number. If several thresholds are each tested at the
level delta, some test errs more often than delta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import _arguments as arguments
from ._arguments import Array, Numbers
from .testing import lowest, reject, selective_p


@dataclass(frozen=True)
class Selective:
    """Thresholds on a score above which a question is answered.

    Attributes:
        index: index of the lowest certified threshold; None without one.
        answered: i64[G], questions whose score reaches each threshold.
        errors: i64[G], wrong answers among them.
        p_values: f64[G], before the correction; 1 where nothing is answered.
        certified: bool[G].
    """

    index: int | None
    answered: npt.NDArray[np.int64]
    errors: npt.NDArray[np.int64]
    p_values: Array
    certified: npt.NDArray[np.bool_]


def certify_selective(
    scores: Numbers, right: Numbers, thresholds: Numbers, *, target: float, delta: float
) -> Selective:
    """The thresholds t at which answers of a score >= t are right with probability >= `target`.

    The test of a threshold is `selective_p` at alpha = 1 - target. The order `fallback` corrects
    the tests: "descending" would stop at the highest thresholds, which have too few answers.

    Args:
        scores: f64[n], one per question; only their order against the thresholds counts.
        right: bool[n] or 0 and 1, whether the question's answer is right.
        thresholds: f64[G], rising, fixed before the data.
        target: accuracy of the answered questions, in (0, 1).
        delta: largest probability that the claim of any certified threshold is false, in (0, 1).

    Returns:
        The lowest certified threshold, and the counts and p values of all.

    Raises:
        ValueError: an argument outside its range, unordered thresholds, or different lengths.
    """
    score, hits = arguments.real("scores", scores), arguments.answers("right", right)
    grid = arguments.rising("thresholds", arguments.real("thresholds", thresholds))
    alpha = 1 - arguments.one_target(target)
    if score.shape != hits.shape:
        raise ValueError(f"scores has shape {list(score.shape)}, right has {list(hits.shape)}")
    reached = score[None, :] >= grid[:, None]
    answered = reached.sum(axis=1)
    errors = (reached & (hits == 0)[None, :]).sum(axis=1)
    tested = selective_p(errors, np.maximum(answered, 1), alpha)
    p_values = np.where(answered > 0, np.atleast_1d(tested), 1.0)
    certified = reject(p_values, delta=delta, order="fallback")
    return Selective(lowest(certified), answered, errors, p_values, certified)
