"""Returns over the decisions of a search, against a literal loop over the tree they form."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulated_searches import long_steps
from token_loop import TokenLoop

import learners
import search
from learners.episodes import make_episodes, search_keys
from learners.returns import mean_of_others
from search import simulation

ROUNDS, DEPTH, CAPACITY, GAMMA = 2, 4, 16, 0.8
CATS = search.cats.CatsConfig(
    rounds=ROUNDS,
    num_base=2,
    expansion=4,
    reward=search.cats.RewardWeights(discount=GAMMA),
    actions=search.cats.ActionTable.product(
        num_extra=(0, 1, 3), num_retain=(1, 3), temperature=(1.0,), top_p=(1.0,)
    ),
)


def _named(params, key, observation):
    """A random policy whose "log-probabilities" are the names of its decisions."""
    del params
    action_key, name_key = jax.random.split(key)
    logits, nodes = jnp.where(observation.legal, 0.0, -1e9), observation.features.shape[:1]
    action = jax.random.categorical(action_key, logits, shape=nodes)
    return action.astype(jnp.int32), -jax.random.uniform(name_key, nodes)


NUM_QUESTIONS = 24
SIZES = jnp.asarray([3, 8, 16] * (NUM_QUESTIONS // 3), jnp.int32)
PRICES = jnp.asarray([0.1, 0.2, 0.0, 2.0] * (NUM_QUESTIONS // 4), jnp.float32)
SLOTS = 4
MORE = (20, 3)  # capacity, which has a slot more, and searches of each question


@functools.cache
def _episodes(capacity, rollouts):
    world = simulation.toy_params(invalid=0.1, max_depth=DEPTH)
    play = make_episodes(
        search.cats.cats(_named, CATS),
        simulation.ENVIRONMENT,
        max_depth=DEPTH,
        capacity=capacity,
        terminal_weight=0.7,
        rollouts=rollouts,
    )
    keys = jax.random.split(jax.random.key(3), NUM_QUESTIONS)
    return jax.device_get(jax.jit(play)((), world, keys, SIZES, PRICES))


def _one(index, capacity=CAPACITY, rollouts=1):
    """The first search of a question."""
    played = _episodes(capacity, rollouts)
    return jax.tree.map(lambda leaf: leaf[index * rollouts], played)


class _Tree:
    """The forest of one episode's decisions, by name, from its transitions alone."""

    def __init__(self, episode, values):
        self.bonus = float(episode.bonus)
        decision, transition = episode.decision, episode.transition
        slots = decision.valid.shape[1]
        self.reward, self.value, self.below = {}, {}, {}
        for where in np.argwhere(decision.valid):
            name = float(decision.log_prob[tuple(where)])
            assert name not in self.reward
            self.reward[name] = float(decision.reward[tuple(where)])
            self.value[name] = float(values[tuple(where)])
            self.below[name] = []
        for tick, row in np.argwhere(transition.weight_t > 0):
            follows = row < slots and transition.discount_t[tick, row] > 0
            child = float(decision.log_prob[tick, row]) if follows else None
            self.below[float(transition.log_prob_tm1[tick, row])].append(child)

    def along(self, name, child, gae_lambda, steps):
        """The return of one transition: from a decision to that of one surviving child."""
        if child is None:
            return self.reward[name] + self.bonus
        rest = self.value[child]
        if steps is None or steps > 1:
            rest = self.of(child, gae_lambda, None if steps is None else steps - 1)
        blend = (1 - gae_lambda) * self.value[child] + gae_lambda * rest
        return self.reward[name] + GAMMA * blend

    def of(self, name, gae_lambda, steps):
        """A decision's: the mean over its surviving children."""
        children = self.below[name]
        if not children:
            return self.reward[name]
        return float(np.mean([self.along(name, child, gae_lambda, steps) for child in children]))


@functools.cache
def _jitted(function, gae_lambda, num_steps):
    return jax.jit(lambda episode, values: function(episode, values, gae_lambda, num_steps))


SETTINGS = [(0.0, None), (0.9, None), (1.0, None), (1.0, 1), (1.0, 3), (0.6, 2)]


@pytest.mark.parametrize(("gae_lambda", "num_steps"), SETTINGS)
def test_path_returns_equal_a_loop_over_the_tree(gae_lambda, num_steps):
    branched = lost = 0
    for index in range(24):
        episode, _ = _one(index)
        values = np.random.default_rng(index).normal(size=episode.decision.valid.shape)
        values = values.astype(np.float32)
        tree = _Tree(episode, values)
        rows = _jitted(learners.path_returns, gae_lambda, num_steps)(episode, values)
        expected = []
        slots = episode.decision.valid.shape[1]
        transition = episode.transition
        for tick, row in np.ndindex(transition.weight_t.shape):
            if transition.weight_t[tick, row] == 0:
                expected.append(0.0)
                continue
            follows = row < slots and transition.discount_t[tick, row] > 0
            child = float(episode.decision.log_prob[tick, row]) if follows else None
            name = float(transition.log_prob_tm1[tick, row])
            expected.append(tree.along(name, child, gae_lambda, num_steps))
        np.testing.assert_allclose(rows.reward_t, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(rows.weight_t, transition.weight_t.reshape(-1))
        assert not np.any(rows.discount_t)
        branched += sum(len(children) > 1 for children in tree.below.values())
        lost += sum(not children for children in tree.below.values())
    # The loop has seen what makes a tree more than a chain.
    assert branched > 10
    assert lost > 3


def test_path_returns_of_one_step_are_the_td_targets():
    for index in range(6):
        episode, _ = _one(index)
        values = np.random.default_rng(index).normal(size=episode.decision.valid.shape)
        rows = _jitted(learners.path_returns, 0.0, None)(episode, values.astype(np.float32))
        one_step = learners.add_terminal_reward(episode.transition, jnp.asarray(episode.bonus))
        slots = values.shape[1]
        successor = np.concatenate([values, np.zeros((values.shape[0], slots))], axis=1)
        expected = one_step.reward_t + one_step.discount_t * successor
        np.testing.assert_allclose(rows.reward_t, expected.reshape(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("gae_lambda", "num_steps"), SETTINGS)
def test_question_returns_equal_a_loop_over_time(gae_lambda, num_steps):
    for index in range(24):
        episode, _ = _one(index)
        decision = episode.decision
        values = np.random.default_rng(index).normal(size=decision.valid.shape)
        values = values.astype(np.float32)
        times = np.flatnonzero(decision.valid.any(1))
        # From one time with decisions to the next: reward, and the next one's mean value.
        cost = [
            float(episode.price) * episode.cost[a:b].sum()
            for a, b in zip(times, [*times[1:], len(decision.valid)], strict=True)
        ]
        mean = [float(values[t][decision.valid[t]].mean()) for t in times]

        def value_of(place, steps, cost=cost, mean=mean, bonus=float(episode.bonus)):
            if place + 1 == len(cost):
                return bonus - cost[place]
            rest = mean[place + 1]
            if steps is None or steps > 1:
                rest = value_of(place + 1, None if steps is None else steps - 1)
            return -cost[place] + (1 - gae_lambda) * mean[place + 1] + gae_lambda * rest

        rows = _jitted(learners.question_returns, gae_lambda, num_steps)(episode, values)
        expected = np.zeros(decision.valid.shape)
        for place, time in enumerate(times):
            expected[time] = value_of(place, num_steps)
        expected = np.where(decision.valid, expected, 0.0)
        np.testing.assert_allclose(rows.reward_t, expected.reshape(-1), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(rows.weight_t, decision.valid.reshape(-1))
        assert not np.any(rows.discount_t)


def test_monte_carlo_pays_for_all_candidates_to_come():
    """At the first decision: everything but the first base children."""
    for index in range(12):
        episode, outcome = _one(index)
        valid = episode.decision.valid
        if not valid.any():
            continue  # its only children were cut
        zeros = np.zeros(valid.shape, np.float32)
        rows = _jitted(learners.question_returns, 1.0, None)(episode, zeros)
        first = np.flatnonzero(valid.any(1))[0]
        spent = int(outcome.candidates) - CATS.num_base
        expected = 0.7 * bool(outcome.correct) - float(episode.price) * spent / 100
        returns = np.asarray(rows.reward_t).reshape(valid.shape)[first]
        np.testing.assert_allclose(returns[valid[first]], expected, rtol=1e-4, atol=1e-6)


def _begin(strategy, task, size):
    return search.init(
        task.root,
        strategy=strategy,
        num_candidates=size,
        max_depth=task.max_depth,
        context=task.context,
        capacity=CAPACITY,
        frontier_capacity=SLOTS,
        depth_capacity=DEPTH,
    )


def test_episodes_equal_rollouts():
    """The same ticks as `search.rollout`, only in batches; whatever the capacity and rollouts."""
    world = simulation.toy_params(invalid=0.1, max_depth=DEPTH)
    strategy = search.cats.cats(_named, CATS)
    keys = jax.random.split(jax.random.key(3), 24)

    @jax.jit
    def rollout(key, size):
        reset_key, search_key = jax.random.split(key)
        search_key = jax.random.fold_in(search_key, 0)  # the only search of its question
        task = simulation.reset(world, reset_key)
        state = _begin(strategy, task, size)
        return search.rollout(
            (),
            task.params,
            search_key,
            state,
            strategy=strategy,
            expand_fn=simulation.simulator(CAPACITY),
            recorder=search.cats.decision_recorder(GAMMA),
        )

    for index, size in enumerate([3, 8, 16]):
        end, record = rollout(keys[index], size)
        for capacity, rollouts in ((CAPACITY, 1), MORE):
            episode, outcome = _one(index, capacity, rollouts)
            assert int(outcome.candidates) == int(end.spent)
            decides = np.arange(DEPTH * (1 + ROUNDS)) % (1 + ROUNDS) > 0
            for name in ("action", "valid", "reward", "features"):
                ours = getattr(episode.decision, name)[:, :SLOTS]
                theirs = np.asarray(getattr(record.decision, name))[decides]
                np.testing.assert_allclose(ours, theirs, atol=1e-6)
            ours = np.sort(episode.transition.reward_t[episode.transition.weight_t > 0])
            weight = np.asarray(record.transition.weight_t)
            theirs = np.sort(np.asarray(record.transition.reward_t)[weight > 0])
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
            counts = np.bincount(
                episode.decision.action[episode.decision.valid], minlength=len(CATS.actions)
            )
            np.testing.assert_array_equal(outcome.action_counts, counts)


def test_all_candidates_are_counted_once():
    for index in range(24):
        episode, outcome = _one(index)
        sampled = 100 * episode.cost.sum()
        np.testing.assert_allclose(CATS.num_base + sampled, outcome.candidates, rtol=1e-5)
        np.testing.assert_allclose(100 * outcome.cost, outcome.candidates, rtol=1e-5)


PROMPTS, RATES = (17, 40), (4.0, 0.5)
ASKING = search.cats.ActionTable(
    ((0, 1, 1.0, 1.0, 0), (0, 2, 1.0, 1.0, 0), (1, 1, 0.0, 1.0, 0), (3, 2, 1.0, 1.0, 0))
)


def _with_prompt(tables, key):
    task = simulation.reset(tables, key)
    long = jax.random.bernoulli(key)
    return task._replace(prompt_tokens=jnp.where(long, PROMPTS[1], PROMPTS[0]))


@pytest.mark.parametrize(
    ("score_base", "prm_threshold"), [(False, None), (True, None), (False, 0.9)]
)
def test_the_cost_in_tokens_equals_a_loop_over_the_search(score_base, prm_threshold):
    """The question is read at the first tick that asks the PRM, and never without one."""
    config = dataclasses.replace(
        search.cats.SELECTIVE,
        rounds=ROUNDS,
        score_base=score_base,
        prm_threshold=prm_threshold,
        actions=ASKING,
    )
    strategy = search.cats.cats(_named, config)
    num_phases = strategy.num_phases
    world = simulation.toy_params(max_depth=DEPTH)
    environment = search.Environment(_with_prompt, long_steps)
    play = make_episodes(strategy, environment, max_depth=DEPTH, capacity=CAPACITY)
    keys, sizes = jax.random.split(jax.random.key(8), 12), [3, 9, 16] * 4
    rates = np.repeat(RATES, 6).astype(np.float32)
    prices = jnp.full(12, 0.1)
    episode, outcome = jax.device_get(
        jax.jit(play)((), world, keys, jnp.asarray(sizes, jnp.int32), prices, jnp.asarray(rates))
    )
    column = search.cats.FEATURE_NAMES.index("prm_token_cost")
    first_ticks = set()
    everything = search.Recorder(
        init=lambda state: (),
        record=lambda memory, tick: (
            memory,
            (tick.before, tick.plan.request, tick.expansion, tick.after),
        ),
    )

    @jax.jit
    def rollout(task, key, size):
        state = _begin(strategy, task, size)
        return search.rollout(
            (),
            task.params,
            key,
            state,
            strategy=strategy,
            expand_fn=long_steps(CAPACITY),
            recorder=everything,
        )[1]

    for index in range(12):
        (reset_key,), (search_key,) = search_keys(keys[index : index + 1], 1)
        task = _with_prompt(world, reset_key)
        ticks = jax.device_get(rollout(task, search_key, sizes[index]))
        loop, costs, was_asked = TokenLoop(slots=SLOTS), [], False
        for time in range(DEPTH * num_phases):
            before, request, expansion, after = jax.tree.map(lambda leaf, t=time: leaf[t], ticks)
            sampled, read = loop.tick(before, request, expansion, after)
            if not was_asked and (request.scored & (request.num_samples > 0)).any():
                read += int(task.prompt_tokens)
                first_ticks.add(time)
                was_asked = True
            costs.append((sampled + float(rates[index]) * read) / 1000)
        # The base children of a step belong to the last decision before them.
        expected = []
        for time in range(DEPTH * num_phases):
            if time % num_phases:
                expected.append(costs[time])
            elif expected:
                expected[-1] += costs[time]
        np.testing.assert_allclose(episode.cost[index], expected, rtol=1e-5)
        np.testing.assert_allclose(outcome.cost[index], sum(costs), rtol=1e-5)
        seen = episode.decision.features[index][episode.decision.valid[index], column]
        np.testing.assert_allclose(seen, np.log2(1 + rates[index]) / 4, rtol=1e-5)
    if prm_threshold is not None:
        # In phase 1, unless the child has no valid text.
        assert first_ticks == {1}
        scored = search.cats.FEATURE_NAMES.index("scored_share")
        decided = episode.decision.valid
        assert decided.any()
        assert (episode.decision.features[decided][:, scored] > 0).all()
    elif score_base:
        assert first_ticks == {0}
    else:
        assert len(first_ticks) > 2


def _by_slot(episodes):
    """With the transitions of each tick, two for each slot, as [2, slots]."""

    def split(leaf):
        return leaf.reshape(*leaf.shape[:2], 2, leaf.shape[2] // 2, *leaf.shape[3:])

    return episodes.replace(transition=jax.tree.map(split, episodes.transition))


def test_rollouts_of_a_question_differ_in_their_draws_alone():
    (alone, single), (episode, outcome) = _episodes(CAPACITY, 1), _episodes(*MORE)
    np.testing.assert_allclose(episode.price, np.repeat(PRICES, 3))
    assert outcome.candidates.shape == (3 * NUM_QUESTIONS,)
    # The first search of each question is the one it has alone, with more slots.
    played = (single, _by_slot(alone)), (outcome, _by_slot(episode))
    for one, three in zip(*map(jax.tree.leaves, played), strict=True):
        np.testing.assert_allclose(one, three[::3][tuple(map(slice, one.shape))], atol=1e-6)
    # Of one question its PRM's features are the same, and the scores that were drawn are not.
    column = search.cats.FEATURE_NAMES.index("sparsity_total")
    scores = search.cats.FEATURE_NAMES.index("score_0")
    for question in (2, 5, 8, 11):  # with 16 candidates
        searches = range(3 * question, 3 * question + 3)
        seen = [episode.decision.features[k][episode.decision.valid[k]] for k in searches]
        assert len({round(float(value), 6) for rows in seen for value in rows[:, column]}) == 1
        assert len({tuple(rows[:, scores].round(6)) for rows in seen}) == 3


def test_mean_of_others_leaves_out_ones_own():
    found = mean_of_others(jnp.array([1.0, 2.0, 6.0, 0.0, 0.0, 3.0]), 3)
    np.testing.assert_allclose(found, [4.0, 3.5, 1.5, 1.5, 1.5, 0.0])
