"""From raw PRM scores to probabilities, with the help of the siblings and of the policy.

PRMs differ in the meaning of a score and in how well they separate siblings. A logistic model per
PRM, fitted on training questions (`cats-jax calibrate`), puts all scores on one scale:

    P(step right | its parent is right)
        = sigmoid(intercept + slope * logit(s) + agreement * e + likelihood * logit(p))

`s` is the PRM's score of the step. `e` are the log-odds of the step's text among its siblings,
log((m + 1/2) / (n - m + 1/2)) for m of n children (the empirical logit; Haldane 1956). `p` is the
step's probability under the policy at temperature 1, which the siblings' votes estimate. A PRM that
cannot rank steps has a slope near 0. For a step that the PRM has not scored,

    P(step right | its parent is right)
        = sigmoid(unscored_intercept + unscored_likelihood * logit(p))

The product along a path is P(path right). The paper has no calibration: it compares raw scores.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .aggregations import last
from .state import with_newest_scores
from .types import Calibration, Paths

MIN_SCORE = 1e-2
"""Scores are clipped to [.01, .99] before the logit, about the best fit on the embedded world."""

MIN_PROBABILITY = 1e-6
"""A step's probability under the policy is clipped to [1e-6, 1 - 1e-6] before the logit."""


def calibrated_score(
    score: Float[Array, "*B"],
    same_text: Float[Array, "*B"],
    num_siblings: Float[Array, "*B"],
    log_prob: Float[Array, "*B"],
    calibration: Calibration,
) -> Float[Array, "*B"]:
    """P(step right | its parent is right) of a scored step, in (0, 1).

    Args:
        score: raw PRM score of the step, in [0, 1].
        same_text: m >= 1, number of the parent's children with the step's text, the step included.
        num_siblings: n >= m, number of the parent's children, the step included.
        log_prob: of the step under the policy, nats; NaN: unknown, counts as a probability of 1/2.
    """
    clipped = jnp.clip(score, MIN_SCORE, 1.0 - MIN_SCORE)
    logit = jnp.log(clipped) - jnp.log1p(-clipped)
    votes = jnp.log(same_text + 0.5) - jnp.log(num_siblings - same_text + 0.5)
    return jax.nn.sigmoid(
        calibration.intercept
        + calibration.slope * logit
        + calibration.agreement * votes
        + calibration.likelihood * likelihood_odds(log_prob)
    )


def unscored_probability(
    log_prob: Float[Array, "*B"], calibration: Calibration
) -> Float[Array, "*B"]:
    """P(step right | its parent is right) of a step without a score, in (0, 1).

    Args:
        log_prob: as for `calibrated_score`.
    """
    return jax.nn.sigmoid(
        calibration.unscored_intercept + calibration.unscored_likelihood * likelihood_odds(log_prob)
    )


def likelihood_odds(log_prob: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Log-odds of a log-probability, clipped; 0 for NaN."""
    smallest = jnp.log(jnp.float32(MIN_PROBABILITY))
    clipped = jnp.clip(log_prob, smallest, jnp.log1p(-jnp.float32(MIN_PROBABILITY)))
    return jnp.where(jnp.isnan(log_prob), 0.0, clipped - jnp.log(-jnp.expm1(clipped)))


def calibrate_children(pool: Paths, calibration: Calibration) -> Paths:
    """The pool, in which the newest step of every valid row has a calibrated score.

    A row without a PRM score takes the score of a scored sibling with the same text, and then
    counts as read. If the PRM has scored any sibling, it has read their common path.

    Args:
        pool: children of one step, with raw newest scores.
    """
    same_text, num_siblings = sibling_counts(pool.parent, pool.text, pool.valid)
    newest = last(pool.step_scores, pool.depth)
    score, is_scored, path_is_read = _scores_of_equal_texts(pool, newest)
    probability = jnp.where(
        is_scored,
        calibrated_score(
            score,
            jnp.maximum(same_text, 1).astype(jnp.float32),
            jnp.maximum(num_siblings, 1).astype(jnp.float32),
            pool.log_prob,
            calibration,
        ),
        unscored_probability(pool.log_prob, calibration),
    )
    return with_newest_scores(pool, pool.valid, probability).replace(
        unread=jnp.where(is_scored, 0, jnp.where(path_is_read, pool.num_tokens, pool.unread))
    )


def _scores_of_equal_texts(
    pool: Paths, score: Float[Array, " N"]
) -> tuple[Float[Array, " N"], Bool[Array, " N"], Bool[Array, " N"]]:
    """Per row: a score, whether its text has a score, and whether any sibling has one.

    A row has a score if `unread` is 0. Others take the best score of siblings with their text.
    """
    parent, text, scored, score = lax.optimization_barrier(
        (pool.parent, pool.text, pool.valid & (pool.unread == 0), score)
    )
    siblings = (parent[None, :] == parent[:, None]) & scored[None, :]
    same = siblings & (text[None, :] == text[:, None])
    best = jnp.max(jnp.where(same, score[None, :], 0.0), axis=1)
    best = jnp.where(scored, score, best)
    return best, jnp.any(same, axis=1), jnp.any(siblings, axis=1)


def sibling_counts(
    parent: Int[Array, " N"], text: Int[Array, " N"], valid: Bool[Array, " N"]
) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
    """Per valid row, itself included: siblings with its text, and all siblings; 0 for others."""
    # Without the barrier XLA computes a row's inputs anew for each of its pairs.
    parent, text, valid = lax.optimization_barrier((parent, text, valid))
    sibling = (parent[None, :] == parent[:, None]) & valid[None, :] & valid[:, None]
    same = sibling & (text[None, :] == text[:, None])
    return jnp.sum(same, axis=1, dtype=jnp.int32), jnp.sum(sibling, axis=1, dtype=jnp.int32)
