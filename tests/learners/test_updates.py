"""A2C and PPO against numpy: gradients by hand for linear networks, Adam written out."""

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
from learners.rows import pack, shuffle

# num_extra 0, 2, 4: with 3 candidates available the last one is illegal.
ACTIONS = search.cats.ActionTable.product(
    num_extra=(0, 2, 4), num_retain=(1,), temperature=(1.0,), top_p=(1.0,)
)
NUM_FEATURES = len(search.cats.FEATURE_NAMES)
LINEAR_ACTOR, LINEAR_CRITIC = learners.make_actor(3, hidden=()), learners.make_critic(hidden=())
RATE = 1e-2
A2C = learners.A2C()
NORMALIZED = learners.A2C(normalize_advantages=True)
SEQUENTIAL = learners.A2C(sequential=True)
PPO = learners.PPO(clip=0.2, num_epochs=2, num_minibatches=3)
NORMALIZED_PPO = dataclasses.replace(PPO, normalize_advantages=True)


@functools.cache
def _learner(algorithm=A2C, linear=True, num_updates=None, **options):
    actor = LINEAR_ACTOR if linear else learners.make_actor(3, hidden=(8,))
    critic = LINEAR_CRITIC if linear else learners.make_critic(hidden=(8,))
    config = learners.LearnerConfig(algorithm, learning_rate=RATE, **options)
    learner = learners.make_learner(actor, critic, ACTIONS, config, num_updates)
    return learner._replace(init=jax.jit(learner.init), update=jax.jit(learner.update))


def _transitions(seed, size):
    rng = np.random.default_rng(seed)
    available = rng.choice([0, 1, 2, 3, 4, 9], size)
    num_extra = np.array([0, 2, 4])
    action = np.array([rng.choice(np.flatnonzero(num_extra <= some)) for some in available])
    noise = rng.normal(size=size) * 0.3  # as if another, nearly uniform policy had acted
    return search.cats.Transition(
        features_tm1=rng.uniform(-1, 1, (size, NUM_FEATURES)).astype(np.float32),
        available_tm1=available.astype(np.int32),
        action_tm1=action.astype(np.int32),
        log_prob_tm1=(-np.log(np.searchsorted(num_extra, available, "right")) + noise).astype(
            np.float32
        ),
        reward_t=rng.normal(size=size).astype(np.float32),
        discount_t=rng.choice([0.0, 0.9], size).astype(np.float32),
        features_t=rng.uniform(-1, 1, (size, NUM_FEATURES)).astype(np.float32),
        weight_t=rng.choice([0.0, 1.0, 1.0, 0.5], size).astype(np.float32),
    )


def _on_device(transitions):
    return jax.tree.map(jnp.asarray, transitions)


class _Reference:
    """Linear actor and critic with Adam, in float64, one row or many at a time."""

    def __init__(self, state, num_steps=np.inf):
        """The learning rate falls to 0 over `num_steps` steps."""
        self.num_steps = num_steps
        layers = [state.actor["layer_0"], state.critic["layer_0"]]
        self.params = [
            np.asarray(layer[name], np.float64) for layer in layers for name in ("kernel", "bias")
        ]
        self.first = [np.zeros_like(value) for value in self.params]
        self.second = [np.zeros_like(value) for value in self.params]
        self.count = 0
        self.num_clipped = 0

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

    def gradient(self, row, advantage, bonus, clip=None, target=None):
        x = row["features_tm1"]
        logits = x @ self.params[0] + self.params[1]
        legal = np.array([0, 2, 4]) <= row["available_tm1"]
        exponentials = np.where(legal, np.exp(logits), 0.0)
        p = exponentials / exponentials.sum()
        chosen = np.arange(3) == row["action_tm1"]
        plogp = np.where(legal, p * np.log(np.where(legal, p, 1.0)), 0.0)
        weight = 1.0
        if clip is not None:  # the minimum is flat where the ratio is beyond what A asks for
            weight = p[row["action_tm1"].astype(int)] / np.exp(row["log_prob_tm1"])
            beyond = weight > 1 + clip if advantage > 0 else weight < 1 - clip
            self.num_clipped += beyond
            weight = 0.0 if beyond else weight
        # d(-log p_a)/dz = p - onehot_a; dH/dz = -(p log p + p H)
        d_logits = weight * advantage * (p - chosen) + bonus * (plogp - p * plogp.sum())
        d_value = -self.td_error(row) if target is None else self.value(x) - target
        return [np.outer(x, d_logits), d_logits, d_value * x[:, None], np.array([d_value])]

    def adam(self, gradient):
        rate = RATE * max(0.0, 1.0 - self.count / self.num_steps)
        self.count += 1
        for index, g in enumerate(gradient):
            self.first[index] = 0.9 * self.first[index] + 0.1 * g
            self.second[index] = 0.999 * self.second[index] + 0.001 * g * g
            m = self.first[index] / (1 - 0.9**self.count)
            v = self.second[index] / (1 - 0.999**self.count)
            self.params[index] = self.params[index] - rate * m / (np.sqrt(v) + 1e-8)

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

    def many_epochs(self, transitions, bonus, clip, orders, num_minibatches, max_norm=np.inf):
        """PPO; `orders` are those in which the rows with weight are taken, one per epoch."""
        rows = self.rows(transitions)
        shares = np.array([row["weight_t"] for row in rows])
        errors = np.array([self.td_error(row) for row in rows])
        targets = [
            error + self.value(row["features_tm1"]) for error, row in zip(errors, rows, strict=True)
        ]
        mean = np.average(errors, weights=shares)
        errors = (errors - mean) / np.sqrt(np.average((errors - mean) ** 2, weights=shares))
        for order in orders:
            for part in range(num_minibatches):
                chosen = order[
                    part * len(rows) // num_minibatches : (part + 1) * len(rows) // num_minibatches
                ]
                total = [np.zeros_like(value) for value in self.params]
                for index in chosen:
                    gradient = self.gradient(
                        rows[index], errors[index], bonus, clip, targets[index]
                    )
                    share = shares[index] / shares[chosen].sum()
                    total = [a + share * b for a, b in zip(total, gradient, strict=True)]
                for both in (total[:2], total[2:]):  # actor, critic
                    norm = np.sqrt(sum(np.sum(value**2) for value in both))
                    for value in both:
                        value *= min(1.0, max_norm / norm)
                self.adam(total)

    def one_by_one(self, transitions, bonus):
        for row in self.rows(transitions):
            gradient = self.gradient(row, self.td_error(row), bonus)
            self.adam([row["weight_t"] * value for value in gradient])

    def assert_close(self, state):
        layers = [state.actor["layer_0"], state.critic["layer_0"]]
        actual = [layer[name] for layer in layers for name in ("kernel", "bias")]
        for a, b in zip(actual, self.params, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize(
    ("normalize", "bonus", "size"),
    # Within one block of rows; over three of them.
    [(False, 0.3, 40), (True, 0.0, 40), (False, 0.0, 1300), (True, 0.3, 1300)],
)
def test_batched_update_equals_numpy(key, normalize, bonus, size):
    learner = _learner(learners.A2C(normalize_advantages=normalize))
    state = learner.init(key)
    reference = _Reference(state)
    for seed in range(3):
        transitions = _transitions(seed, size)
        state, _ = learner.update(state, _on_device(transitions), bonus)
        reference.all_at_once(transitions, bonus, normalize)
    reference.assert_close(state)


def test_the_learning_rate_falls_to_zero_over_the_training(key):
    clipped = learners.PPO(0.2, num_epochs=3, num_minibatches=1, normalize_advantages=True)
    for algorithm, per_update in ((NORMALIZED, 1), (clipped, 3)):
        learner = _learner(algorithm, num_updates=4, anneal=True)
        state = learner.init(key)
        reference = _Reference(state, num_steps=4 * per_update)
        for seed in range(4):
            transitions = _transitions(seed, 40)
            state, _ = learner.update(state, _on_device(transitions), 0.1)
            if algorithm is NORMALIZED:
                reference.all_at_once(transitions, 0.1, normalize=True)
            else:
                every_row = [np.arange((transitions.weight_t > 0).sum())] * per_update
                reference.many_epochs(transitions, 0.1, 0.2, every_row, num_minibatches=1)
        reference.assert_close(state)
        after, _ = learner.update(state, _on_device(_transitions(4, 40)), 0.1)
        parts = (after.actor, after.critic), (state.actor, state.critic)
        chex.assert_trees_all_close(*parts, atol=1e-8)


def test_annealing_needs_a_known_number_of_steps():
    with pytest.raises(ValueError, match=r"sequential=True\) makes as many as there are"):
        learners.LearnerConfig(SEQUENTIAL, anneal=True)
    with pytest.raises(ValueError, match="pass num_updates"):
        _learner(anneal=True)


@pytest.mark.parametrize("bonus", [0.0, 0.3])
def test_sequential_update_equals_a_python_loop(key, bonus):
    learner = _learner(SEQUENTIAL)
    state = learner.init(key)
    reference = _Reference(state)
    for seed in range(2):
        transitions = _transitions(seed, 30)
        state, _ = learner.update(state, _on_device(transitions), bonus)
        reference.one_by_one(transitions, bonus)
    reference.assert_close(state)


@pytest.mark.parametrize(
    ("size", "num_epochs", "num_minibatches", "max_norm"),
    [(40, 3, 1, None), (700, 2, 3, None), (40, 2, 4, 0.05)],
)
def test_clipped_update_equals_numpy(key, size, num_epochs, num_minibatches, max_norm):
    algorithm = learners.PPO(
        clip=0.2, num_epochs=num_epochs, num_minibatches=num_minibatches, normalize_advantages=True
    )
    learner = _learner(algorithm, max_gradient_norm=max_norm)
    state = learner.init(key)
    reference = _Reference(state)
    for seed in range(2):
        transitions = _transitions(seed, size)
        update_key = jax.random.key(seed)
        state, _ = learner.update(state, _on_device(transitions), 0.1, update_key)
        has_weight = transitions.weight_t > 0
        place = np.cumsum(has_weight) - 1
        packed = pack(jnp.asarray(has_weight))
        orders = [
            place[np.asarray(shuffle(packed, key).order)[: has_weight.sum()]]
            for key in jax.random.split(update_key, num_epochs)
        ]
        bound = np.inf if max_norm is None else max_norm
        reference.many_epochs(transitions, 0.1, 0.2, orders, num_minibatches, bound)
    reference.assert_close(state)
    assert reference.num_clipped > 10


def test_shuffled_rows_are_the_same_rows(key):
    has_weight = jnp.asarray([False, True, True, False, True, True, True, False])
    packed = pack(has_weight)
    orders = {tuple(shuffle(packed, key).order.tolist()) for key in jax.random.split(key, 40)}
    assert len(orders) > 20
    for order in orders:
        assert sorted(order[:5]) == [1, 2, 4, 5, 6]
        assert order[5:] == (8, 8, 8)


def test_minibatches_need_a_key(key):
    learner = _learner(PPO)
    state = learner.init(key)
    with pytest.raises(ValueError, match="minibatches need a key"):
        learner.update(state, _on_device(_transitions(0, 30)))


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


@pytest.mark.parametrize("algorithm", [A2C, NORMALIZED, SEQUENTIAL, NORMALIZED_PPO, learners.AWR()])
def test_without_transitions_nothing_changes(key, algorithm):
    learner = _learner(algorithm, linear=False)
    state = learner.init(key)
    transitions = _transitions(0, 30).replace(weight_t=np.zeros(30, np.float32))
    after, metrics = learner.update(state, _on_device(transitions), 0.1, key)
    chex.assert_trees_all_equal(after, state)
    assert all(float(value) == 0.0 for value in jax.tree.leaves(metrics))


@pytest.mark.parametrize("algorithm", [A2C, NORMALIZED, SEQUENTIAL, NORMALIZED_PPO])
@hypothesis.given(seed=st.integers(0, 2**16), garbage=st.sampled_from([np.nan, np.inf, 1e30, 7.0]))
@hypothesis.settings(max_examples=10)
def test_rows_of_weight_zero_never_matter(algorithm, seed, garbage):
    learner = _learner(algorithm, linear=False)
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

    shuffles = jax.random.key(seed)
    results = [
        learner.update(state, _on_device(rows), 0.1, shuffles) for rows in (clean, dirty, moved)
    ]
    chex.assert_tree_all_finite(results[0])
    chex.assert_trees_all_equal(*results)


def test_gradients_respect_the_mask_of_their_time(key):
    """The illegal action's logit gets no gradient, although it is legal in other rows."""
    learner = _learner()
    state = learner.init(key)
    transitions = _transitions(0, 30)
    transitions = transitions.replace(
        available_tm1=np.full(30, 3, np.int32), action_tm1=np.minimum(transitions.action_tm1, 1)
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
    ("config", "options", "message"),
    [
        (learners.LearnerConfig, {"learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
        (learners.LearnerConfig, {"learning_rate": float("nan")}, "learning_rate must be > 0"),
        (learners.LearnerConfig, {"max_gradient_norm": 0.0}, "max_gradient_norm must be > 0, got"),
        (learners.A2C, {"normalize_advantages": True, "sequential": True}, "excludes sequential"),
        (learners.PPO, {"clip": 0.0}, r"clip must be in \(0, 1\), got 0.0"),
        (learners.PPO, {"num_epochs": True}, "num_epochs must be an integer >= 1, got True"),
        (learners.PPO, {"num_epochs": 0}, "num_epochs must be an integer >= 1, got 0"),
        (learners.PPO, {"num_minibatches": 0}, "num_minibatches must be an integer >= 1, got 0"),
        (learners.AWR, {"temperature": 0.0}, "temperature must be > 0, got 0.0"),
    ],
)
def test_refuses_configurations_without_meaning(config, options, message):
    with pytest.raises(ValueError, match=message):
        config(**options)


@pytest.mark.parametrize("algorithm", [A2C, NORMALIZED_PPO], ids=["a2c", "ppo"])
def test_a_small_mdp_is_solved(algorithm):
    """Two states: to wait in the first one pays .1 for ever; to leave it pays 1 in the second.

    With gamma .5, waiting is worth .1 / (1 - .5) = .2, leaving 0 + .5 * 1. One-step TD has to
    carry the 1 back: no reward comes with the action that is right.
    """
    learner = _learner(algorithm)
    state = learner.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    contexts = np.eye(2, NUM_FEATURES, dtype=np.float32)
    seen = jnp.asarray(contexts)
    blank = jax.tree.map(np.zeros_like, _transitions(0, 64))
    chances = jax.jit(lambda actor: jax.nn.softmax(LINEAR_ACTOR.apply(actor, seen)))
    for step in range(400):
        first = rng.integers(0, 2, 64) == 0
        probabilities = np.asarray(chances(state.actor))
        chance = probabilities[np.where(first, 0, 1)]
        action = (rng.random((64, 1)) > np.cumsum(chance, axis=1)[:, :2]).sum(1)
        waits = first & (action == 0)
        rows = blank.replace(
            features_tm1=contexts[np.where(first, 0, 1)],
            available_tm1=np.full(64, 9, np.int32),
            action_tm1=action.astype(np.int32),
            log_prob_tm1=np.log(chance[np.arange(64), action]).astype(np.float32),
            reward_t=np.where(first, np.where(waits, 0.1, 0.0), 1.0).astype(np.float32),
            discount_t=np.where(first, 0.5, 0.0).astype(np.float32),
            features_t=contexts[np.where(waits, 0, 1)],
            weight_t=np.ones(64, np.float32),
        )
        state, _ = learner.update(state, _on_device(rows), 0.0, jax.random.key(step))
    assert chances(state.actor)[0, 0] < 0.05
    values = LINEAR_CRITIC.apply(state.critic, seen)
    np.testing.assert_allclose(values, [0.5, 1.0], atol=0.05)
