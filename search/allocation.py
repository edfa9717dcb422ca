"""Allocation of the remaining candidates among frontier slots that request more than are left."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


def allocate(
    wanted: Int[Array, " N"],
    keys: Float[Array, " N"],
    valid: Bool[Array, " N"],
    available: Int[Array, ""],
) -> Int[Array, " N"]:
    """Grant the wanted samples slot by slot, best path first, until none are available.

    The last slot served may get fewer samples than it wants.

    Args:
        wanted: samples each slot requests; a negative number counts as 0.
        keys: comparison keys; the slot with the largest key is served first (ties: lower slot).
        valid: slots that may get samples.
        available: see `state.candidates_left`.

    Returns:
        Samples granted to each slot; their sum is at most `available`.
    """
    # Without the barrier XLA computes a slot's inputs anew for each of its pairs.
    wanted = jnp.where(valid, jnp.maximum(wanted, 0), 0)
    wanted, keys, valid = lax.optimization_barrier((wanted, keys, valid))
    rows = jnp.arange(keys.shape[0], dtype=jnp.int32)
    better = keys[None, :] > keys[:, None]
    tie = (keys[None, :] == keys[:, None]) & (rows[None, :] < rows[:, None])
    served_before = jnp.sum(
        jnp.where((better | tie) & valid[None, :], wanted[None, :], 0), axis=1, dtype=jnp.int32
    )
    return jnp.clip(available - served_before, 0, wanted)
