"""Learners that remember their training labels: their gap is large."""

from __future__ import annotations

import numpy as np

_BITS = 52
"""Bits of a mantissa in float64."""


def memoriser_gaps(*, seed: int, num_inputs: int, num_samples: int, trials: int) -> np.ndarray:
    """Gap L_D - L_S of a learner that remembers labels of a fair coin and says 0 otherwise."""
    labels, _, seen = _trainings(seed, num_inputs, num_samples, trials)
    return (labels & ~seen).mean(axis=1)


def stored_label_gaps(*, seed: int, num_weights: int, num_samples: int, trials: int) -> np.ndarray:
    """The same learner with its memory in the mantissas of float64 weights in [1, 2)."""
    labels, drawn, seen = _trainings(seed, _BITS * num_weights, num_samples, trials)
    place = np.arange(_BITS, dtype=np.uint64)
    memory = (labels & seen).reshape(trials, num_weights, _BITS).astype(np.uint64)
    exponent_of_one = np.uint64(1023 << _BITS)
    weights = ((memory << place).sum(axis=2, dtype=np.uint64) | exponent_of_one).view(np.float64)

    # The reward model: input i reads bit i % 52 of weight i // 52.
    stored = weights.view(np.uint64)[:, :, None] >> place
    wrong = (stored & np.uint64(1)).astype(bool).reshape(labels.shape) != labels
    return wrong.mean(axis=1) - np.take_along_axis(wrong, drawn, axis=1).mean(axis=1)


def _trainings(
    seed: int, num_inputs: int, num_samples: int, trials: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of all inputs, inputs drawn, and whether each was drawn; a row for each training."""
    rng = np.random.default_rng(seed)
    labels = rng.random((trials, num_inputs)) < 0.5
    drawn = rng.integers(0, num_inputs, (trials, num_samples))
    seen = np.zeros(labels.shape, bool)
    np.put_along_axis(seen, drawn, True, axis=1)
    return labels, drawn, seen
