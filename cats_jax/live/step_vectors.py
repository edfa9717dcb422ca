"""From the vectors that a policy reports of steps to those that a strategy reads."""

from __future__ import annotations

import functools

import numpy as np

from search.vectors import VECTOR_SIZE

_SEED = 0
"""Seed of the projection; another one changes the results of searches that read vectors."""


def projected(vector: np.ndarray) -> np.ndarray:
    """A vector of any length as f32[VECTOR_SIZE], with about the same angles to others.

    A longer vector is multiplied by a fixed matrix of independent normal numbers (Johnson and
    Lindenstrauss 1984); a shorter one is padded with zeros, which keeps all angles. Each vector is
    projected alone: the last bits of a product of several depend on their number.

    Args:
        vector: f32[H], finite.
    """
    if len(vector) <= VECTOR_SIZE:
        return np.pad(vector, (0, VECTOR_SIZE - len(vector)))
    return vector @ _projection(len(vector))


@functools.cache
def _projection(length: int) -> np.ndarray:
    """f32[length, VECTOR_SIZE]."""
    draws = np.random.default_rng(_SEED).standard_normal((length, VECTOR_SIZE), np.float32)
    return draws / np.float32(np.sqrt(VECTOR_SIZE))
