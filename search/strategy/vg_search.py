"""VG-Search: beam search in which the PRM is called at every g-th step only.

Chen, Lu, Okoshi, Mo, Motomura, Fan: "Rethinking Optimal Verification Granularity for
Compute-Efficient Test-Time Scaling" (2025), arXiv:2505.11730, and `beam_search.py` in the authors'
code, hmarkc/VG-Search at 1698233. The first step is verified: N children, of which the best K stay.
Then each kept path grows by g - 1 steps of one child, which the PRM does not score. In the step
after these, it branches into N // K children, and these are verified. Ends are always scored.

What differs from the authors' code:

- Finished paths take places of the beam, as in `beam`. In their code they take no places, the
  remaining paths share all N samples, and the search ends with N finished paths.
- Their PRM scores all steps of a path when it is called; here it scores the newest one. An unscored
  step takes the score of the verification before it. "last" and "min" are then those of the
  verified steps; "mean" and "product" count a verified score once per step.
- Their last iteration branches. Here the last step branches only if it is a verification.
- In their code `granularity` is 1 by default, which is beam search.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..aggregations import aggregation, last
from ..answers import answer_rule
from ..interface import Sampling, Strategy, check_count, request, share_of_candidates
from ..state import with_newest_scores
from ..types import Paths, Request, SearchState
from .fixed import samples_then_share


@functools.cache
def vg_search(
    *,
    granularity: int = 2,
    expansion: int = 4,
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Beam search of width K = max(1, N // expansion) that calls the PRM every `granularity` steps.

    Args:
        granularity: g, at least 1; 1 is beam search.
        expansion: M, at least 1; a path branches into N // K children.
        path_score: path score that ranks paths; the authors' is "last".
        vote: how the finished paths give the answer; the authors take the best.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_count("granularity", granularity, 1)
    check_count("expansion", expansion, 1)

    def verifies(state: SearchState) -> Bool[Array, ""]:
        return state.step % granularity == 0

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Any]:
        asks = verifies(state)
        number = jnp.where(asks, samples_then_share(state), 1)
        return request(state, number, sampling, scored=asks, score_ends=True), state.memory

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
        pool = state.pool
        unseen = pool.valid & ~verifies(state) & ~pool.done
        before = last(pool.step_scores, pool.depth - 1)
        return with_newest_scores(pool, unseen, before), pool.valid, state.memory

    return Strategy(
        name="vg_search",
        plan=plan,
        sampling=(sampling,),
        width=share_of_candidates(expansion),
        aggregation=aggregation(path_score),
        keep=keep,
        answer=answer_rule(vote),
        weights_paths=granularity > 1 and path_score != "last",
    )
