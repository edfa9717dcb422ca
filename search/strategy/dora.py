"""DORA: the places are divided among directions of reasoning, not among paths.

Wang et al.: "Every Rollout Counts: Optimal Resource Allocation for Efficient Test-Time Scaling"
(2025), arXiv:2506.15707, section 3.3, and `dora.py` in the authors' code, WangXinglin/DORA at
eda87c0. Of k paths with scores R_i and cosine similarities S_ij,

    w_i = softmax(R / T_b)_i,  gamma_i = softmax(S_i / T_s)_i,  B_i = round(P w_i gamma_i / Z),

where Z normalises and P is the number of places. gamma_i is small for a path that resembles others.
As in the authors' code, the list of B_i copies is cut at P, or repeated until it has P.

Four things differ. A path's vector is a hidden state of the policy at its end, see
`search.vectors`, and not the output of an embedding model. A finished path keeps one of the N
places, as in REBASE; the published loop samples N steps in each iteration until N paths have
finished. A product within 5e-5 of a half is rounded as that half, since float32 may have moved it.
The authors' code, unlike the paper and this module, first drops each path with round(P w_i) = 0.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import aggregation, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, same_for_all
from ..state import count
from ..types import SearchState
from ..vectors import cosines

_ROUNDING = 1e-4
"""A number this close to a half is a half, which float32 may have moved to either side."""


@functools.cache
def dora(
    *,
    rebase_temperature: float = 0.1,
    balance_alpha: float = 0.01,
    path_score: str = "last",
    vote: str = "weighted",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N paths; directions of equal quality get equal shares of the places.

    Args:
        rebase_temperature: T_b, temperature of the softmax of path scores, > 0.
        balance_alpha: T_s, temperature of the softmax of similarities, > 0; large: only R counts.
        path_score: the score R of a path.
        vote: how the finished paths give the answer.
        sampling: sampling parameters of all steps; the publication has temperature .8.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    for name, value in (
        ("rebase_temperature", rebase_temperature),
        ("balance_alpha", balance_alpha),
    ):
        if not value > 0:
            raise ValueError(f"{name} must be > 0, got {value}")
    aggregated = aggregation(path_score)

    def num_children(state: SearchState) -> Int[Array, " N"]:
        frontier = state.frontier
        shares = directed(
            path_scores(frontier, aggregated) / rebase_temperature,
            cosines(frontier.vector) / balance_alpha,
            frontier.valid,
        )
        return rounded(shares, state.width - count(state.finished))

    return Strategy(
        name="dora",
        plan=same_for_all(num_children, sampling),
        sampling=(sampling,),
        aggregation=aggregated,
        answer=answer_rule(vote),
        needs_vectors=True,
    )


def directed(
    scores: Float[Array, " N"], similarities: Float[Array, "N N"], valid: Bool[Array, " N"]
) -> Float[Array, " N"]:
    """Shares w_i gamma_i / Z of the valid rows, which sum to 1 if there is one; 0 for others.

    Args:
        scores: divided by T_b.
        similarities: divided by T_s; symmetric, the largest of a row on the diagonal.
        valid: rows that take part.
    """
    pairs = jnp.where(valid[None, :], similarities, -jnp.inf)
    # The exponents are <= 0, because the diagonal has the largest number of each row.
    own = jnp.diagonal(similarities)
    alike = jnp.sum(jnp.exp(pairs - own[:, None]), axis=1)
    top = jnp.max(scores, initial=-jnp.inf, where=valid)
    mass = jnp.where(valid, jnp.exp(scores - top) / jnp.maximum(alike, 1.0), 0.0)
    return mass / jnp.maximum(jnp.sum(mass), jnp.finfo(mass.dtype).tiny)


def rounded(shares: Float[Array, " N"], places: Int[Array, ""]) -> Int[Array, " N"]:
    """Numbers of children, round(places * shares), that sum to `places`.

    Halves are rounded to even. The list of copies, in row order, is cut or repeated to `places`.

    Args:
        shares: sum to 1; at least one and at most `places` of them are positive.
        places: number to divide.
    """
    twice = 2.0 * shares * places.astype(shares.dtype)
    nearest = jnp.round(twice)
    twice = jnp.where(jnp.abs(twice - nearest) < _ROUNDING, nearest, twice)
    numbers = jnp.round(twice / 2.0).astype(jnp.int32)
    total = jnp.sum(numbers)
    before = jnp.cumsum(numbers) - numbers
    whole, rest = jnp.divmod(places, jnp.maximum(total, 1))
    return whole * numbers + jnp.clip(rest - before, 0, numbers)
