"""Votes of whole paths by the policy's certainty of them: self-certainty, and DeepConf offline.

`self_certainty`: Kang, Zhao, Song: "Scalable Best-of-N Selection for Large Language Models via
Self-Certainty" (2025), arXiv:2502.18581, and the authors' `voting_from_list.py`,
backprop07/Self-Certainty at b17d021. The n paths are ranked by their self-certainty, and the path
of rank r = 1..n casts (n - r + 1)^p votes for its answer. A path without an answer has a rank and
no votes. Three things differ. The log-probabilities come from the sampling and not from a second
pass in half precision. The distributions of a path are those from which its tokens were sampled, as
in the paper; the authors' `confidence_list.py` reads those after each token. A path that was cut
does not count as finished and has no rank.

`deepconf`: Fu et al.: "Deep Think with Confidence" (2025), arXiv:2508.15260, and `utils.py` in the
authors' code, facebookresearch/deepconf at 675529d. The weight of a path's vote is its confidence;
only paths with an answer and a confidence of at least a percentile vote. Three things differ. Here
a token's average is over the 20 most likely tokens, as in the paper; their code adds the sampled
token to these. Their code rounds confidences to three decimals. A path that was cut does not vote
here, and votes there if an answer can be read from it.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..certainty import Certainty
from ..interface import Sampling, Strategy
from ..ranking import segment_ranks
from ..selection import weighted_vote
from ..types import Paths
from .fixed import majority

_ROUNDING = 1e-4
"""Rows by which float32 may miss the place of a quantile."""


@functools.cache
def self_certainty(*, power: float = 0.5, sampling: Sampling = Sampling()) -> Strategy:
    """N whole paths, and a Borda vote by their self-certainty; the PRM is not called.

    Args:
        power: p, >= 0; .5 in the authors' script. 0: majority vote; large: most certain path.

    Raises:
        ValueError: `power` is out of range.
    """
    if not 0.0 <= power < float("inf"):
        raise ValueError(f"power must be a number >= 0, got {power}")

    def answer(params: Any, finished: Paths, context: Any, aggregation: Any) -> Int[Array, ""]:
        weights = borda_weights(finished.certainty, finished.valid, power)
        return weighted_vote(weights, finished.answer, finished.valid)

    return _whole_paths("self_certainty", Certainty("all"), answer, sampling)


@functools.cache
def deepconf(
    *,
    summary: str = "least",
    window: int = 2048,
    top_share: float = 1.0,
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N whole paths; the most confident ones vote with their confidence. The PRM is not called.

    Args:
        summary: from a path's token confidences to its confidence, see `search.certainty`.
        window: tokens of a window, >= 1.
        top_share: share of the answered paths that vote, in (0, 1]; the authors compare .1 and .9.
            A path votes if its confidence is at least the (1 - `top_share`) quantile.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if not 0.0 < top_share <= 1.0:
        raise ValueError(f"top_share must be in (0, 1], got {top_share}")
    certainty = Certainty("top", summary, window)

    def answer(params: Any, finished: Paths, context: Any, aggregation: Any) -> Int[Array, ""]:
        answered = finished.valid & (finished.answer >= 0)
        bar = quantile(finished.certainty, answered, 1.0 - top_share)
        return weighted_vote(
            finished.certainty, finished.answer, finished.valid & (finished.certainty >= bar)
        )

    return _whole_paths("deepconf", certainty, answer, sampling)


def borda_weights(
    certainty: Float[Array, " N"], valid: Bool[Array, " N"], power: float
) -> Float[Array, " N"]:
    """((n - r + 1) / n)^power of the r-th most certain of n valid rows; ties go to the lower row.

    The division by n changes no vote and keeps large powers finite.
    """
    ranks = segment_ranks(certainty, jnp.zeros(certainty.shape, jnp.int32), valid)
    number = jnp.maximum(jnp.sum(valid, dtype=jnp.int32), 1)
    share = (number - ranks).astype(jnp.float32) / number.astype(jnp.float32)
    return jnp.where(valid, jnp.maximum(share, 0.0) ** power, 0.0)


def quantile(
    values: Float[Array, " N"], valid: Bool[Array, " N"], share: float
) -> Float[Array, ""]:
    """`numpy.quantile` of the valid rows, by linear interpolation; infinite without a valid row."""
    ordered = jnp.sort(jnp.where(valid, values, jnp.inf))
    last = jnp.maximum(jnp.sum(valid, dtype=jnp.int32) - 1, 0)
    place = share * last.astype(values.dtype)
    # Rounding must not move the bar above a row that is the quantile: the row would not vote.
    row = jnp.round(place)
    place = jnp.where(jnp.abs(place - row) < _ROUNDING, row, place)
    low = jnp.floor(place).astype(jnp.int32)
    below, above = ordered[low], ordered[jnp.minimum(low + 1, last)]
    # Two infinite numbers have no difference.
    rest = (place - low.astype(values.dtype)) * jnp.where(above > below, above - below, 0.0)
    return below + rest


def _whole_paths(name: str, certainty: Certainty, answer: Any, sampling: Sampling) -> Strategy:
    usual = majority(sampling=sampling)
    return dataclasses.replace(
        usual, name=name, answer=answer, certainty=certainty, weights_paths=True
    )
