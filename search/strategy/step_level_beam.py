"""Step-level beam search: the beam search of AlphaMath, over distinct steps and newest scores.

Chen, Liao, Li, Fan: "AlphaMath Almost Zero: Process Supervision without Process" (2024),
arXiv:2405.03553, and `step_beam.py` in the authors' code, MARIO-Math-Reasoning/Super_MARIO at
c11d2f2. Their beam has the width B1 (`step_beam_width`); each of its nodes gets B2 children
(`n_generate_sample`), and the root gets B1 * B2. A node that ends leaves the beam and lowers B1 for
good. The finished path of the highest value gives the answer.

Three things differ from the authors' code. A PRM replaces the value head of their policy. A child
with a blank text is invalid. The last step runs to the answer's end; their code drops such paths.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Int

from ..aggregations import aggregation
from ..answers import answer_rule
from ..interface import (
    Sampling,
    Strategy,
    check_count,
    check_flag,
    keep_children,
    same_for_all,
    share_of_candidates,
)
from ..types import SearchState
from .fixed import keep_distinct


@functools.cache
def step_level_beam(
    *,
    n_generate_sample: int = 5,
    remove_duplicate: bool = True,
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Beam search of width B1 = K = max(1, N // B2), with B2 children per path: N = B1 * B2.

    `beam` samples N // K children per path, which is more than B2 where B2 does not divide N.

    Args:
        n_generate_sample: B2, at least 1; N // K if that is less.
        remove_duplicate: whether children of one path with equal texts count once in the ranking.
        path_score: path score that ranks paths; the authors' is "last".
        vote: how the finished paths give the answer; the authors take the best.
        sampling: sampling parameters of all steps; the authors compare the temperatures .6 and 1.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_count("n_generate_sample", n_generate_sample, 1)
    check_flag("remove_duplicate", remove_duplicate)

    def num_samples(state: SearchState) -> Int[Array, ""]:
        each = jnp.minimum(n_generate_sample, state.num_candidates // state.width)
        return jnp.where(state.step == 0, state.width * each, each)

    return Strategy(
        name="step_level_beam",
        plan=same_for_all(num_samples, sampling),
        sampling=(sampling,),
        width=share_of_candidates(n_generate_sample),
        aggregation=aggregation(path_score),
        keep=keep_distinct if remove_duplicate else keep_children,
        answer=answer_rule(vote),
    )
