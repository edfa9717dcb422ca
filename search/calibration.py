"""From raw PRM scores to probabilities: how much to trust this PRM, and how much siblings' votes.

PRMs differ in what a score of .7 means and in whether they can tell siblings apart. A logistic
model with three numbers per PRM, fitted on training questions (`cats-jax calibrate`), puts all on
one scale:

    P(step right | its parent is right) = sigmoid(intercept + slope * logit(s) + agreement * e)

`s` is the PRM's score of the step, and `e` the log-odds of the step's text among its siblings,
log((m + 1/2) / (n - m + 1/2)) for m of n children (the empirical logit; Haldane 1956). For a PRM
that cannot rank steps the slope is near 0, and only the vote among siblings counts. The product
along a path is P(path right). The paper has no calibration: it compares raw scores.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .types import Calibration, Paths

MIN_SCORE = 1e-2
"""Scores are clipped to [.01, .99] before the logit. On the embedded world the likelihood is
highest at about this value."""


def calibrated_score(
    score: Float[Array, "*B"],
    same_text: Float[Array, "*B"],
    num_siblings: Float[Array, "*B"],
    calibration: Calibration,
) -> Float[Array, "*B"]:
    """P(step right | its parent is right), in (0, 1).

    Args:
        score: raw PRM score of the step, in [0, 1].
        same_text: m >= 1, number of the parent's children with the step's text, the step included.
        num_siblings: n >= m, number of the parent's children, the step included.
        calibration: calibration of the PRM.
    """
    clipped = jnp.clip(score, MIN_SCORE, 1.0 - MIN_SCORE)
    logit = jnp.log(clipped) - jnp.log1p(-clipped)
    votes = jnp.log(same_text + 0.5) - jnp.log(num_siblings - same_text + 0.5)
    return jax.nn.sigmoid(
        calibration.intercept + calibration.slope * logit + calibration.agreement * votes
    )


def calibrate_children(pool: Paths, calibration: Calibration) -> Paths:
    """The pool with the newest step's score of every valid row calibrated.

    Args:
        pool: children of one step, with raw newest scores; `text` is equal for equal texts
            under one parent.
        calibration: calibration of the PRM.
    """
    same_text, num_siblings = sibling_counts(pool.parent, pool.text, pool.valid)
    newest = (
        jnp.arange(pool.step_scores.shape[1], dtype=jnp.int32)[None, :] == pool.depth[:, None] - 1
    )
    score = jnp.sum(jnp.where(newest, pool.step_scores, 0.0), axis=1)
    probability = calibrated_score(
        score,
        jnp.maximum(same_text, 1).astype(jnp.float32),
        jnp.maximum(num_siblings, 1).astype(jnp.float32),
        calibration,
    )
    replaces = newest & pool.valid[:, None]
    return pool.replace(step_scores=jnp.where(replaces, probability[:, None], pool.step_scores))


def sibling_counts(
    parent: Int[Array, " N"], text: Int[Array, " N"], valid: Bool[Array, " N"]
) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
    """Counts per valid row: siblings with the row's text, and all siblings; the row is included.

    Both counts are 0 for rows that are not valid.
    """
    # Without the barrier XLA computes a row's inputs anew for each of its pairs.
    parent, text, valid = lax.optimization_barrier((parent, text, valid))
    sibling = (parent[None, :] == parent[:, None]) & valid[None, :] & valid[:, None]
    same = sibling & (text[None, :] == text[:, None])
    return jnp.sum(same, axis=1, dtype=jnp.int32), jnp.sum(sibling, axis=1, dtype=jnp.int32)
