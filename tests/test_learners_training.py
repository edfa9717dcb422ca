"""Training in the graph, on a world whose best action is known."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import learners
import search
from search.children import children_of

# Only the last action finds right answers; the second one pays for nothing.
ACTIONS = search.ActionTable(((0, 1, 1.0, 1.0, 0), (2, 1, 0.5, 1.0, 0), (2, 1, 1.5, 1.0, 0)))
BEST = 2
RIGHT, WRONG = 1, 0
CAPACITY = 8


def _expand(params, key, request):
    """A child is right iff its temperature is above 1; scores say so; depth 2 is the end."""
    del params, key
    parent, granted = children_of(request.num_samples, CAPACITY)
    right = request.temperature[parent] > 1.0
    done = request.depth[parent] >= 1
    return search.Expansion(
        valid=granted,
        parent=parent,
        score=jnp.where(right, 0.9, 0.2).astype(jnp.float32),
        done=granted & done,
        answer=jnp.where(granted & done, right.astype(jnp.int32), -1),
        text=jnp.zeros((CAPACITY,), jnp.int32),
        log_prob=jnp.zeros((CAPACITY,), jnp.float32),
        num_tokens=jnp.ones((CAPACITY,), jnp.int32),
        embedding=jnp.zeros((CAPACITY,), jnp.int32),
    )


def _reset(key):
    prm_features = jax.random.uniform(key, (2,))
    return (), jnp.int32(0), prm_features, jnp.int32(2), jnp.int32(RIGHT)


def _small(config, rounds):
    return dataclasses.replace(
        config,
        cats=dataclasses.replace(config.cats, actions=ACTIONS, num_base=1, rounds=rounds),
        learner=dataclasses.replace(config.learner, learning_rate=3e-3),
        num_candidates=(4, 8),
        capacity=CAPACITY,
        max_depth=3,
        num_iterations=60,
        num_episodes=16,
    )


PAPER, CATS = _small(learners.PAPER, 1), _small(learners.CATS, 1)


@functools.cache
def _many_seeds(config):
    train = learners.make_train(config, _expand, _reset)
    return jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 2))


@functools.cache
def _single_runs():
    chex.clear_trace_counter()
    train = learners.make_train(CATS, _expand, _reset)
    train = jax.jit(chex.assert_max_traces(train, n=1))  # no seed compiles anew
    return [train(key) for key in jax.random.split(jax.random.key(0), 2)]


@pytest.mark.parametrize("config", [PAPER, CATS], ids=["paper", "cats"])
def test_training_finds_the_best_action(config):
    curves = _many_seeds(config).curves
    first, last = np.s_[:, :5], np.s_[:, -5:]
    assert np.all(np.mean(curves.reward[last], 1) > np.mean(curves.reward[first], 1))
    assert np.all(np.mean(curves.accuracy[last], 1) > 0.9)
    assert np.all(np.mean(curves.accuracy[first], 1) < 0.8)
    assert np.all(curves.top_action[:, -1] > 0.8)
    assert np.all(curves.entropy[:, -1] < curves.entropy[:, 0])


def test_many_seeds_equal_single_runs():
    many, single = _many_seeds(CATS), _single_runs()
    for index, result in enumerate(single):
        of_many = jax.tree.map(lambda leaf, index=index: leaf[index], many)
        # One batch of matrix products sums in another order than two.
        np.testing.assert_allclose(
            of_many.curves.accuracy[:10], result.curves.accuracy[:10], atol=1e-6
        )
        np.testing.assert_allclose(
            of_many.curves.td_error[:10], result.curves.td_error[:10], rtol=1e-3, atol=1e-4
        )
    assert not np.allclose(many.curves.td_error[0], many.curves.td_error[1])


def test_curves_count_what_happened():
    curves = _single_runs()[0].curves
    assert all(leaf.shape == (60,) for leaf in jax.tree.leaves(curves))
    assert np.all(np.isfinite(curves.td_error))
    # One base child, and 0 or 2 more at each of two steps, on one or two paths.
    assert np.all((curves.candidates >= 2) & (curves.candidates <= 12))
    assert np.all((curves.decisions >= 2 * 16) & (curves.decisions <= 4 * 16))
    assert np.all((curves.top_action >= 1 / 3) & (curves.top_action <= 1))
    assert np.all((curves.entropy >= 0) & (curves.entropy <= np.log(3) + 1e-5))


@pytest.mark.slow
def test_sequential_training_runs():
    config = dataclasses.replace(
        PAPER, learner=learners.LearnerConfig(sequential=True), num_iterations=3, num_episodes=2
    )
    result = jax.jit(learners.make_train(config, _expand, _reset))(jax.random.key(0))
    # Adam counts one step per transition, not per iteration.
    assert int(result.learner_state.actor_optimizer[0].count) > 3
    chex.assert_tree_all_finite(result)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.5] * 20, False),
        ([1.0] * 18 + [0.5] * 2, False),  # it was constant, and is no more
        ([0.5] * 18 + [0.96] * 2, True),
        ([0.5] * 18 + [0.95] * 2, False),
        ([1.0], True),
    ],
)
def test_collapse(shares, expected):
    assert bool(learners.has_collapsed(jnp.asarray(shares, jnp.float32))) == expected


@functools.cache
def _play():
    """One rollout in which the policy takes the best action at every node."""
    strategy = search.cats(search.constant_policy, PAPER.cats)
    start = search.init(
        jnp.int32(0), strategy=strategy, num_candidates=8, max_depth=2, capacity=CAPACITY
    )
    rollout = functools.partial(search.rollout, strategy=strategy, expand_fn=_expand)
    return jax.jit(rollout)(jnp.int32(BEST), (), jax.random.key(0), start)


def test_monte_carlo_returns():
    end, output = _play()
    rows = learners.monte_carlo(output, jnp.float32(1.0), 0.2)
    granted = np.asarray(output.num_samples).sum(1)
    # Ticks: base, decide, base, decide. Root: 1 child and 2 more; the best one: the same.
    assert granted.tolist() == [1, 2, 1, 2]
    assert int(end.spent) == 6
    np.testing.assert_array_equal(rows.weight_t, output.decision.valid)
    assert np.asarray(rows.weight_t).sum(1).tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(rows.reward_t[1, 0], 1.0 - 0.2 * 5 / 100, rtol=1e-6)
    np.testing.assert_allclose(rows.reward_t[3, 0], 1.0 - 0.2 * 2 / 100, rtol=1e-6)
    assert not np.any(rows.discount_t)
    np.testing.assert_array_equal(rows.action_tm1[rows.weight_t > 0], [BEST, BEST])
    # What was legal: all that N = 8 leaves after the base child.
    np.testing.assert_array_equal(rows.available_tm1[rows.weight_t > 0], [7, 7])


def test_transitions_carry_what_was_legal():
    _, output = _play()
    transition = output.transition
    with_weight = np.asarray(transition.weight_t) > 0
    assert np.asarray(transition.available_tm1)[with_weight].tolist() == [7, 7]
    assert np.asarray(transition.discount_t)[with_weight].tolist() == pytest.approx([0.9, 0.0])


def test_terminal_reward_is_paid_where_the_discount_is_zero():
    _, output = _play()
    before = output.transition
    after = learners.add_terminal_reward(before, jnp.float32(1.0))
    change = np.asarray(after.reward_t) - np.asarray(before.reward_t)
    ends = (np.asarray(before.discount_t) == 0) & (np.asarray(before.weight_t) > 0)
    assert ends.sum() == 1
    np.testing.assert_allclose(change, ends, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"returns": "td", "sample_cost": 0.1}, "sample_cost needs returns='monte_carlo'"),
        ({"returns": "monte_carlo"}, "needs a terminal_weight"),
        ({"returns": "lambda"}, "returns must be 'td' or 'monte_carlo', got 'lambda'"),
        ({"num_candidates": ()}, "num_candidates must be in"),
        ({"num_candidates": (4, 128)}, r"num_candidates must be in 1\.\.64 \(capacity\)"),
        ({"capacity": 512}, r"capacity must be in 1\.\.256"),
        ({"num_iterations": 0}, "num_iterations must be >= 1, got 0"),
        ({"num_episodes": 0}, "num_episodes must be >= 1, got 0"),
        ({"max_depth": 0}, "max_depth must be >= 1, got 0"),
    ],
)
def test_refuses_configurations_without_meaning(options, message):
    with pytest.raises(ValueError, match=message):
        learners.TrainConfig(**options)
