"""Sequential halving over paths: rounds of equal cost, each of which drops the worse half.

Karnin, Koren, Somekh: "Almost Optimal Exploration in Multi-Armed Bandits" (ICML 2013), algorithm 1,
with a budget of B pulls and n arms: there are R = ceil(log2 n) rounds; in round r, each of the |S|
arms left is pulled floor(B / (|S| R)) times, and the best ceil(|S| / 2) go into the next round. The
last arm is the answer.

The algorithm has arms with independent noisy rewards. Here an arm is a path, a pull is a step of
it, and its value is its path score, not a mean of rewards. Five things follow. A path that ends
needs no more pulls and stays an arm. A path whose step is invalid is dropped. A round has at least
one step. The last path is written to its end, and a round ends when all paths have ended. If no arm
has an answer, the finished paths that were dropped after the step in which they ended give it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..aggregations import Aggregation, aggregation, path_keys
from ..answers import answer_rule
from ..interface import Sampling, Strategy, same_for_all
from ..ranking import prune, prune_all
from ..state import MAX_CANDIDATES, count, pack
from ..types import Context, Paths, SearchState
from .fixed import samples_then_one
from .types import Halving

_ROUNDS = [max(1, math.ceil(math.log2(max(number, 1)))) for number in range(MAX_CANDIDATES + 1)]
"""R for each n."""


@functools.cache
def sequential_halving(
    *, path_score: str = "min", vote: str = "best", sampling: Sampling = Sampling()
) -> Strategy:
    """N whole paths, of which the worse half is dropped after each round; B is the budget.

    Args:
        path_score: path score that is the value of a path, finished or not.
        vote: how the finished arms give the answer; there is one after the last round.

    Raises:
        ValueError: an argument is unknown.
    """
    aggregated, rule = aggregation(path_score), answer_rule(vote)

    def keep_finished(state: SearchState) -> Paths:
        old, _ = _halved(state, aggregated)
        return state.finished.replace(weight=old.astype(jnp.float32))

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Halving]:
        pool, left, finished = state.pool, state.memory.steps_left, count(state.finished)
        old, new = _halved(state, aggregated)
        # A recipe may set fewer places than N.
        marked = prune(path_keys(pool, aggregated), new, state.width - finished)
        _, is_new = pack(marked & pool.done, old.shape[0], finished)
        number = jnp.sum(old, dtype=jnp.int32) + jnp.sum(new, dtype=jnp.int32)
        steps_left = jnp.where(left <= 1, round_length(state, number), left - 1)
        return pool, marked, Halving(is_arm=old | is_new, steps_left=steps_left)

    def answer(
        params: Any, finished: Paths, context: Context, aggregation: Aggregation
    ) -> Int[Array, ""]:
        arms = finished.replace(valid=finished.valid & (finished.weight > 0))
        row = rule(params, arms, context, aggregation)
        dropped = finished.replace(weight=finished.valid.astype(jnp.float32))
        return jnp.where(row < 0, rule(params, dropped, context, aggregation), row)

    return Strategy(
        name="sequential_halving",
        plan=same_for_all(samples_then_one, sampling),
        sampling=(sampling,),
        aggregation=aggregated,
        keep=keep,
        keep_finished=keep_finished,
        answer=answer,
        init_memory=_first_round,
        weights_paths=True,
    )


def _first_round(state: SearchState) -> Halving:
    return Halving(
        is_arm=jnp.zeros(state.frontier.valid.shape, bool),
        steps_left=round_length(state, state.num_candidates),
    )


def _halved(
    state: SearchState, aggregated: Aggregation
) -> tuple[Bool[Array, " S"], Bool[Array, " N"]]:
    """The finished paths and the children that are arms after this step."""
    is_end = state.memory.steps_left <= 1
    return prune_all(
        state,
        aggregated,
        state.memory.is_arm,
        lambda number: jnp.where(is_end, (number + 1) // 2, number),
    )


def round_length(state: SearchState, number: jax.Array) -> Int[Array, ""]:
    """Steps of a round with `number` arms: floor(B / (number * R)), at least 1."""
    rounds = jnp.asarray(_ROUNDS, jnp.int32)[state.num_candidates]
    return jnp.maximum(state.budget // (jnp.maximum(number, 1) * rounds), 1)
