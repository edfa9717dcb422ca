"""Tokens of a tick against a plain loop over whole searches; what a selective search never pays."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulated_searches import long_steps
from token_loop import TokenLoop

import search
from search import simulation

CAPACITY, DEPTH, SEARCHES = 16, 4, 24
ACTIONS = search.cats.ActionTable(
    (
        (0, 1, 1.0, 1.0, 0),
        (0, 2, 1.0, 1.0, 0),
        (1, 1, 0.0, 1.0, 0),
        (1, 2, 0.0, 1.0, 0),
        (2, 2, 0.0, 1.0, 0),
        (2, 1, 1.0, 1.0, 0),
        (3, 3, 1.0, 1.0, 0),
    )
)
SELECTIVE = dataclasses.replace(search.cats.SELECTIVE, rounds=3, actions=ACTIONS)
CONFIGS = {
    "selective": SELECTIVE,
    "scored": dataclasses.replace(SELECTIVE, score_base=True),
    "two base children": dataclasses.replace(
        SELECTIVE, num_base=2, base=search.Sampling(1.0), rounds=2
    ),
}


@functools.cache
def searches(name):
    """States, requests, expansions and costs of all ticks of some searches, and their last states.

    Leaves are `[searches, ticks, ...]`.
    """
    strategy = search.cats.cats(search.cats.random_policy, CONFIGS[name])
    world = simulation.toy_params(invalid=0.15, node_scale=1.0, exponent=2.0, max_depth=DEPTH)
    recorder = search.Recorder(
        init=lambda state: (),
        record=lambda memory, tick: (
            memory,
            (
                tick.before,
                tick.plan.request,
                tick.expansion,
                search.costs.tick_tokens(tick),
                tick.after,
            ),
        ),
    )

    def one(key, num_candidates, budget):
        reset_key, search_key = jax.random.split(key)
        task = simulation.reset(world, reset_key)
        state = search.init(
            task.root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=DEPTH,
            budget=budget,
            capacity=CAPACITY,
            frontier_capacity=4,
            depth_capacity=DEPTH,
        )
        return search.rollout(
            (),
            task.params,
            search_key,
            state,
            strategy=strategy,
            expand_fn=long_steps(CAPACITY),
            recorder=recorder,
        )

    keys = jax.random.split(jax.random.key(11), SEARCHES)
    sizes = jnp.asarray([5, 9, 16] * (SEARCHES // 3), jnp.int32)
    budgets = jnp.asarray([12, 64, 40, 25] * (SEARCHES // 4), jnp.int32)
    # Tracing `one` for single searches takes half as long as for a batch.
    program = jax.jit(one)
    ended = [jax.device_get(program(*each)) for each in zip(keys, sizes, budgets, strict=True)]
    final, ticks = jax.tree.map(lambda *leaves: np.stack(leaves), *ended)
    return final, ticks, sizes.tolist(), budgets.tolist()


def ticks_of(name):
    """The ticks of every search: (state, request, expansion, costs, state after it)."""
    _, ticks, *_ = searches(name)
    count = ticks[0].step.shape[1]
    for index in range(SEARCHES):
        own = jax.tree.map(lambda leaf, i=index: leaf[i], ticks)
        yield [jax.tree.map(lambda leaf, t=time: leaf[t], own) for time in range(count)]


@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_equal_a_loop_over_the_search(name):
    copies = repeats = prefixes = 0
    for ticks in ticks_of(name):
        loop = TokenLoop(slots=4)
        for before, request, expansion, costs, after in ticks:
            expected = loop.tick(before, request, expansion, after)
            assert (costs.sampled, costs.read) == expected
            if after.step > before.step:
                assert after.frontier.unread[after.frontier.valid].tolist() == loop.behind
        copies, repeats = copies + loop.copies, repeats + loop.repeats
        prefixes += loop.prefixes
    # The loop has seen what it is about.
    assert min(copies, repeats) > 5
    assert (prefixes > 5) == (name != "scored")


@pytest.mark.parametrize("name", [name for name, each in CONFIGS.items() if not each.score_base])
def test_base_children_have_no_score_and_cost_no_prm_tokens(name):
    base = silent = 0
    for ticks in ticks_of(name):
        for before, request, _, costs, after in ticks:
            if before.phase == 0:
                assert not request.scored[: before.frontier.valid.sum()].any()
                assert costs.read == 0
                pool = after.pool
                newest = pool.step_scores[pool.valid, pool.depth[pool.valid] - 1]
                assert not newest.any()
                assert (pool.unread[pool.valid] > 0).all()
                base += int(pool.valid.sum())
            elif not request.num_samples.any():
                assert costs.read == costs.sampled == 0
                silent += 1
    assert base > SEARCHES
    assert silent > SEARCHES


def _searched(strategy, expand):
    """The end of a search of four steps and four candidates, and the costs of its ticks."""
    state = search.init(
        jnp.int32(0), strategy=strategy, num_candidates=4, max_depth=4, capacity=4, depth_capacity=4
    )
    recorder = search.Recorder(
        init=lambda state: (), record=lambda memory, tick: (memory, search.costs.tick_tokens(tick))
    )
    return search.rollout(
        (), (), jax.random.key(0), state, strategy=strategy, expand_fn=expand, recorder=recorder
    )


def test_asking_for_the_greedy_child_costs_its_path_once():
    """By hand: three steps accepted unread, then the fourth step's greedy child is asked for."""

    def policy(params, key, observation):
        del params, key
        action = jnp.where(observation.state.step == 3, 2, 0)
        return jnp.full(observation.features.shape[:1], action), jnp.zeros(
            observation.features.shape[:1]
        )

    def expand(params, key, request):
        del params, key
        depth = request.depth[0]
        first = jnp.arange(4) < request.num_samples[0]
        return search.Expansion(
            valid=first,
            parent=jnp.zeros(4, jnp.int32),
            score=jnp.full(4, 0.75),
            done=first & (depth == 3),
            answer=jnp.where(first & (depth == 3), 0, -1),
            text=jnp.zeros(4, jnp.int32),
            log_prob=jnp.full(4, -0.5),
            num_tokens=jnp.where(first, 10**depth, 0).astype(jnp.int32),
            embedding=jnp.zeros(4, jnp.int32),
        )

    config = dataclasses.replace(SELECTIVE, rounds=2)
    strategy = search.cats.cats(policy, config)
    final, costs = _searched(strategy, expand)
    sampled, read = [0] * 12, [0] * 12
    sampled[::3] = [1, 10, 100, 1000]
    read[10] = 1111  # the question of a second round finds nothing new
    assert costs.sampled.tolist() == sampled
    assert costs.read.tolist() == read
    likely = np.exp(-0.5)
    np.testing.assert_allclose(final.finished.step_scores[0], [likely] * 3 + [0.75], rtol=1e-4)
    assert final.finished.unread[0] == 0


def test_a_prefix_that_was_read_for_a_sibling_is_not_read_again():
    """Step 1 asks for another child, keeps the greedy one, and step 2 asks the PRM for its own."""
    table = search.cats.ActionTable(
        ((0, 1, 1.0, 1.0, 0), (1, 1, 0.0, 1.0, 0), (1, 1, 1.0, 1.0, 0)),
    )

    def policy(params, key, observation):
        step, phase = observation.state.step, observation.state.phase
        ask = jnp.where((step == 2) & (phase == 1), 1, 0)
        action = jnp.where((step == 1) & (phase == 1), 2, ask)
        zeros = jnp.zeros(observation.features.shape[:1])
        return jnp.full(zeros.shape, action), zeros

    def expand(params, key, request):
        first = jnp.arange(4) < request.num_samples[0]
        depth, sampled = request.depth[0], request.temperature[0] > 0
        done = first & (depth == 3)
        return search.Expansion(
            valid=first,
            parent=jnp.zeros(4, jnp.int32),
            score=jnp.full(4, 0.05),
            done=done,
            answer=jnp.where(done, 0, -1),
            text=jnp.full(4, sampled.astype(jnp.int32)),
            log_prob=jnp.where(sampled, -3.0, -0.1) * jnp.ones(4),
            num_tokens=jnp.where(first, 10 * 2**depth, 0).astype(jnp.int32),
            embedding=jnp.zeros(4, jnp.int32),
        )

    config = dataclasses.replace(search.cats.SELECTIVE, rounds=2, actions=table)
    strategy = search.cats.cats(policy, config)
    _, costs = _searched(strategy, expand)
    assert costs.read.tolist() == [0, 0, 0, 0, 30, 0, 0, 60, 0, 0, 0, 0]
