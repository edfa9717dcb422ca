"""Best-of-N on draws of N paths: on all draws, or on many random ones."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy import special


class Outcomes(NamedTuple):
    """The outcome of each draw; ties are decided against the best path.

    Attributes:
        covered: a path is correct, bool[M].
        correct: the selected one is, bool[M].
        best: the selected one has the highest true value, bool[M].
        gap: best minus second-best true value (the paper's gamma), f64[M].
        observed_gap: best minus second-best score, f64[M].
        score: of the selected path, f64[M].
    """

    covered: Any
    correct: Any
    best: Any
    gap: Any
    observed_gap: Any
    score: Any


def outcomes(rewards: np.ndarray, scores: np.ndarray, threshold: float) -> Outcomes:
    """Select by score, f64[M, N] and f64[M, N]; correct means reward >= threshold."""
    rewards_up, scores_up = np.sort(rewards, axis=1), np.sort(scores, axis=1)
    highest = scores_up[:, -1]
    # Scores that differ by rounding alone are ties.
    tied = scores >= highest[:, None] - 1e-12
    selected = np.where(tied, rewards, np.inf).min(axis=1)
    return Outcomes(
        covered=rewards_up[:, -1] >= threshold,
        correct=selected >= threshold,
        best=selected >= rewards_up[:, -1],
        gap=rewards_up[:, -1] - rewards_up[:, -2],
        observed_gap=highest - scores_up[:, -2],
        score=highest,
    )


class World(NamedTuple):
    """Paths drawn independently from a few levels, each with a deviation of its own.

    Attributes:
        levels: true values R*.
        weights: their probabilities.
        deviations: values of score - R*.
        deviation_weights: their probabilities.
        threshold: tau; correct means R* >= tau.
    """

    levels: tuple[float, ...]
    weights: tuple[float, ...]
    deviations: tuple[float, ...]
    deviation_weights: tuple[float, ...]
    threshold: float

    def enumerate(self, num_candidates: int) -> tuple[np.ndarray, Outcomes]:
        """(probability f64[M], outcomes) of all M draws of N paths."""
        rewards, weights = self._all(num_candidates, self.levels, self.weights)
        deviations, chances = self._all(num_candidates, self.deviations, self.deviation_weights)
        pairs = len(rewards), len(deviations)
        rewards = np.repeat(rewards, pairs[1], axis=0)
        deviations = np.tile(deviations, (pairs[0], 1))
        probability = np.outer(weights, chances).ravel()
        return probability, outcomes(rewards, rewards + deviations, self.threshold)

    @staticmethod
    def _all(
        num_candidates: int, values: tuple[float, ...], weights: tuple[float, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        draws = np.array(list(itertools.product(range(len(values)), repeat=num_candidates)))
        return np.array(values)[draws], np.array(weights)[draws].prod(axis=1)


@functools.cache
def small_worlds() -> tuple[World, ...]:
    """The world in which the mean gap misleads, and random ones of the same size."""
    rng = np.random.default_rng(0)
    worlds = [misleading_world()]
    for _ in range(12):
        levels = np.sort(rng.random(3))
        epsilon = float(rng.choice([0.01, 0.05, 0.2]))
        up, down = rng.random(2) * epsilon
        worlds.append(
            World(
                levels=tuple(levels),
                weights=tuple(rng.dirichlet(np.ones(3))),
                deviations=(up, -down),
                deviation_weights=(down / (up + down), up / (up + down)),
                threshold=float(levels[2]),
            )
        )
    return tuple(worlds)


def misleading_world() -> World:
    """One correct level, one just below it, and one far below, which makes the mean gap large."""
    return World((0.9, 0.895, 0.0), (0.5, 0.3, 0.2), (0.01, -0.01), (0.5, 0.5), 0.9)


def two_level_successes(
    p1: float, ratio: float, *, seed: int, num_candidates: int, trials: int, law: str
) -> int:
    """Number of `trials` draws that select a correct path: two levels `ratio` apart, epsilon 1.

    Args:
        p1: probability that a path is correct.
        ratio: t = gap / epsilon.
        law: of the deviations: "rademacher" or "uniform".
    """
    rng = np.random.default_rng(seed)
    right = rng.random((trials, num_candidates)) < p1
    scores = np.where(right, ratio, 0.0) + deviations(rng, right.shape, law)
    best_right = np.where(right, scores, -np.inf).max(axis=1)
    best_wrong = np.where(right, -np.inf, scores).max(axis=1)
    return int((best_right > best_wrong).sum())


def misranked(ratio: float, *, seed: int, num_candidates: int, trials: int, law: str) -> int:
    """Number of draws in which one of N - 1 competitors `ratio` behind reaches the best's score."""
    deviation = deviations(np.random.default_rng(seed), (trials, num_candidates), law)
    return int((deviation[:, 1:].max(axis=1) - ratio >= deviation[:, 0]).sum())


def deviations(rng: np.random.Generator, shape: tuple[int, ...], law: str) -> np.ndarray:
    """Deviations on [-1, 1], mean zero: "rademacher", "uniform" or "gaussian" (sd 1/2, cut off)."""
    if law == "rademacher":
        return 2.0 * rng.integers(0, 2, shape) - 1.0
    if law == "uniform":
        return rng.uniform(-1.0, 1.0, shape)
    lower, upper = special.ndtr([-2.0, 2.0])
    return 0.5 * special.ndtri(rng.uniform(lower, upper, shape))
