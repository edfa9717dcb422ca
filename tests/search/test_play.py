"""`play` of a batch is `rollout` of each search, and steps without a search cost nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import search_script as script
from toy_bank import DEPTH, toy_bank

import search
from search import bank, simulation

CAPACITY = 8
DEPTH_CAPACITY = DEPTH + 2  # no search uses the last two steps
STRATEGIES = {
    "beam": search.beam(expansion=2),
    "mcts": search.methods.mcts(branching=3, max_nodes=64),
    "cats": search.cats.cats(
        search.cats.random_policy, search.cats.CatsConfig(rounds=2, expansion=2)
    ),
}
# One has ended before it begins; the others end in different steps.
NUM_CANDIDATES = (8, 8, 3, 6)
BUDGETS = (24, 0, 9, 7)


def first_states(strategy, tasks, budgets=BUDGETS):
    def init(task, num_candidates, budget):
        return search.init(
            task.root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=task.max_depth,
            budget=budget,
            context=task.context._replace(price=0.1),
            capacity=CAPACITY,
            depth_capacity=DEPTH_CAPACITY,
        )

    # An environment's tables are no part of a state.
    tasks = tasks._replace(params=0, right_answer=0)
    axes = search.Task(None, 0, 0, 0, None)
    sizes = jnp.asarray(NUM_CANDIDATES, jnp.int32), jnp.asarray(budgets, jnp.int32)
    return jax.vmap(init, in_axes=(axes, 0, 0))(tasks, *sizes)


def environment(name):
    """The tasks of a batch, their expand function and its axes."""
    tables, space = {
        "bank": (toy_bank(3), bank.ENVIRONMENT),
        "simulation": (
            simulation.toy_params(invalid=0.1, max_depth=DEPTH),
            simulation.ENVIRONMENT,
        ),
    }[name]
    tasks = space.reset_many(tables, jax.random.split(jax.random.key(1), len(BUDGETS)))
    return tasks, space.expand(CAPACITY), space.axes


def by_search(records):
    """Leaves [steps, phases, B, ...] as those of vmapped rollouts, [B, ticks, ...]."""
    return jax.tree.map(lambda x: np.moveaxis(x.reshape(-1, *x.shape[2:]), 1, 0), records)


@pytest.mark.parametrize(
    ("place", "name"),
    [("bank", "beam"), ("bank", "mcts"), ("bank", "cats"), ("simulation", "cats")],
)
def test_a_batch_is_its_searches(place, name, key):
    strategy = STRATEGIES[name]
    tasks, expand_fn, axes = environment(place)
    states = first_states(strategy, tasks)
    keys = jax.random.split(key, len(BUDGETS))
    static = {
        "strategy": strategy,
        "expand_fn": expand_fn,
        "recorder": script.recorder_of(strategy),
    }
    rollout = jax.vmap(functools.partial(search.rollout, **static), in_axes=(None, axes, 0, 0))
    play = functools.partial(search.play, expand_axes=axes, **static)
    finals, expected = jax.device_get(jax.jit(rollout)((), tasks.params, keys, states))
    played, records = jax.device_get(jax.jit(play)((), tasks.params, keys, states))
    steps = strategy.num_steps(CAPACITY, DEPTH_CAPACITY)
    assert records.output.active.shape == (steps, strategy.num_phases, len(BUDGETS))
    records = by_search(records)

    script.assert_same(played, finals)
    assert len(set(finals.step.tolist())) > 2
    active = expected.output.active
    np.testing.assert_array_equal(records.output.active, active)
    # What a tick after the end reports of no search is not compared: zeros or padding.
    one, other = (jax.tree.map(lambda x: x[active], r.output) for r in (records, expected))
    script.assert_same(one, other)
    assert not records.output.num_samples[~active].any()
    script.assert_same(records.decisions, expected.decisions)


@functools.cache
def counted_play(name):
    """A batch that is played on the bank, as a compiled function, and what its ticks ask for."""
    strategy, (tasks, expand_fn, axes) = STRATEGIES[name], environment("bank")
    calls = []

    def counted(params, key, request):
        jax.debug.callback(lambda asked: calls.append(asked.sum()), request.num_samples)
        return expand_fn(params, key, request)

    play = functools.partial(
        search.play,
        expand_axes=axes,
        strategy=strategy,
        expand_fn=counted,
        recorder=script.recorder_of(strategy),
    )
    return tasks, jax.jit(play), calls


@pytest.mark.parametrize("name", ["beam", "cats"])
@pytest.mark.parametrize("budgets", [BUDGETS, (0, 0, 0, 0)])
def test_a_step_without_a_search_expands_nothing(name, budgets, key):
    strategy, (tasks, play, calls) = STRATEGIES[name], counted_play(name)
    calls.clear()
    states = first_states(strategy, tasks, budgets)
    keys = jax.random.split(key, len(budgets))
    finals, records = jax.device_get(play((), tasks.params, keys, states))
    jax.effects_barrier()
    steps = int(finals.step.max())
    assert steps == (DEPTH if any(budgets) else 0)
    assert len(calls) == steps * strategy.num_phases * len(budgets)
    assert sum(calls) == finals.spent.sum()
    for leaf in jax.tree.leaves(records):
        assert not leaf[steps:].any()
    if not steps:
        script.assert_identical(finals, jax.device_get(states))


def test_what_the_searches_share_is_not_copied(key):
    strategy = STRATEGIES["beam"]
    tasks, expand_fn, axes = environment("bank")
    play = functools.partial(search.play, strategy=strategy, expand_fn=expand_fn, expand_axes=axes)
    states = first_states(strategy, tasks)
    jaxpr = jax.make_jaxpr(play)((), tasks.params, jax.random.split(key, len(BUDGETS)), states)
    size = tasks.params.bank.done.shape[0]
    assert f"{size}]" in str(jaxpr)
    assert f"[{len(BUDGETS)},{size}" not in str(jaxpr)
