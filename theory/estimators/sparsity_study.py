"""Sparsity against test error: the question of the paper's appendix G, for any PRMs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from .. import _arguments as arguments
from .correlation import Correlation, rank_correlations, spearman

_MOST = 8


def sparsity_against_error(
    predictors: Mapping[str, Sequence[float]], error: Sequence[float]
) -> dict[str, dict[str, Correlation]]:
    """Every predictor's correlations with the error: predictor -> coefficient -> `Correlation`.

    Appendix G of the paper sees "a clear correlation" in its table `tab:sparse`
    (`theory.paper.SPARSITY`). Section 5.1 expects a negative sign for sparsity.

    Args:
        predictors: name -> one value per PRM, such as total sparsity.
        error: one value per PRM.

    Raises:
        ValueError: lengths differ, fewer than 3 PRMs, or a predictor that does not vary.
    """
    return {name: rank_correlations(values, error) for name, values in predictors.items()}


def sparsity_max_p(predictors: Mapping[str, Sequence[float]], error: Sequence[float]) -> float:
    """p value of the largest |Spearman's rho| of several predictors, corrected for their number.

    The share of all orders of the errors whose largest |rho| over the predictors is at least the
    observed one (the max-statistic of Westfall and Young, 1993). It is below the smallest p value
    times the number of predictors, because it includes their dependence.

    Args:
        predictors: name -> one value per PRM.
        error: one value per PRM; at most 8, because all orders are enumerated.

    Raises:
        ValueError: lengths differ, fewer than 3 PRMs or more than 8, or a side does not vary.
    """
    values = arguments.floats("error", error)
    if values.size > _MOST:
        raise ValueError(
            f"error has {values.size} PRMs: at most {_MOST}, to enumerate their orders"
        )
    observed = max(abs(spearman(column, error).value) for column in predictors.values())
    centred = [_centred_ranks(column) for column in predictors.values()]
    orders = np.array(list(itertools.permutations(_centred_ranks(error))))
    largest = np.abs(orders @ np.transpose(centred)).max(axis=1)
    return float((largest >= observed - 1e-9).mean())


def _centred_ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks of mean 0 and length 1; the product of two is Spearman's rho."""
    ranks = stats.rankdata(values)
    ranks = ranks - ranks.mean()
    return ranks / np.linalg.norm(ranks)
