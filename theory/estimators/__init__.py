"""Estimates from data, with confidence intervals: what the bounds take as given.

The unit of every interval is an independent one, which for a PRM is the question and not the
step: `units` says to which question each value belongs.
"""

from .calibration import (
    Reliability,
    area_under_curve,
    bootstrap,
    brier_score,
    expected_calibration_error,
    mean_log_loss,
    negative_log_likelihood,
    pair_accuracy,
    prm_quality,
    reliability,
)
from .correlation import Correlation, kendall, pearson, rank_correlations, spearman
from .coverage import estimate_coverage, pass_at_k
from .deviation import estimate_epsilon, exceedance
from .intervals import Estimate, bounded_mean, clopper_pearson
from .risk import estimate_gap, estimate_risk
from .sparsity_study import sparsity_against_error

__all__ = [
    "Correlation",
    "Estimate",
    "Reliability",
    "area_under_curve",
    "bootstrap",
    "bounded_mean",
    "brier_score",
    "clopper_pearson",
    "estimate_coverage",
    "estimate_epsilon",
    "estimate_gap",
    "estimate_risk",
    "exceedance",
    "expected_calibration_error",
    "kendall",
    "mean_log_loss",
    "negative_log_likelihood",
    "pair_accuracy",
    "pass_at_k",
    "pearson",
    "prm_quality",
    "rank_correlations",
    "reliability",
    "sparsity_against_error",
    "spearman",
]
