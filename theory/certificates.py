"""Certificates of a search's own answer, given a bound on the scores' deviations.

The only assumption is |score - true value| <= epsilon for every path of this search. Estimate
epsilon on held-out data and account for the share of paths that exceed it.
"""

from __future__ import annotations

import numpy as np

from . import _arguments as arguments
from ._arguments import Flags, Numbers


def is_best_certified(observed_gap: Numbers, epsilon: Numbers) -> Flags:
    """Whether the best-scored path is the truly best one: observed gap > 2 epsilon.

    Args:
        observed_gap: difference of the two highest *scores*, at least 0.
        epsilon: largest deviation of a score, at least 0.

    Raises:
        ValueError: an argument outside its range.
    """
    gap = arguments.magnitude("observed_gap", observed_gap)
    return np.asarray(gap / 2 > arguments.magnitude("epsilon", epsilon))[()]


def is_correct_certified(score: Numbers, threshold: Numbers, epsilon: Numbers) -> Flags:
    """Whether the selected path is correct: score >= threshold + epsilon.

    Args:
        score: of the selected path.
        threshold: tau, the true value from which a path is correct.
        epsilon: largest deviation of a score, at least 0.

    Raises:
        ValueError: an argument outside its range.
    """
    score, threshold = arguments.real("score", score), arguments.real("threshold", threshold)
    return np.asarray(score >= threshold + arguments.magnitude("epsilon", epsilon))[()]
