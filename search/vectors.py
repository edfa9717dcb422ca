"""Vectors of steps, for methods that compare the meanings of steps or paths.

A step's vector is a hidden state of the policy near the step's end. It depends on the question and
on the whole path. Only the angles between vectors have a meaning. The bridge to the models projects
every vector at random to `VECTOR_SIZE` numbers, so that the state stays small.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

VECTOR_SIZE = 128
"""D, numbers of a vector. A random projection to D numbers changes the cosine c of two directions
by about (1 - c^2) / sqrt(D): by .09 for unrelated ones, and by .009 at c = .95."""

_SMALLEST_NORM = 1e-12
"""Smallest norm that a vector counts with, so that zeros have the cosine 0 with all others."""


def cosines(vectors: Float[Array, "N D"]) -> Float[Array, "N N"]:
    """Cosine similarity of all pairs of rows, in [-1, 1]."""
    norms = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / jnp.maximum(norms, _SMALLEST_NORM)
    # A GPU's shorter products are off by 1e-3, which a temperature of .01 makes a factor of 1.1.
    return jnp.clip(jnp.matmul(units, units.T, precision=lax.Precision.HIGHEST), -1.0, 1.0)
