"""ETS: REBASE on the leaves that an integer program keeps.

Hooper et al.: "ETS: Efficient Tree Search for Inference-Time Scaling" (2025), arXiv:2502.13575, and
`select_softmax_costmodel` in the authors' code, SqueezeAILab/ETS at ac937a7. In each step the
program of `ets_program` keeps the leaves that together have high shares in REBASE, few nodes (their
keys and values take memory) and many clusters of steps. Only kept leaves get places in `rebase`.

Five things differ. A step's vector is a hidden state of the policy at its end, see
`search.vectors`, and not the output of an embedding model that reads the text of the step alone.
The places are those of `rebase`: their float32 shares may allot a place too many, also before the
program, whose optimum this can change. Among equal scores the lower row comes first; in their code
the later row comes first when the kept leaves get their places. A path that is unfinished at the
largest depth has no answer there; here its last step runs to the end of the answer. Their solver
has no limit; `ets_program` has one, which the search reports, and may choose another set of leaves
if several are equally good. The code's guard for steps that all have one text is left out, because
it changes no set: such steps are one cluster, which any leaf covers.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..aggregations import aggregation, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, request
from ..state import count, is_terminal, pack
from ..types import Paths, Plan, Request, SearchState, Unsolved
from .ets_program import Program, kept_leaves
from .rebase import balanced
from .types import Ancestors


@functools.cache
def ets(
    *,
    softmax_temperature: float = 0.2,
    lambdac: float = 1.0,
    lambdas: float = 1.5,
    cluster_distance: float = 0.05,
    path_score: str = "last",
    vote: str = "weighted",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """N paths; an integer program keeps leaves that are good, share nodes and differ.

    Args:
        softmax_temperature: temperature of the softmax of REBASE, > 0.
        lambdac: weight of the kept nodes, in [0, 1e4]. 0 keeps every leaf and reads no vectors.
        lambdas: weight of the covered clusters, in [0, 1e4]; as published, 1.5 at N = 16, 1.4 at 64
            and 1.45 at 256. 0 reads no vectors.
        cluster_distance: cosine distance in [0, 2] at which the clusters are cut.
        path_score: the score of a path.
        vote: how the finished paths give the answer.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if not softmax_temperature > 0:
        raise ValueError(f"softmax_temperature must be > 0, got {softmax_temperature}")
    program = Program(lambdac=lambdac, lambdas=lambdas, cluster_distance=cluster_distance)
    aggregated = aggregation(path_score)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Ancestors]:
        frontier = state.frontier
        places = state.width - count(state.finished)
        scores = path_scores(frontier, aggregated) / softmax_temperature
        kept, is_cut = _kept(program, balanced(scores, frontier.valid, places), state)
        numbers = balanced(scores, frontier.valid & kept, places)
        return request(state, numbers, sampling), state.memory.replace(is_cut=is_cut)

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Ancestors]:
        pool, slots = state.pool, state.frontier.valid.shape[0]
        # There are no more children than free places, so that none is pruned.
        source, is_row = pack(pool.valid & ~pool.done, slots)
        depths = jnp.arange(state.memory.slot.shape[1], dtype=jnp.int32)
        above = state.memory.slot[pool.parent]
        lines = jnp.where(depths[None, :] == pool.depth[:, None] - 1, pool.parent[:, None], above)
        slot = jnp.where(is_row[:, None], lines[source], -1)
        return pool, pool.valid, state.memory.replace(slot=slot)

    return Strategy(
        name="ets",
        plan=plan,
        keep=keep,
        init_memory=_no_ancestors,
        report=_report,
        sampling=(sampling,),
        aggregation=aggregated,
        answer=answer_rule(vote),
        needs_vectors=lambdac > 0 and lambdas > 0,
    )


def _no_ancestors(state: SearchState) -> Ancestors:
    slot = jnp.full(state.frontier.step_scores.shape, -1, jnp.int32)
    return Ancestors(slot=slot, is_cut=jnp.bool_(False))


def _report(state: SearchState, plan: Plan) -> Unsolved:
    return Unsolved(count=plan.memory.is_cut.astype(jnp.int32))


def _kept(
    program: Program, numbers: Int[Array, " N"], state: SearchState
) -> tuple[Bool[Array, " N"], Bool[Array, ""]]:
    """The leaves that the program keeps, and whether its solver reached its limit."""
    leaves = state.frontier.valid & ~is_terminal(state)
    return kept_leaves(program, numbers, state.memory.slot, state.frontier.vector, leaves)
