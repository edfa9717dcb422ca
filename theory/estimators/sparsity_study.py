"""Sparsity against test error: the question of the paper's appendix G, for any PRMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .correlation import Correlation, rank_correlations


def sparsity_against_error(
    predictors: Mapping[str, Sequence[float]], error: Sequence[float]
) -> dict[str, dict[str, Correlation]]:
    """Every predictor's correlations with the error: predictor -> coefficient -> `Correlation`.

    Appendix G of the paper sees "a clear correlation" in its table `tab:sparse`
    (`theory.paper.SPARSITY`). Section 5.1 expects models with fewer active parameters to generalize
    better, so the expected sign for sparsity is negative.

    Args:
        predictors: name -> one value per PRM, such as total sparsity.
        error: one value per PRM.

    Raises:
        ValueError: lengths differ, fewer than 3 PRMs, or a predictor that does not vary.
    """
    return {name: rank_correlations(values, error) for name, values in predictors.items()}
