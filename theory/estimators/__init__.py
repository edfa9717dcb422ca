"""Estimates from data, with confidence intervals, of what the bounds take as given.

Intervals are over independent units: for a PRM over questions, which `units` names, not over steps.
"""

from .calibration import Reliability as Reliability
from .calibration import area_under_curve as area_under_curve
from .calibration import bootstrap as bootstrap
from .calibration import expected_calibration_error as expected_calibration_error
from .calibration import mean_log_loss as mean_log_loss
from .calibration import negative_log_likelihood as negative_log_likelihood
from .calibration import pair_accuracy as pair_accuracy
from .calibration import reliability as reliability
from .correlation import Correlation as Correlation
from .correlation import kendall as kendall
from .correlation import pearson as pearson
from .correlation import rank_correlations as rank_correlations
from .correlation import sparsity_against_error as sparsity_against_error
from .correlation import sparsity_max_p as sparsity_max_p
from .correlation import spearman as spearman
from .intervals import Estimate as Estimate
from .intervals import bounded_mean as bounded_mean
from .intervals import clopper_pearson as clopper_pearson
from .quantities import best_at_k as best_at_k
from .quantities import estimate_coverage as estimate_coverage
from .quantities import estimate_epsilon as estimate_epsilon
from .quantities import estimate_risk as estimate_risk
from .quantities import exceedance as exceedance
from .quantities import pass_at_k as pass_at_k
