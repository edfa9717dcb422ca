"""The functions of the core that the driver compiles for a batch of slots.

The loop that calls them is in `driver`, and the wait for the models in `expander`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import search

from .core_program import core_program
from .results import ROOT


class SearchInputs(NamedTuple):
    """NumPy values that may differ between the searches of a batch.

    Attributes:
        num_candidates: i32[], N, cap on the candidates of one step.
        budget: i32[], cap on the candidates of the whole search; 0 ends the search at once.
        context: f32[] each, price of the search with sparsity and calibration of its PRM.
        key: u32[...], data of the PRNG key of the search.
    """

    num_candidates: Any
    budget: Any
    context: search.Context
    key: Any


@core_program("strategy", "max_depth", "capacity", "frontier_capacity")
def first_states(inputs: SearchInputs, **shapes: Any) -> search.SearchState:
    """States of B searches before their first tick; `inputs` has leaves with a leading axis B."""

    def one(inputs: SearchInputs) -> search.SearchState:
        return search.init(
            jnp.int32(ROOT),
            num_candidates=inputs.num_candidates,
            budget=inputs.budget,
            context=inputs.context,
            **shapes,
        )

    return jax.vmap(one)(inputs)


@core_program("strategy")
def plan(
    params: Any,
    keys: jax.Array,
    ticks: jax.Array,
    state: search.SearchState,
    strategy: search.Strategy,
) -> search.Plan:
    """`search.plan` of B slots.

    Args:
        params: parameters of the strategy's controller.
        keys: u32[B, ...], data of the keys of the searches.
        ticks: i32[B], number of phases since each question began.
        state: states of the slots.
        strategy: search strategy; static.
    """

    def one(key: jax.Array, tick: jax.Array, state: search.SearchState) -> search.Plan:
        plan_key, _ = search.tick_keys(jax.random.wrap_key_data(key), tick)
        return search.plan(params, plan_key, state, strategy=strategy)

    return jax.vmap(one)(keys, ticks, state)


@core_program("strategy")
def commit(
    params: Any,
    state: search.SearchState,
    plan: search.Plan,
    expansion: search.Expansion,
    strategy: search.Strategy,
) -> tuple[search.SearchState, dict[str, Any]]:
    """`search.commit` of B slots; returns the new states and the values that the host reads.

    With `search.Strategy.quiet_ends_step`, a phase that samples nothing is committed as the last
    one of its step. Otherwise most of, say, twelve phases would be empty.
    """
    if strategy.quiet_ends_step:
        is_quiet = (state.phase > 0) & ~jnp.any(plan.request.num_samples > 0, axis=1)
        last = jnp.int32(strategy.num_phases - 1)
        state = state.replace(phase=jnp.where(is_quiet, last, state.phase))
    commit = functools.partial(search.commit, strategy=strategy)
    state, output = jax.vmap(commit)(state, plan, expansion)
    return state, _observe(params, plan, state, output, strategy)


@core_program("recorder")
def record(memory: Any, tick: search.Tick, recorder: search.Recorder) -> tuple[Any, Any]:
    """The recorder's memories and records of B slots; each search starts with a fresh memory.

    `memory` holds the memories after the slots' last ticks; None before the batch's first tick.
    """
    fresh = jax.vmap(recorder.init)(tick.before)
    begins = (tick.before.step == 0) & (tick.before.phase == 0)
    memory = fresh if memory is None else jax.vmap(_select)(begins, fresh, memory)
    return jax.vmap(recorder.record)(memory, tick)


@core_program()
def where_slots(chosen: jax.Array, on_true: Any, on_false: Any) -> Any:
    """Leaves `[B, ...]` of `on_true` for the slots in `chosen`, bool[B], else of `on_false`."""
    return jax.vmap(_select)(chosen, on_true, on_false)


def _select(condition: jax.Array, on_true: Any, on_false: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), on_true, on_false)


def _observe(
    params: Any,
    plan: search.Plan,
    state: search.SearchState,
    output: search.StepOutput,
    strategy: search.Strategy,
) -> dict[str, Any]:
    """The values of a tick that the host reads in one transfer, each with a leading axis B."""

    def answer(state: search.SearchState) -> jax.Array:
        return search.answer(params, state, strategy=strategy)

    return {
        "output": output,
        "request": plan.request,
        "frontier_valid": state.frontier.valid,
        "frontier_embedding": state.frontier.embedding,
        "finished_valid": state.finished.valid,
        "finished_embedding": state.finished.embedding,
        "chosen": jax.vmap(answer)(state),
        "terminal": jax.vmap(search.is_terminal)(state),
        "cut_by_budget": _cut_by_budget(state),
        "step": state.step,
        "phase": state.phase,
        "used": state.used,
    }


def _cut_by_budget(state: search.SearchState) -> jax.Array:
    """bool[B], whether the budget is spent while paths could still grow."""
    can_grow = jnp.any(state.frontier.valid, axis=1) & (state.step < state.max_steps)
    full = jnp.sum(state.finished.valid, axis=1) >= state.width
    return (state.spent >= state.budget) & can_grow & ~full
