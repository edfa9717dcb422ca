"""The A2C update against numpy: gradients by hand for linear networks, Adam written out."""

import dataclasses
import functools

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import learners
import search

# num_extra 0, 2, 4: with 3 candidates available the last one is illegal.
ACTIONS = search.ActionTable.product(
    num_extra=(0, 2, 4), num_retain=(1,), temperature=(1.0,), top_p=(1.0,)
)
NUM_FEATURES = len(search.FEATURE_NAMES)
LINEAR_ACTOR, LINEAR_CRITIC = learners.make_actor(3, hidden=()), learners.make_critic(hidden=())
RATE = 1e-2


@functools.cache
def _learner(linear=True, **options):
    actor = LINEAR_ACTOR if linear else learners.make_actor(3, hidden=(8,))
    critic = LINEAR_CRITIC if linear else learners.make_critic(hidden=(8,))
    config = learners.LearnerConfig(learning_rate=RATE, **options)
    learner = learners.make_learner(actor, critic, ACTIONS, config)
    return learner._replace(init=jax.jit(learner.init), update=jax.jit(learner.update))


def _transitions(seed, size):
    rng = np.random.default_rng(seed)
    available = rng.choice([0, 1, 2, 3, 4, 9], size)
    num_extra = np.array([0, 2, 4])
    action = np.array([rng.choice(np.flatnonzero(num_extra <= some)) for some in available])
    return search.Transition(
        features_tm1=rng.uniform(-1, 1, (size, NUM_FEATURES)).astype(np.float32),
        available_tm1=available.astype(np.int32),
        action_tm1=action.astype(np.int32),
        log_prob_tm1=np.zeros(size, np.float32),
        reward_t=rng.normal(size=size).astype(np.float32),
        discount_t=rng.choice([0.0, 0.9], size).astype(np.float32),
        features_t=rng.uniform(-1, 1, (size, NUM_FEATURES)).astype(np.float32),
        weight_t=rng.choice([0.0, 1.0, 1.0, 0.5], size).astype(np.float32),
    )


def _on_device(transitions):
    return jax.tree.map(jnp.asarray, transitions)


class _Reference:
    """Linear actor and critic with Adam, in float64, one row or many at a time."""

    def __init__(self, state):
        layers = [state.actor["layer_0"], state.critic["layer_0"]]
        self.params = [
            np.asarray(layer[name], np.float64) for layer in layers for name in ("kernel", "bias")
        ]
        self.first = [np.zeros_like(value) for value in self.params]
        self.second = [np.zeros_like(value) for value in self.params]
        self.count = 0

    def rows(self, transitions):
        return [
            {
                field.name: getattr(transitions, field.name)[index].astype(np.float64)
                for field in dataclasses.fields(transitions)
            }
            for index in np.flatnonzero(transitions.weight_t > 0)
        ]

    def value(self, features):
        return float(features @ self.params[2][:, 0] + self.params[3][0])

    def td_error(self, row):
        target = row["reward_t"] + row["discount_t"] * self.value(row["features_t"])
        return target - self.value(row["features_tm1"])

    def gradient(self, row, advantage, bonus):
        x = row["features_tm1"]
        logits = x @ self.params[0] + self.params[1]
        legal = np.array([0, 2, 4]) <= row["available_tm1"]
        exponentials = np.where(legal, np.exp(logits), 0.0)
        p = exponentials / exponentials.sum()
        chosen = np.arange(3) == row["action_tm1"]
        plogp = np.where(legal, p * np.log(np.where(legal, p, 1.0)), 0.0)
        # d(-log p_a)/dz = p - onehot_a; dH/dz = -(p log p + p H)
        d_logits = advantage * (p - chosen) + bonus * (plogp - p * plogp.sum())
        d_value = -self.td_error(row)
        return [np.outer(x, d_logits), d_logits, d_value * x[:, None], np.array([d_value])]

    def adam(self, gradient):
        self.count += 1
        for index, g in enumerate(gradient):
            self.first[index] = 0.9 * self.first[index] + 0.1 * g
            self.second[index] = 0.999 * self.second[index] + 0.001 * g * g
            m = self.first[index] / (1 - 0.9**self.count)
            v = self.second[index] / (1 - 0.999**self.count)
            self.params[index] = self.params[index] - RATE * m / (np.sqrt(v) + 1e-8)

    def all_at_once(self, transitions, bonus, normalize):
        rows = self.rows(transitions)
        shares = np.array([row["weight_t"] for row in rows])
        shares = shares / shares.sum()
        advantages = np.array([self.td_error(row) for row in rows])
        if normalize:
            mean = np.sum(shares * advantages)
            deviation = np.sqrt(np.sum(shares * (advantages - mean) ** 2))
            advantages = (advantages - mean) / deviation
        total = [np.zeros_like(value) for value in self.params]
        for row, share, advantage in zip(rows, shares, advantages, strict=True):
            gradient = self.gradient(row, advantage, bonus)
            total = [a + share * b for a, b in zip(total, gradient, strict=True)]
        self.adam(total)

    def one_by_one(self, transitions, bonus):
        for row in self.rows(transitions):
            self.adam(self.gradient(row, self.td_error(row), bonus))

    def assert_close(self, state):
        layers = [state.actor["layer_0"], state.critic["layer_0"]]
        actual = [layer[name] for layer in layers for name in ("kernel", "bias")]
        for a, b in zip(actual, self.params, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("bonus", [0.0, 0.3])
@pytest.mark.parametrize("size", [40, 1300])  # within one block of rows; over three of them
def test_batched_update_equals_numpy(key, normalize, bonus, size):
    learner = _learner(normalize_advantages=normalize)
    state = learner.init(key)
    reference = _Reference(state)
    for seed in range(3):
        transitions = _transitions(seed, size)
        state, _ = learner.update(state, _on_device(transitions), bonus)
        reference.all_at_once(transitions, bonus, normalize)
    reference.assert_close(state)


@pytest.mark.parametrize("bonus", [0.0, 0.3])
def test_sequential_update_equals_a_python_loop(key, bonus):
    learner = _learner(sequential=True)
    state = learner.init(key)
    reference = _Reference(state)
    for seed in range(2):
        transitions = _transitions(seed, 30)
        state, _ = learner.update(state, _on_device(transitions), bonus)
        reference.one_by_one(transitions, bonus)
    reference.assert_close(state)


def test_the_order_matters_only_to_the_sequential_update(key):
    transitions = _on_device(_transitions(0, 30))
    backwards = jax.tree.map(lambda leaf: leaf[::-1], transitions)
    for sequential in (False, True):
        learner = _learner(sequential=sequential)
        state = learner.init(key)
        one, _ = learner.update(state, transitions)
        other, _ = learner.update(state, backwards)
        gap = np.max(np.abs(one.actor["layer_0"]["kernel"] - other.actor["layer_0"]["kernel"]))
        assert (gap > 1e-3) == sequential


def test_metrics_are_weighted_means(key):
    transitions = _transitions(1, 25)
    learner = _learner()
    state = learner.init(key)
    reference = _Reference(state)
    _, metrics = learner.update(state, _on_device(transitions))
    weights = transitions.weight_t[transitions.weight_t > 0]
    td = np.array([reference.td_error(row) for row in reference.rows(transitions)])
    np.testing.assert_allclose(metrics.td_error, np.average(abs(td), weights=weights), rtol=1e-4)
    np.testing.assert_allclose(
        metrics.critic_loss, np.average(td**2 / 2, weights=weights), rtol=1e-4
    )
    assert 0.0 < metrics.entropy <= np.log(3)


@pytest.mark.parametrize("options", [{}, {"normalize_advantages": True}, {"sequential": True}])
def test_without_transitions_nothing_changes(key, options):
    learner = _learner(linear=False, **options)
    state = learner.init(key)
    transitions = _transitions(0, 30).replace(weight_t=np.zeros(30, np.float32))
    after, metrics = learner.update(state, _on_device(transitions), 0.1)
    chex.assert_trees_all_equal(after, state)
    assert all(float(value) == 0.0 for value in jax.tree.leaves(metrics))


@pytest.mark.parametrize("options", [{}, {"normalize_advantages": True}, {"sequential": True}])
@hypothesis.given(seed=st.integers(0, 2**16), garbage=st.sampled_from([np.nan, np.inf, 1e30, 7.0]))
@hypothesis.settings(max_examples=10)
def test_rows_of_weight_zero_never_matter(options, seed, garbage):
    learner = _learner(linear=False, **options)
    state = learner.init(jax.random.key(seed))
    rng = np.random.default_rng(seed)
    clean = _transitions(seed, 30)
    with_weight = clean.weight_t > 0

    # Anything at all in the rows of weight 0.
    dirty = jax.tree.map(
        lambda leaf: np.where(
            with_weight.reshape(-1, *[1] * (leaf.ndim - 1)),
            leaf,
            garbage if leaf.dtype.kind == "f" else -5,
        ).astype(leaf.dtype),
        clean,
    ).replace(weight_t=clean.weight_t)
    # The rows with weight in other places, in the same order.
    places = np.sort(rng.choice(30, with_weight.sum(), replace=False))
    moved = jax.tree.map(np.zeros_like, clean)
    for field in dataclasses.fields(clean):
        getattr(moved, field.name)[places] = getattr(clean, field.name)[with_weight]

    results = [learner.update(state, _on_device(rows), 0.1) for rows in (clean, dirty, moved)]
    chex.assert_tree_all_finite(results[0])
    chex.assert_trees_all_equal(*results)


def test_gradients_respect_the_mask_of_their_time(key):
    """The illegal action's logit gets no gradient, although it is legal in other rows."""
    learner = _learner()
    state = learner.init(key)
    transitions = _transitions(0, 30)
    transitions = transitions.replace(
        available_tm1=np.full(30, 3, np.int32),
        action_tm1=np.minimum(transitions.action_tm1, 1),
    )
    after, _ = learner.update(state, _on_device(transitions), 0.1)
    before, now = state.actor["layer_0"], after.actor["layer_0"]
    np.testing.assert_array_equal(now["kernel"][:, 2], before["kernel"][:, 2])
    assert np.all(now["kernel"][:, :2] != before["kernel"][:, :2])


def test_one_trace_for_all_weights(key):
    learner = learners.make_learner(LINEAR_ACTOR, LINEAR_CRITIC, ACTIONS, learners.LearnerConfig())
    chex.clear_trace_counter()
    update = jax.jit(chex.assert_max_traces(learner.update, n=1))
    state = learner.init(key)
    for seed in range(3):
        state, _ = update(state, _on_device(_transitions(seed, 20)), jnp.float32(seed))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be > 0"),
        ({"normalize_advantages": True, "sequential": True}, "excludes sequential"),
    ],
)
def test_refuses_configurations_without_meaning(options, message):
    with pytest.raises(ValueError, match=message):
        learners.LearnerConfig(**options)
