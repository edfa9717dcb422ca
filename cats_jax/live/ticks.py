"""The functions of the core that the driver compiles for a batch of slots."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

import search

from .results import ROOT


@functools.partial(
    jax.jit, static_argnames=("strategy", "max_depth", "capacity", "frontier_capacity", "slots")
)
def first_states(
    slots: int, **arguments: Any
) -> tuple[search.SearchState, search.SearchState, jax.Array]:
    """The state of a question before its first tick, and the states and keys of empty slots."""
    fresh = search.init(jnp.int32(ROOT), **arguments)
    # A budget of 0 makes a slot terminal from the start: an idle slot asks for nothing.
    idle = fresh.replace(budget=jnp.int32(0))
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), idle)
    return fresh, states, jax.random.split(jax.random.key(0), slots)


@jax.jit
def replace_slots(
    states: search.SearchState,
    keys: jax.Array,
    fresh: search.SearchState,
    seeds: jax.Array,
    opened: jax.Array,
    closed: jax.Array,
) -> tuple[search.SearchState, jax.Array]:
    """Start questions in the opened slots and empty the closed ones that stay without one.

    Args:
        states, keys: states and keys of B slots.
        fresh: state of a question before its first tick.
        seeds: u32[B], seeds of the opened slots' keys; other entries are ignored.
        opened: bool[B], slots that get a question.
        closed: bool[B], slots whose question has ended.

    Returns:
        The new states and keys of the B slots.
    """

    def one(
        state: search.SearchState,
        key: jax.Array,
        seed: jax.Array,
        opens: jax.Array,
        ends: jax.Array,
    ) -> tuple[search.SearchState, jax.Array]:
        new = fresh.replace(budget=jnp.where(opens, fresh.budget, 0))
        state = jax.tree.map(lambda a, b: jnp.where(opens | ends, a, b), new, state)
        return state, jnp.where(opens, jax.random.key(seed), key)

    return jax.vmap(one)(states, keys, seeds, opened, closed)


@functools.partial(jax.jit, static_argnames=("strategy", "base_phase"))
def plan(
    params: Any,
    keys: jax.Array,
    ticks: jax.Array,
    state: search.SearchState,
    strategy: search.Strategy,
    base_phase: bool | None,
) -> search.Plan:
    """`search.plan` of B slots; `ticks`, i32[B], counts the phases since each question began."""

    def one(key: jax.Array, tick: jax.Array, state: search.SearchState) -> search.Plan:
        plan_key, _ = search.tick_keys(key, tick)
        return search.plan(params, plan_key, state, strategy=strategy, base_phase=base_phase)

    return jax.vmap(one)(keys, ticks, state)


@functools.partial(jax.jit, static_argnames=("strategy", "base_phase"))
def commit(
    params: Any,
    state: search.SearchState,
    plan: search.Plan,
    expansion: search.Expansion,
    strategy: search.Strategy,
    base_phase: bool | None,
) -> tuple[search.SearchState, dict[str, Any]]:
    """`search.commit` of B slots; returns the new states and the values that the host reads."""
    commit = functools.partial(search.commit, strategy=strategy, base_phase=base_phase)
    state, output = jax.vmap(commit)(state, plan, expansion)
    return state, _observe(params, plan, state, output, strategy)


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
        "report": output.report,
        "request": plan.request,
        "path_score": output.path_score,
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
