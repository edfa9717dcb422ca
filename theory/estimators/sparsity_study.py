"""Sparsity against test error: the paper's table, and the same question of any other PRMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .correlation import Correlation, rank_correlations

_PARAMETERS = (7.11e9, 8.03e9, 8.03e9, 1.54e9, 7.08e9)
_TOTAL = (0.0290, 0.0068, 0.0068, 0.0029, 0.0060)

PAPER_TABLE: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "parameters": _PARAMETERS,
        "total sparsity": _TOTAL,
        "last-layer sparsity, rank": (5.0, 2.5, 2.5, 1.0, 4.0),
        "nonzero parameters": tuple(
            size * (1.0 - share) for size, share in zip(_PARAMETERS, _TOTAL, strict=True)
        ),
        "test error": (2.78, 3.87, 3.87, 4.43, 3.47),
    }
)
"""The paper's table `tab:sparse` (arXiv:2505.18065), as far as figures derived from it say it.

Rows: Math-Shepherd-7B, RLHFlow-Mistral-8B, RLHFlow-DeepSeek-8B, Skywork-1.5B, Qwen2.5-Math-7B; the
two RLHFlow rows are equal in every column. Test errors (a cross-entropy, not a generalization gap)
and the total sparsities of RLHFlow and Qwen2.5-Math are the paper's. The other sizes and sparsities
were inferred from the number of nonzero parameters, known to four digits, and from Pearson's
coefficient of total sparsity, -.884, which they therefore can't confirm. Of the last layers only
the order is known, from a rank correlation of -1: what follows from it is checked, not the order.
"""


def sparsity_against_error(
    predictors: Mapping[str, Sequence[float]], error: Sequence[float]
) -> dict[str, dict[str, Correlation]]:
    """Every predictor's correlations with the error: predictor -> coefficient -> `Correlation`.

    The paper's claim is a negative one for sparsity: sparser models err less.

    Args:
        predictors: name -> one value per PRM, such as total sparsity.
        error: one value per PRM.

    Raises:
        ValueError: lengths differ, fewer than 3 PRMs, or a predictor that does not vary.
    """
    return {name: rank_correlations(values, error) for name, values in predictors.items()}
