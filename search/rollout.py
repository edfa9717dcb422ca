"""A whole search in the graph: plan, expand, commit under one `lax.scan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from .step import commit, plan
from .strategy.base import Strategy
from .types import Expansion, Request, SearchState, StepOutput

ExpandFn = Callable[[Any, jax.Array, Request], Expansion]
"""`(params, key, request) -> expansion`; rows in allocation order, `key` is consumed."""


def rollout(
    params: Any,
    expand_params: Any,
    key: jax.Array,
    state: SearchState,
    *,
    strategy: Strategy,
    expand_fn: ExpandFn,
) -> tuple[SearchState, StepOutput]:
    """Run a search to its end.

    Args:
        params: of the strategy's policy.
        expand_params: of `expand_fn`.
        key: consumed; tick t uses `tick_keys(key, t)`, as the host driver does.
        state: from `search.init`; its depth capacity bounds the number of ticks.
        strategy: static.
        expand_fn: static; a simulator, or a bank of recorded children.

    Returns:
        The final state, and the outputs of all `num_phases * T` ticks, stacked. Ticks after the
        end change nothing and have weight 0.
    """

    def one_tick(state: SearchState, index: jax.Array) -> tuple[SearchState, StepOutput]:
        return tick(
            params, expand_params, key, state, index, strategy=strategy, expand_fn=expand_fn
        )

    num_ticks = strategy.num_phases * state.pool.step_scores.shape[1]
    return lax.scan(one_tick, state, jax.numpy.arange(num_ticks, dtype=jax.numpy.int32))


def tick(
    params: Any,
    expand_params: Any,
    key: jax.Array,
    state: SearchState,
    index: jax.Array,
    *,
    strategy: Strategy,
    expand_fn: ExpandFn,
) -> tuple[SearchState, StepOutput]:
    """One tick of `rollout`, number `index`; `key` is the whole search's."""
    plan_key, expand_key = tick_keys(key, index)
    planned = plan(params, plan_key, state, strategy=strategy)
    expansion = expand_fn(expand_params, expand_key, planned.request)
    return commit(state, planned, expansion, strategy=strategy)


def tick_keys(key: jax.Array, tick: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    """Keys of one tick of a search: for `plan` and for `expand_fn`."""
    plan_key, expand_key = jax.random.split(jax.random.fold_in(key, tick))
    return plan_key, expand_key
