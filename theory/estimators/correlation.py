"""Correlations of a few pairs, with exact permutation p-values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from .. import _arguments as arguments
from .._arguments import Numbers
from .intervals import CONFIDENCE

_MOST_EXACT = 8
_RANDOM_PERMUTATIONS = 20_000
_PAIRS_AT_ONCE = 2_000_000  # bounds the memory of Kendall's tau, which compares all pairs
# Permuted statistics that should equal the observed one differ from it by rounding.
_ROUNDING = 1e-9


class Correlation(NamedTuple):
    """A coefficient with its permutation test of independence.

    Attributes:
        value: in [-1, 1].
        p_value: two-sided: share of permutations whose coefficient is at least as far from 0.
        low, high: interval by Fisher's transformation; NaN at +-1 and below 4 pairs (Kendall: 5).
        num: pairs.
        exact: whether all permutations were evaluated; else a random sample of them.
    """

    value: float
    p_value: float
    low: float
    high: float
    num: int
    exact: bool


def rank_correlations(x: Numbers, y: Numbers) -> dict[str, Correlation]:
    """Spearman, Kendall and Pearson of the same pairs."""
    return {function.__name__: function(x, y) for function in (spearman, kendall, pearson)}


def pearson(x: Numbers, y: Numbers) -> Correlation:
    """Pearson's r.

    Args:
        x, y: f64[n], n >= 3, neither constant. Beyond n = 8 the permutations are a random sample.

    Raises:
        ValueError: lengths differ, fewer than 3 pairs, values not finite, or a constant side.
    """
    first, second = _pairs(x, y)
    return _permuted(_centred_product, first, second, 1.0, 3)


def spearman(x: Numbers, y: Numbers) -> Correlation:
    """Spearman's rho: Pearson's r of ranks, ties sharing their mean rank. As `pearson`."""
    first, second = (stats.rankdata(side) for side in _pairs(x, y))
    value = float(_centred_product(first, second[None])[0])
    # Variance of the transformed coefficient: Bonett & Wright 2000.
    return _permuted(_centred_product, first, second, math.sqrt(1 + value**2 / 2), 3)


def kendall(x: Numbers, y: Numbers) -> Correlation:
    """Kendall's tau-b, which corrects for ties. As `pearson`."""
    first, second = _pairs(x, y)
    # Variance of the transformed coefficient: Fieller, Hartley & Pearson 1957.
    return _permuted(_tau_b, first, second, math.sqrt(0.437), 4)


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
    observed one (the max-statistic of Westfall and Young, 1993). It is at most the smallest p value
    times the number of predictors, because it includes their dependence.

    Args:
        predictors: name -> one value per PRM.
        error: one value per PRM; at most 8, because all orders are enumerated.

    Raises:
        ValueError: there is no predictor, lengths differ, there are fewer than 3 PRMs or more than
            8, or a side does not vary.
    """
    if not predictors:
        raise ValueError("predictors is empty: need one or more")
    values = arguments.floats("error", error)
    if values.size > _MOST_EXACT:
        raise ValueError(
            f"error has {values.size} PRMs: at most {_MOST_EXACT}, to enumerate their orders"
        )
    observed = max(abs(spearman(column, error).value) for column in predictors.values())
    orders = np.array(list(itertools.permutations(stats.rankdata(values))))
    ranks = [stats.rankdata(column) for column in predictors.values()]
    largest = np.max([np.abs(_centred_product(each, orders)) for each in ranks], axis=0)
    return float((largest >= observed - _ROUNDING).mean())


def _pairs(x: Numbers, y: Numbers) -> tuple[np.ndarray, np.ndarray]:
    first, second = arguments.floats("x", x), arguments.floats("y", y)
    if first.ndim != 1 or first.shape != second.shape or first.size < 3:
        raise ValueError(
            f"x has shape {first.shape}, y {second.shape}: need two equally long ones of 3 or more"
        )
    for name, side in (("x", first), ("y", second)):
        if not np.isfinite(side).all():
            raise ValueError(f"{name} holds {side[~np.isfinite(side)][0]}: need finite values")
        if np.ptp(side) == 0:
            raise ValueError(f"{name} is constant ({side[0]}): a correlation is 0 / 0")
    return first, second


def _permuted(
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
    scale: float,
    degrees: int,
) -> Correlation:
    n = x.size
    exact = n <= _MOST_EXACT
    if exact:
        orders = np.array(list(itertools.permutations(range(n))))
    else:
        rng = np.random.default_rng(0)
        orders = rng.permuted(np.tile(np.arange(n), (_RANDOM_PERMUTATIONS, 1)), axis=1)
    value = float(statistic(x, y[None])[0])
    at_once = max(1, _PAIRS_AT_ONCE // n**2)
    as_far = sum(
        int((np.abs(statistic(x, y[part])) >= abs(value) - _ROUNDING).sum())
        for part in np.array_split(orders, math.ceil(len(orders) / at_once))
    )
    # Without the observed order, p of a random sample could be 0.
    p_value = as_far / len(orders) if exact else (as_far + 1) / (len(orders) + 1)
    low, high = _fisher(value, scale, n - degrees)
    return Correlation(value, p_value, low, high, n, exact)


def _fisher(value: float, scale: float, degrees: int) -> tuple[float, float]:
    """The ends of the interval of level `CONFIDENCE`."""
    if degrees < 1 or abs(value) > 1 - _ROUNDING:
        return math.nan, math.nan
    half = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * scale / math.sqrt(degrees)
    centre = math.atanh(value)
    return math.tanh(centre - half), math.tanh(centre + half)


def _centred_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's r of x[n] with each row of y[m, n]."""
    x = x - x.mean()
    y = y - y.mean(axis=1, keepdims=True)
    return np.clip(y @ x / (np.linalg.norm(x) * np.linalg.norm(y, axis=1)), -1.0, 1.0)


def _tau_b(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of x[n] with each row of y[m, n]."""
    i, j = np.triu_indices(x.size, 1)
    signs, others = np.sign(x[i] - x[j]), np.sign(y[:, i] - y[:, j])
    norm = np.sqrt(np.abs(signs).sum() * np.abs(others).sum(axis=1))
    return others @ signs / norm
