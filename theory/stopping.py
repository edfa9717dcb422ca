"""Stop at the first good path: the lowest threshold on its score at which little accuracy is lost.

Best-of-N samples N paths and gives the answer of the best score. The stopped search samples the
same paths one after the other and stops at the first score that reaches a threshold. A question is
harmful if the whole search answers it right and the stopped search answers it wrong. The share of
harmful questions bounds the accuracy that is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import _arguments as arguments
from ._arguments import Array, Numbers
from .testing import lowest, reject, selective_p


@dataclass(frozen=True)
class Stopping:
    """Thresholds on the score of a path at which a search stops.

    Attributes:
        index: index of the lowest certified threshold; None without one.
        num_paths: i64[G, n], paths that each question samples at each threshold.
        right: bool[G, n], whether the stopped search answers each question right.
        harmful: i64[G], questions that only the whole search answers right.
        p_values: f64[G], of "the share of harmful questions is `max_loss` or more".
        certified: bool[G].
    """

    index: int | None
    num_paths: npt.NDArray[np.int64]
    right: npt.NDArray[np.bool_]
    harmful: npt.NDArray[np.int64]
    p_values: Array
    certified: npt.NDArray[np.bool_]


def certify_stopping(
    scores: Numbers,
    right: Numbers,
    thresholds: Numbers,
    *,
    max_loss: float,
    delta: float,
    whole: Numbers | None = None,
) -> Stopping:
    """The thresholds at which stopping loses less than `max_loss` of the accuracy of all N paths.

    The test of a threshold is exact: Pr[Bin(n, max_loss) <= harmful questions]. `reject` corrects
    the tests in the order "descending".

    Args:
        scores: f64[n, N] in [0, 1], of the paths of each question in the order of sampling; -1 for
            a path without an answer, at which no search stops.
        right: bool[n, N], whether the answer of each path is right.
        thresholds: f64[G], rising, at least 0, fixed before the data.
        max_loss: accuracy that may be lost, in (0, 1).
        delta: largest probability that the claim of any certified threshold is false, in (0, 1).
        whole: bool[n], whether the search of all N paths answers each question right. None: it
            answers by the first path of the best score, in the order of sampling.

    Returns:
        The lowest certified threshold, and the counts and p values of all.

    Raises:
        ValueError: an argument outside its range, unordered thresholds, or different shapes.
    """
    grid = arguments.nonnegative("thresholds", thresholds, "no search stops without an answer")
    num_paths, stopped, best = _stopped(scores, right, arguments.rising("thresholds", grid))
    reference = best if whole is None else arguments.answers("whole", whole) == 1
    if reference.shape != best.shape:
        raise ValueError(f"whole has {reference.size} verdicts for {best.size} rows of scores")
    harmful = (reference[None, :] & ~stopped).sum(axis=1)
    share = arguments.one_inner_mean("max_loss", max_loss)
    p_values = np.atleast_1d(selective_p(harmful, best.size, share))
    certified = reject(p_values, delta=delta, order="descending")
    return Stopping(lowest(certified), num_paths, stopped, harmful, p_values, certified)


def _stopped(
    scores: Numbers, right: Numbers, grid: Array
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Paths i64[G, n] and verdicts bool[G, n] of the stopped searches, those without a stop."""
    score, verdicts = arguments.real("scores", scores), arguments.real("right", right)
    arguments.require("right", verdicts, np.isin(verdicts, (0.0, 1.0)), "0 or 1, one for each path")
    hits = verdicts == 1
    if score.ndim != 2 or not score.size or score.shape != hits.shape:
        raise ValueError(
            f"scores has shape {list(score.shape)}, right has {list(hits.shape)}: both need a row "
            "of N paths for each question"
        )
    arguments.require("scores", score, (score == -1) | ((score >= 0) & (score <= 1)), "in [0, 1]")
    total, rows = score.shape[1], np.arange(score.shape[0])
    # The first of equal scores, as in a search that takes one path after the other.
    best = score.argmax(axis=1)
    unstopped = hits[rows, best] & (score[rows, best] >= 0)
    # The highest score so far never falls: the search stops where it reaches the threshold.
    highest = np.maximum.accumulate(score, axis=1)
    before = (highest[None, :, :] < grid[:, None, None]).sum(axis=2)
    at = np.where(before < total, before, best[None, :])
    stopped = np.where(before < total, hits[rows[None, :], at], unstopped[None, :])
    return np.minimum(before + 1, total), stopped, unstopped
