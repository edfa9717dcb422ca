"""Risk and generalization gap from losses in [0, 1]."""

from __future__ import annotations

import numpy as np

from .intervals import CONFIDENCE, Estimate, bounded_mean, unit_codes, unit_interval, unit_means
from .types import Values


def estimate_risk(
    losses: Values, *, units: Values | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """L_D, the mean over units of a unit's mean loss, on data the model was not chosen on.

    Args:
        losses: f64[n] in [0, 1], such as |score - label|, but not a cross-entropy (use
            `mean_log_loss` for that).
        units: question of each loss; None: all independent.
        confidence: in (0, 1).

    Raises:
        ValueError: a loss outside [0, 1].
    """
    array = unit_interval(losses, "losses (of the bounds, not a cross-entropy)")
    means = unit_means(array, unit_codes(units, array.size))
    return bounded_mean(np.minimum(means, 1.0), confidence=confidence)


def estimate_gap(
    train_losses: Values,
    test_losses: Values,
    *,
    train_units: Values | None = None,
    test_units: Values | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The generalization gap L_D - L_S, signed, in [-1, 1].

    L_S is known exactly, because the model was fitted to it. Only L_D is estimated, so the interval
    is that of the held-out risk, shifted. A small gap says nothing of |score - truth|: see
    `estimate_epsilon`.

    Args:
        train_losses: f64[n] in [0, 1], on the sample the model was trained on.
        test_losses: f64[m] in [0, 1], held out.
        train_units, test_units: question of each loss.
        confidence: in (0, 1).
    """
    train = unit_interval(train_losses, "train_losses")
    empirical = float(unit_means(train, unit_codes(train_units, train.size)).mean())
    risk = estimate_risk(test_losses, units=test_units, confidence=confidence)
    return Estimate(*(bound - empirical for bound in risk))
