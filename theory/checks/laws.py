"""Two-point laws, which contain every worst case.

A probability that is linear in a law is largest at an extreme law. The extreme mean-zero laws on
[-1, 1] have two points, +u with probability v / (u + v) and -v with the rest. Deviations and gaps
are in units of epsilon (t = gap / epsilon).
"""

from __future__ import annotations

import numpy as np

STEP = 0.05
"""Step of the grid of points and of gaps: with one grid the worst laws are exact."""

# Sums of grid points differ from the gap they should equal by rounding.
_ROUNDING = 1e-9


def two_point_laws() -> np.ndarray:
    """(points, probabilities) of mean-zero laws, f64[L, 2, 2], the constant 0 among them."""
    points = np.arange(0.0, 1.0 + STEP / 2, STEP)
    up, down = (axis.ravel() for axis in np.meshgrid(points, points))
    kept = (up > 0) & (down > 0)
    up, down = up[kept], down[kept]
    laws = np.stack(
        [np.stack([up, -down], 1), np.stack([down / (up + down), up / (up + down)], 1)], 1
    )
    # The limit of the two-point family as one point goes to 0.
    constant = np.array([[[0.0, 0.0], [0.5, 0.5]]])
    return np.concatenate([laws, constant])


def gap_grid(largest: float = 2.5) -> np.ndarray:
    """Gaps in units of epsilon, from one step on."""
    return np.arange(STEP, largest + STEP / 2, STEP)


def worst_independent(laws: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """max over pairs of laws of Pr[Delta_h - Delta_* >= gap], f64[G]; independent deviations."""
    points, weights = laws[:, 0], laws[:, 1]
    difference = points[:, None, :, None] - points[None, :, None, :]
    weight = weights[:, None, :, None] * weights[None, :, None, :]
    return np.array(
        [(weight * (difference >= gap - _ROUNDING)).sum(axis=(2, 3)).max() for gap in gaps]
    )


def worst_difference(laws: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """max over laws of the difference, mean zero on [-2, 2], of Pr[difference >= gap], f64[G]."""
    points, weights = 2.0 * laws[:, 0], laws[:, 1]
    return (weights * (points >= gaps[:, None, None] - _ROUNDING)).sum(axis=2).max(axis=1)


def fall_probabilities(laws: np.ndarray, falls: np.ndarray) -> np.ndarray:
    """Pr[Delta <= -fall] for each law and fall, f64[F, L]."""
    points, weights = laws[:, 0], laws[:, 1]
    return (weights * (points <= -falls[:, None, None] + _ROUNDING)).sum(axis=2)
