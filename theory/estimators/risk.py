"""Risk from losses in [0, 1]."""

from __future__ import annotations

import numpy as np

from .intervals import Estimate, bounded_mean, unit_codes, unit_interval
from .types import Values


def estimate_risk(losses: Values, *, units: Values | None = None) -> Estimate:
    """L_D, the mean over units of a unit's mean loss, on data the model was not chosen on.

    Args:
        losses: f64[n] in [0, 1], such as |score - label|; for a cross-entropy see `mean_log_loss`.
        units: question of each loss; None: all independent.

    Raises:
        ValueError: a loss outside [0, 1].
    """
    array = unit_interval(losses, "losses (of the bounds, not a cross-entropy)")
    codes = unit_codes(units, array.size)
    return bounded_mean(np.minimum(np.bincount(codes, array) / np.bincount(codes), 1.0))
