"""Whole searches in the graph: `rollout` of one question, `play` of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, Key

from .interface import Strategy
from .state import is_terminal
from .step import commit, plan
from .types import Expansion, Plan, Request, SearchState, StepOutput

ExpandFn = Callable[[Any, jax.Array, Request], Expansion]
"""`(params, key, request) -> expansion`. The rows are in allocation order; `key` is consumed."""


class Task(NamedTuple):
    """A question of an environment, with the inputs of its search.

    Attributes:
        params: parameters of the environment's expand function.
        root: embedding of the question, for `search.init`.
        context: sparsity and calibration of the PRM; the caller sets the price.
        max_depth: i32[]; most steps of a path.
        right_answer: i32[]; class of the right answer, for graders and oracles only.
        prompt_tokens: i32[]; tokens of the question that the PRM reads before its first step.
    """

    params: Any
    root: Any
    context: Any
    max_depth: Any
    right_answer: Any
    prompt_tokens: Any = 0


class Environment(NamedTuple):
    """A source of questions with the expand function that answers their searches' requests.

    Attributes:
        reset: `(tables, key) -> Task`, a random question; consumes the key.
        expand: `capacity -> ExpandFn`; the expansions have `capacity` rows.
        axes: `jax.vmap` axes of `Task.params` in a batch of tasks: None for tables that all tasks
            share (they are not copied); 0 for the rest.
    """

    reset: Callable[[Any, jax.Array], Task]
    expand: Callable[[int], ExpandFn]
    axes: Any = 0

    def reset_many(self, tables: Any, keys: Key[Array, " B"]) -> Task:
        """A batch of random questions; params with `axes` 0 have leaves `[B, ...]`."""
        axes = Task(self.axes, 0, 0, 0, 0, 0)

        def reset(tables: Any, key: jax.Array) -> Task:
            task = self.reset(tables, key)
            return task._replace(prompt_tokens=jnp.asarray(task.prompt_tokens, jnp.int32))

        return jax.vmap(reset, in_axes=(None, 0), out_axes=axes)(tables, keys)


class Tick(NamedTuple):
    """One tick of a search, with the states before and after it."""

    before: SearchState
    plan: Plan
    expansion: Expansion
    output: StepOutput
    after: SearchState


class Recorder(NamedTuple):
    """A pair of pure functions that records every tick of a search.

    Attributes:
        init: `state -> memory`, called before the first tick.
        record: `(memory, tick) -> (memory, record)`; the loops stack the records.
    """

    init: Callable[[SearchState], Any]
    record: Callable[[Any, Tick], tuple[Any, Any]]


OUTPUTS = Recorder(init=lambda state: (), record=lambda memory, tick: (memory, tick.output))
"""Records the `StepOutput` of every tick."""


def rollout(
    params: Any,
    expand_params: Any,
    key: jax.Array,
    state: SearchState,
    *,
    strategy: Strategy,
    expand_fn: ExpandFn,
    recorder: Recorder = OUTPUTS,
) -> tuple[SearchState, Any]:
    """Run one search to its end.

    Args:
        params: parameters of the strategy's policy; `()` without one.
        expand_params: parameters of `expand_fn`, such as `Task.params`.
        key: PRNG key; consumed. Tick t uses `tick_keys(key, t)`, also in the host driver.
        state: state from `search.init`; its capacities bound the number of ticks.
        strategy: search strategy; static.
        expand_fn: expand function, such as `search.simulation.simulator(16)`; static.
        recorder: what to record of each tick; static.

    Returns:
        The final state, and the stacked records of all ticks: `num_phases` ticks for each of
        `strategy.num_steps(N, T)` steps, where N and T are the capacities.
    """

    def one_tick(carry: tuple[SearchState, Any], index: jax.Array) -> Any:
        state, memory = carry
        made = tick(
            params, expand_params, key, state, index, strategy=strategy, expand_fn=expand_fn
        )
        memory, record = recorder.record(memory, made)
        return (made.after, memory), record

    ticks = jnp.arange(num_steps(state, strategy) * strategy.num_phases, dtype=jnp.int32)
    (final, _), records = lax.scan(one_tick, (state, recorder.init(state)), ticks)
    return final, records


def play(
    params: Any,
    expand_params: Any,
    keys: Key[Array, " B"],
    states: SearchState,
    *,
    strategy: Strategy,
    expand_fn: ExpandFn,
    expand_axes: Any = 0,
    recorder: Recorder = OUTPUTS,
) -> tuple[SearchState, Any]:
    """Run a batch of searches to their ends: `rollout` of each, as one program.

    All searches are in the same phase at every tick, so the program of phase 0 contains no policy.

    Args:
        params: parameters of the strategy's policy, shared by all searches; `()` without one.
        expand_params: parameters of `expand_fn` for B searches, such as `Task.params` of a batch.
        keys: PRNG keys [B], one per search; consumed.
        states: states of B searches between two steps, `[B, ...]`, as from a vmap of `search.init`.
        strategy: search strategy; static.
        expand_fn: expand function; static.
        expand_axes: `jax.vmap` axes of `expand_params`, None for shared leaves; static.
        recorder: what to record of each tick; static. Once all searches have ended, ticks are
            skipped and their records are zeros: records must not depend on an ended search.

    Returns:
        The final states, and the records stacked `[steps, num_phases, B, ...]`.
    """
    one_step = _make_step(params, expand_params, keys, strategy, expand_fn, expand_axes, recorder)

    def step_unless_ended(carry: tuple[SearchState, Any], step: jax.Array) -> Any:
        nothing = jax.eval_shape(lambda: one_step(carry, step)[1])
        return lax.cond(
            jnp.all(jax.vmap(is_terminal)(carry[0])),
            lambda: (carry, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nothing)),
            lambda: one_step(carry, step),
        )

    start = (states, jax.vmap(recorder.init)(states))
    steps = jnp.arange(num_steps(states, strategy), dtype=jnp.int32)
    (final, _), records = lax.scan(step_unless_ended, start, steps)
    return final, records


def _make_step(
    params: Any,
    expand_params: Any,
    keys: Key[Array, " B"],
    strategy: Strategy,
    expand_fn: ExpandFn,
    expand_axes: Any,
    recorder: Recorder,
) -> Callable[[tuple[SearchState, Any], jax.Array], tuple[Any, Any]]:
    """All ticks of a step of a batch; the arguments are those of `play`.

    Returns:
        `((states, memories), step) -> ((states, memories), records)`.
    """

    def one_tick(carry: tuple[SearchState, Any], index: jax.Array, base_phase: bool | None) -> Any:
        def advance(expand_params: Any, key: jax.Array, state: SearchState, memory: Any) -> Any:
            made = tick(
                params,
                expand_params,
                key,
                state,
                index,
                strategy=strategy,
                expand_fn=expand_fn,
                base_phase=base_phase,
            )
            memory, record = recorder.record(memory, made)
            return (made.after, memory), record

        states, memories = carry
        axes = (expand_axes, 0, 0, 0)
        return jax.vmap(advance, in_axes=axes)(expand_params, keys, states, memories)

    def one_step(carry: tuple[SearchState, Any], step: jax.Array) -> Any:
        first = step * strategy.num_phases
        if strategy.num_phases == 1:
            carry, record = one_tick(carry, first, None)
            return carry, jax.tree.map(lambda leaf: leaf[None], record)
        carry, base = one_tick(carry, first, True)
        rounds = jnp.arange(1, strategy.num_phases, dtype=jnp.int32)
        carry, later = lax.scan(
            lambda carry, phase: one_tick(carry, first + phase, False), carry, rounds
        )
        return carry, jax.tree.map(
            lambda one, more: jnp.concatenate([one[None], more]), base, later
        )

    return one_step


def tick(
    params: Any,
    expand_params: Any,
    key: jax.Array,
    state: SearchState,
    index: Int[Array, ""] | int,
    *,
    strategy: Strategy,
    expand_fn: ExpandFn,
    base_phase: bool | None = None,
) -> Tick:
    """Tick number `index` of a search: plan, expand, commit. `key` is that of the whole search."""
    plan_key, expand_key = tick_keys(key, index)
    planned = plan(params, plan_key, state, strategy=strategy, base_phase=base_phase)
    expansion = expand_fn(expand_params, expand_key, planned.request)
    after, output = commit(state, planned, expansion, strategy=strategy, base_phase=base_phase)
    return Tick(state, planned, expansion, output, after)


def tick_keys(key: jax.Array, tick: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    """The two keys of one tick of a search, for `plan` and for `expand_fn`."""
    plan_key, expand_key = jax.random.split(jax.random.fold_in(key, tick))
    return plan_key, expand_key


def num_steps(state: SearchState, strategy: Strategy) -> int:
    """Most steps of a search, or of a batch of searches, with this state's capacities."""
    capacity, depth_capacity = state.pool.step_scores.shape[-2:]
    return strategy.num_steps(capacity, depth_capacity)
