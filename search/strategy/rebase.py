"""REBASE: the free places go to paths by a softmax of their scores, the best first.

Wu et al.: "Inference Scaling Laws: An Empirical Analysis of Compute-Optimal Inference for
Problem-Solving with Language Models" (2024), arXiv:2408.00724, and `select_softmax` in the authors'
code, thu-wyz/inference_scaling at 0fe7da9. Each finished path keeps one of the N places.

Five things differ from the code. Its float32 shares may be rounded up past a whole number, so that
it allots a place too many; here the numbers sum to the places. Of equal scores the later one comes
first there, and the lower row here. A path that is unfinished at the largest depth has no answer
there; here its last step runs to the end of the answer. A path that is cut at its limit of tokens
keeps its place there, and frees it here. Their variant `softmax_with_truncate` is left out.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import aggregation, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, same_for_all
from ..ranking import segment_ranks
from ..state import count
from ..types import SearchState

_EXACT = 1.0 - 1e-5
"""A share that float32 has rounded up by less than this gets no extra place."""


@functools.cache
def rebase(
    *,
    balance: float = 0.2,
    path_score: str = "last",
    vote: str = "weighted",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N paths; a path of score s gets a share of the places proportional to exp(s / `balance`).

    Args:
        balance: temperature of the softmax, > 0.
        path_score: the score s of a path.
        vote: how the finished paths give the answer; the authors compare several.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if not balance > 0:
        raise ValueError(f"balance must be > 0, got {balance}")
    aggregated = aggregation(path_score)

    def num_children(state: SearchState) -> Int[Array, " N"]:
        frontier = state.frontier
        places = state.width - count(state.finished)
        scores = path_scores(frontier, aggregated) / balance
        return balanced(scores, frontier.valid, places)

    return Strategy(
        name="rebase",
        plan=same_for_all(num_children, sampling),
        sampling=(sampling,),
        aggregation=aggregated,
        answer=answer_rule(vote),
    )


def balanced(
    scores: Float[Array, " N"], valid: Bool[Array, " N"], places: Int[Array, ""]
) -> Int[Array, " N"]:
    """Numbers of children that sum to `places`, if a row is valid.

    From the best row down, each row takes a share of the places left, rounded up. The share is its
    exp(score) divided by the sum of exp(score) over itself and all rows below it.

    Args:
        scores: divided by the softmax's temperature.
        valid: rows that take part; ties go to the lower row.
        places: number to divide, >= 0.
    """
    slots = scores.shape[0]
    rank = segment_ranks(scores, jnp.zeros((slots,), jnp.int32), valid)
    row = (
        jnp.zeros((slots,), jnp.int32).at[rank].set(jnp.arange(slots, dtype=jnp.int32), mode="drop")
    )
    taken = jnp.arange(slots) < jnp.sum(valid)
    top = jnp.max(scores, initial=-jnp.inf, where=valid)
    mass = jnp.where(taken, jnp.exp(scores[row] - top), 0.0)
    below = jnp.maximum(lax.cumsum(mass, reverse=True), jnp.finfo(scores.dtype).tiny)

    def serve(left: Int[Array, ""], share: Float[Array, ""]) -> tuple[jax.Array, jax.Array]:
        number = jnp.minimum(
            jnp.ceil(left.astype(share.dtype) * share * _EXACT).astype(jnp.int32), left
        )
        return left - number, number

    _, numbers = lax.scan(serve, places, mass / below)
    return jnp.where(valid, numbers[jnp.minimum(rank, slots - 1)], 0)
