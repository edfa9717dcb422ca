"""Features of a learned stopper after each path: statistics of the answers, and the setting."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..state import MAX_CANDIDATES
from .path_by_path import leader_stays

STOPPING_FEATURES = (
    "begun_share",
    "log_begun",
    "num_candidates",
    "answered_share",
    "distinct_share",
    "first_votes",
    "first_share",
    "second_share",
    "leader_stays",
    "price",
    "best_score",
    "mean_score",
    "first_best_score",
    "first_weight",
)
"""The features by name, in order. The last four are of scores, and 0 for a stopper without them.

Paths begun by N, and their logarithm; log N; paths with an answer by paths begun, and distinct
answers by paths with one. Votes of the most frequent answer, as a logarithm; its share of the
votes, and that of the second; `path_by_path.leader_stays`; the logarithm of the price. The best and
the mean score of a path with an answer; the best score of the most frequent answer, and its share
of the votes weighted by score. Logarithms are divided by constants, to about [0, 1]."""

_LOG_MOST = math.log(MAX_CANDIDATES + 1)
_PRICE_UNIT = 1e-3
_LOG_MOST_PRICE = 12.0


class Answers(NamedTuple):
    """The paths that a search has finished, one per row."""

    valid: jax.Array  # bool[N]
    answer: jax.Array  # i32[N]; class of equal answers, -1 for none
    score: jax.Array  # f32[N]; path score in [0, 1]


def stopping_features(
    answers: Answers,
    begun: Int[Array, ""],
    num_candidates: Int[Array, ""],
    price: Float[Array, ""],
    *,
    uses_scores: bool,
) -> Float[Array, " F"]:
    """The features `STOPPING_FEATURES` of a search.

    Args:
        begun: paths begun so far, at least 1, also those that did not finish.
        num_candidates: N.
        price: per 100 paths, in units of a right answer, >= 0.
    """
    voter = answers.valid & (answers.answer >= 0)
    same = voter[None, :] & voter[:, None] & (answers.answer[None, :] == answers.answer[:, None])
    votes = jnp.sum(same, axis=1, dtype=jnp.float32)
    number = jnp.maximum(jnp.sum(voter, dtype=jnp.float32), 1.0)
    first = jnp.max(votes, initial=0.0)
    leads = voter & (answers.answer == answers.answer[jnp.argmax(votes)])
    second = jnp.max(jnp.where(leads, 0.0, votes), initial=0.0)
    distinct = jnp.sum(jnp.where(voter, 1.0 / jnp.maximum(votes, 1.0), 0.0))
    score = jnp.where(voter, answers.score, 0.0)
    total, of_first = jnp.sum(score), jnp.sum(jnp.where(leads, score, 0.0))
    started = begun.astype(jnp.float32)
    most = num_candidates.astype(jnp.float32)
    of_scores = jnp.stack(
        [
            jnp.max(score, initial=0.0),
            total / number,
            jnp.max(jnp.where(leads, score, 0.0), initial=0.0),
            of_first / jnp.maximum(total, 1e-6),
        ]
    )
    return jnp.concatenate(
        [
            jnp.stack(
                [
                    started / most,
                    jnp.log(started) / _LOG_MOST,
                    jnp.log(most) / _LOG_MOST,
                    jnp.sum(voter, dtype=jnp.float32) / started,
                    distinct / number,
                    jnp.log1p(first) / _LOG_MOST,
                    first / number,
                    second / number,
                    leader_stays(answers.answer, answers.valid),
                    jnp.log1p(price / _PRICE_UNIT) / _LOG_MOST_PRICE,
                ]
            ),
            of_scores if uses_scores else jnp.zeros_like(of_scores),
        ]
    )


def answer_prefixes(answers: Answers) -> Answers:
    """The answers after 1 to N paths: leaves [N, N], row n - 1 has the first n paths."""
    rows = jnp.arange(answers.valid.shape[0], dtype=jnp.int32)
    valid = (rows[None, :] <= rows[:, None]) & answers.valid[None, :]
    return Answers(
        valid,
        jnp.broadcast_to(answers.answer, valid.shape),
        jnp.broadcast_to(answers.score, valid.shape),
    )
