"""Hand-made worlds with known answers, for tests and for a first look."""

from __future__ import annotations

from typing import Any

import numpy as np

from .expansion import NUM_KINDS, SCORE_GRID_END
from .question import from_dict
from .types import SimulatorParams

_POINTS = 29


def toy_params(
    *,
    num_steps: tuple[int, ...] = (3, 4),
    step_probability: float = 0.7,
    question_scale: float = 0.0,
    node_scale: float = 0.0,
    separations: tuple[float, ...] = (4.0, 0.0),
    score_scale: float = 1.0,
    loading: tuple[float, float, float] = (0.0, 0.0, 0.0),
    alternative: float = 0.0,
    exponent: float = 1.0,
    exponent_slope: float = 0.0,
    exponent_scale: float = 0.0,
    invalid: float = 0.0,
    lucky: float = 0.0,
    popular: float = 0.0,
    no_answer: float = 0.0,
    max_depth: int = 8,
) -> SimulatorParams:
    """A world whose results can be computed by hand.

    Args:
        num_steps: steps of a solution, one number per level; every path ends there.
        step_probability: probability that a step after right steps is right, at mean difficulty.
        question_scale, node_scale: standard deviations of the margins; 0 makes steps independent.
        separations: per PRM, the mean logit of a right step's score minus that of a wrong step's.
        score_scale: standard deviation of the residual of the score's logit; with 0 a score
            depends only on whether the step is right.
        loading: a, b and g of `ScoreTables`, the same for every kind of step; y is the logit.
        alternative, exponent, exponent_slope, exponent_scale, invalid, lucky, popular, no_answer:
            one value for all levels, depths and sampling parameters; see `SimulatorParams`.
        max_depth: most steps of a search, >= the largest `num_steps`.

    Returns:
        A world with one level per entry of `num_steps` and one PRM per entry of `separations`;
        PRM p has sparsities (0.1 p, 0).
    """
    levels, depths, prms = len(num_steps), max(num_steps), len(separations)
    end = np.zeros((levels, 2, depths))
    for level, steps in enumerate(num_steps):
        end[level, :, steps - 1 :] = 1.0
    return from_dict(
        {
            "margin": np.full((levels, depths), np.log(step_probability / (1 - step_probability))),
            "question_scale": np.full(levels, question_scale),
            "node_scale": np.full(levels, node_scale),
            "wrong_shift": np.zeros(levels),
            "alternative": np.full((levels, depths), alternative),
            "end": end,
            "sampling": _sampling(exponent, invalid)
            | {"exponent_slope": exponent_slope, "exponent_scale": exponent_scale},
            "lucky": np.full(levels, lucky),
            "popular": np.full(levels, popular),
            "no_answer": np.full(levels, no_answer),
            "num_tokens": np.full((levels, depths), 10.0),
            "scores": _scores(separations, score_scale, loading, levels),
            "sparsity_total": 0.1 * np.arange(prms),
            "sparsity_last_layer": np.zeros(prms),
            "max_depth": max_depth,
        }
    )


def _sampling(exponent: float, invalid: float) -> dict[str, Any]:
    """The tables of a simulated policy on a grid of temperature and top-p."""
    temperature, top_p = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.9, 1.0])
    grid = (temperature.size, top_p.size)
    return {
        "temperature": temperature,
        "top_p": top_p,
        "slope": np.broadcast_to(1.0 / np.maximum(temperature, 0.25)[:, None], grid),
        "shift": np.zeros(grid),
        "exponent": np.full(grid, exponent),
        "invalid": np.full((2, *grid), invalid),
        "top_k_slope": 0.0,
        "top_k_shift": 0.0,
    }


def _scores(
    separations: tuple[float, ...],
    score_scale: float,
    loading: tuple[float, float, float],
    levels: int,
) -> dict[str, np.ndarray]:
    """The tables of simulated PRMs, one per separation."""
    prms = len(separations)
    points = np.linspace(-SCORE_GRID_END, SCORE_GRID_END, _POINTS)
    # Kinds come in pairs: a step before the last, then a last step. The first pair is right.
    sign = np.where(np.arange(NUM_KINDS) < 2, 0.5, -0.5)
    offset = np.array(separations)[:, None] * sign[None, :]
    return {
        "logit": np.broadcast_to(points, (prms, _POINTS)),
        "offset": np.broadcast_to(offset[:, :, None], (prms, NUM_KINDS, levels)),
        "loading": np.broadcast_to(np.array(loading), (prms, NUM_KINDS, 3)),
        "residual": np.broadcast_to(score_scale * points, (prms, NUM_KINDS, _POINTS)),
        "root": np.broadcast_to(np.array([0.0, 1.0]), (prms, 2)),
    }
