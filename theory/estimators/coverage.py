"""Coverage p_N: the chance that one of N sampled paths is right."""

from __future__ import annotations

import numpy as np

from .. import _arguments as arguments
from .intervals import Estimate, bounded_mean
from .types import Values


def pass_at_k(num_correct: Values, num_samples: Values, k: Values) -> np.ndarray:
    """1 - C(n - c, k) / C(n, k): the unbiased estimate of coverage at N = k.

    Of n samples c are correct; this is the share of their k-subsets with a correct one (Chen et
    al. 2021, arXiv:2107.03374). The plug-in 1 - (1 - c/n)^k is biased. Broadcasts.

    Args:
        num_correct: c, integers in 0..n.
        num_samples: n, integers >= 1.
        k: integers in 1..n.

    Raises:
        ValueError: one of them is out of its range.
    """
    c, n, k = np.broadcast_arrays(
        arguments.floats("num_correct", num_correct),
        arguments.floats("num_samples", num_samples),
        arguments.floats("k", k),
    )
    if not ((c >= 0) & (c <= n) & (n >= 1) & (c % 1 == 0) & (n % 1 == 0)).all():
        raise ValueError("num_correct, num_samples: need whole numbers, 0 <= correct <= samples")
    if not ((k >= 1) & (k <= n) & (k % 1 == 0)).all():
        raise ValueError("k: must be whole and in 1..num_samples; there is no unbiased estimate")
    # C(n-c, k) / C(n, k) is symmetric in c and k: a product over the smaller of the two. Factorials
    # would cancel where n is large.
    fewer, more = np.minimum(c, k), np.maximum(c, k)
    log_misses = np.zeros(n.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in range(int(fewer.max(initial=0.0))):
            log_misses = log_misses + np.where(i < fewer, np.log1p(-more / (n - i)), 0.0)
    return np.where(n - c < k, 1.0, -np.expm1(log_misses))


def estimate_coverage(num_correct: Values, num_samples: Values, num_candidates: int) -> Estimate:
    """Mean coverage p_N over questions, with an interval over questions (`bounded_mean`).

    Args:
        num_correct: right samples of each question, [Q].
        num_samples: samples of each question, [Q] or one number, each >= `num_candidates`.
    """
    correct = np.atleast_1d(np.asarray(num_correct))
    return bounded_mean(pass_at_k(correct, num_samples, num_candidates))
