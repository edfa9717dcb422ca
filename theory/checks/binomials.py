"""Exact violation probabilities of risk bounds for one hypothesis with a 0/1 loss.

The number of errors k on n examples is binomial. A bound that grows with k is violated at risk mu
iff k is at most some k0, so the worst risk is just above one of the bound's values: their
enumeration is exact over all risks. By convexity, no other law of losses is worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

RiskBound = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(empirical risk k / n, n) -> upper bound on the risk."""


def worst_violations(risk_bound: RiskBound, sizes: Sequence[int]) -> np.ndarray:
    """sup over risks of Pr[risk > bound], one value per n.

    Args:
        risk_bound: non-decreasing in the empirical risk.
        sizes: values of n.
    """
    n = np.repeat(np.array(sizes, np.float64), sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    k = np.arange(n.size, dtype=np.float64) - np.repeat(starts, sizes)
    values = risk_bound(k / n, n)
    # Pr[Bin(n, p) <= k] is an incomplete beta integral.
    tail = special.betainc(n - k, k + 1.0, 1.0 - np.clip(values, 0.0, 1.0))
    violated = np.where(values < 1.0, tail, 0.0)
    return np.maximum.reduceat(violated, starts)
