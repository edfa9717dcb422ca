"""Training in the graph, on a world whose best action is known."""

import collections
import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import learners
import search
from learners.update_fns import buckets
from search.children import children_of

# Only the last action finds right answers; the second one pays for nothing.
ACTIONS = search.cats.ActionTable(((0, 1, 1.0, 1.0, 0), (2, 1, 0.5, 1.0, 0), (2, 1, 1.5, 1.0, 0)))
BEST = 2
RIGHT, WRONG = 1, 0
CAPACITY = 8


def _expander(capacity):
    assert capacity == CAPACITY
    return _expand


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


def _reset(tables, key):
    del tables
    sparsity = jax.random.uniform(key, (2,))
    context = search.Context(sparsity_total=sparsity[0], sparsity_last_layer=sparsity[1])
    return search.Task((), jnp.int32(0), context, jnp.int32(2), jnp.int32(RIGHT))


WORLD = search.Environment(_reset, _expander)


def _small(config, rounds):
    return dataclasses.replace(
        config,
        cats=dataclasses.replace(config.cats, actions=ACTIONS, num_base=1, rounds=rounds),
        learner=dataclasses.replace(config.learner, learning_rate=3e-3),
        num_candidates=(4, 8),
        max_depth=3,
        num_iterations=60,
        num_episodes=16,
    )


TOKENS = search.cats.CatsConfig(cost_unit="tokens")
NO_DISCOUNT = search.cats.CatsConfig(reward=search.cats.RewardWeights(discount=0.0))
OUTCOME = {"reward": "outcome", "terminal_weight": 1.0}

PAPER = _small(learners.PAPER, 1)
CATS = dataclasses.replace(
    _small(learners.CATS, 1),
    prices=(0.2,),
    entropy_weight=0.01,
    actor_hidden=(32,),
    critic_hidden=(32,),
)
A2C = dataclasses.replace(
    CATS,
    searches_per_question=1,
    learner=learners.LearnerConfig(learners.A2C(normalize_advantages=True), learning_rate=3e-3),
)
VARIANTS = {
    "paper": PAPER,
    "cats": CATS,
    "a2c": A2C,
    "one-step": dataclasses.replace(A2C, gae_lambda=0.0),
    "n-step": dataclasses.replace(A2C, num_steps=2),
    "paper-gae": dataclasses.replace(PAPER, gae_lambda=0.9, terminal_weight=1.0),
}


@functools.cache
def _many_seeds(config):
    train = learners.make_train(config, WORLD)
    return jax.jit(jax.vmap(train, in_axes=(None, 0)))((), jax.random.split(jax.random.key(0), 2))


@functools.cache
def _single_runs():
    chex.clear_trace_counter()
    train = learners.make_train(A2C, WORLD)
    train = jax.jit(chex.assert_max_traces(train, n=1))  # no seed compiles anew
    return [train((), key) for key in jax.random.split(jax.random.key(0), 2)]


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("paper", "a2c") else pytest.param(name, marks=pytest.mark.slow)
        for name in VARIANTS
    ],
)
def test_training_finds_the_best_action(name):
    curves = _many_seeds(VARIANTS[name]).curves
    first, last = np.s_[:, :2], np.s_[:, -5:]
    assert np.all(np.mean(curves.reward[last], 1) > np.mean(curves.reward[first], 1))
    assert np.all(np.mean(curves.accuracy[last], 1) > 0.9)
    assert np.all(np.mean(curves.accuracy[first], 1) < 0.8)
    assert np.all(curves.top_action[:, -1] > 0.8)
    assert np.all(curves.entropy[:, -1] < curves.entropy[:, 0])


def test_many_seeds_equal_single_runs():
    many, single = _many_seeds(A2C), _single_runs()
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
def test_the_price_decides():
    """Two candidates more in the last step make every answer right: worth .04, not 1.6 of it."""
    config = dataclasses.replace(
        CATS,
        # By the minimum, a right last step behind a wrong one would not be ranked first.
        cats=dataclasses.replace(CATS.cats, path_score="product"),
        prices=(2.0, 80.0),
        num_iterations=300,
        entropy_weight=0.02,
        searches_per_question=1,
    )
    result = jax.jit(learners.make_train(config, WORLD))((), jax.random.key(0))
    strategy = search.cats.cats(
        learners.make_policy(learners.make_actor(3, (32,)).apply, "argmax"), config.cats
    )
    play = learners.make_episodes(strategy, WORLD, max_depth=3, capacity=CAPACITY)
    keys = jax.random.split(jax.random.key(1), 8)
    eights = jnp.full((8,), 8, jnp.int32)
    for price, worth_it in ((2.0, True), (80.0, False)):
        _, outcome = play(result.learner_state.actor, (), keys, eights, jnp.full((8,), price))
        counts = np.asarray(outcome.action_counts).sum(0)
        assert counts.tolist() == ([8, 0, 8] if worth_it else [16, 0, 0])
        assert np.all(outcome.correct == worth_it)


def test_every_question_draws_a_rate_of_the_prm():
    config = dataclasses.replace(
        CATS,
        cats=dataclasses.replace(CATS.cats, cost_unit="tokens"),
        prices=(0.1, 0.3),
        prm_token_costs=(1.0, 4.0),
        num_episodes=256,
    )
    _, drawn = learners.make_update_fns(config).draw(jax.random.key(0))
    pairs = [
        (round(float(price), 4), float(rate))
        for each in drawn
        for price, rate in zip(each.price, each.prm_token_cost, strict=True)
    ]
    counts = collections.Counter(pairs)
    assert set(counts) == {(price, rate) for price in (0.1, 0.3) for rate in (1.0, 4.0)}
    assert min(counts.values()) > len(pairs) / 8  # price and rate are drawn by themselves
    _, drawn = learners.make_update_fns(CATS).draw(jax.random.key(0))
    assert {float(rate) for each in drawn for rate in each.prm_token_cost} == {1.0}


def test_no_two_draws_of_a_batch_take_the_same_key(monkeypatch):
    """`choice` splits its key, so that the key of another draw must not be one of its halves."""
    used, choice = [], jax.random.choice

    def noting(key, *arguments):
        used.extend([key, *jax.random.split(key)])
        return choice(key, *arguments)

    monkeypatch.setattr(jax.random, "choice", noting)
    learners.make_update_fns(CATS).draw(jax.random.key(0))
    data = {tuple(jax.random.key_data(key).tolist()) for key in used}
    assert len(data) == len(used) >= 9


@pytest.mark.parametrize(
    ("sizes", "episodes", "expected"),
    [
        ((4, 8, 16, 32, 64), 64, [(16, (4, 8, 16), 38), (64, (32, 64), 26)]),
        ((64,), 32, [(64, (64,), 32)]),
        ((5, 4), 7, [(5, (5, 4), 7)]),  # no larger than it has to be
        ((17, 256), 10, [(64, (17,), 5), (256, (256,), 5)]),
        ((4, 64, 256), 1, [(16, (4,), 1), (64, (64,), 1), (256, (256,), 1)]),
    ],
)
def test_buckets(sizes, episodes, expected):
    found = buckets(sizes, episodes)
    # A pool that is the last in use has no rows to spare.
    assert [(min(c, max(s)), s, n) for c, s, n in expected] == list(found)


@pytest.mark.slow
def test_sequential_training_runs():
    config = dataclasses.replace(
        PAPER,
        learner=learners.LearnerConfig(learners.A2C(sequential=True)),
        num_iterations=3,
        num_episodes=2,
    )
    result = jax.jit(learners.make_train(config, WORLD))((), jax.random.key(0))
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": "best"}, "reward must be 'paper' or 'outcome', got 'best'"),
        ({"prices": (0.1,)}, "prices needs reward='outcome'"),
        ({"prices": ()}, "prices must be numbers >= 0, got"),
        ({**OUTCOME, "prices": (0.2, -0.1)}, r">= 0, got \(0.2, -0.1\)"),
        ({**OUTCOME, "prices": (float("inf"),)}, "prices must be numbers >= 0"),
        (
            {"cats": TOKENS, "prm_token_costs": ()},
            r"prm_token_costs must be numbers >= 0, got \(\)",
        ),
        ({"cats": TOKENS, "prm_token_costs": (1.0, -2.0)}, r">= 0, got \(1.0, -2.0\)"),
        (
            {"cats": TOKENS, "prm_token_costs": (float("nan"),)},
            "prm_token_costs must be numbers >= 0",
        ),
        ({"prm_token_costs": (4.0,)}, r"prm_token_costs needs cats\.cost_unit='tokens'"),
        ({"default_price": -0.1}, "default_price must be a number >= 0, got -0.1"),
        ({"default_price": float("inf")}, "default_price must be a number >= 0, got inf"),
        ({"reward": "outcome"}, "needs a terminal_weight"),
        ({"terminal_weight": -1.0}, "terminal_weight must be a number >= 0, got -1.0"),
        ({"terminal_weight": float("inf")}, "terminal_weight must be a number >= 0, got inf"),
        (
            {"terminal_weight": 1.0, "cats": NO_DISCOUNT},
            r"terminal_weight needs cats\.reward\.discount > 0 with reward='paper'",
        ),
        ({"entropy_weight": -0.1}, "entropy_weight must be a number >= 0, got -0.1"),
        ({"gae_lambda": 1.5}, r"gae_lambda must be in \[0, 1\], got 1.5"),
        ({"num_steps": 3}, "num_steps=3 must be >= 1 and needs a gae_lambda > 0"),
        ({"num_steps": 0, "gae_lambda": 1.0}, "num_steps=0 must be >= 1"),
        ({"num_candidates": ()}, "num_candidates must be in"),
        ({"searches_per_question": 0}, "searches_per_question must be an integer >= 1, got 0"),
        (
            {**OUTCOME, "num_episodes": 6, "searches_per_question": 4},
            "searches_per_question=4 must divide num_episodes=6",
        ),
        (
            {"num_episodes": 8, "searches_per_question": 4},
            "searches_per_question=4 needs reward='outcome' and gae_lambda=1",
        ),
        (
            {**OUTCOME, "gae_lambda": 0.9, "searches_per_question": 2},
            "searches_per_question=2 needs reward='outcome'",
        ),
        (
            {**OUTCOME, "gae_lambda": 1.0, "num_steps": 3, "searches_per_question": 2},
            "searches_per_question=2 needs reward='outcome' and gae_lambda=1, without num_steps",
        ),
        ({"num_candidates": (4, 512)}, r"num_candidates must be in 1\.\.256, got \(4, 512\)"),
        ({"actor_hidden": (0,)}, "actor_hidden must be an integer >= 1, got 0"),
        ({"num_iterations": True}, "num_iterations must be an integer >= 1, got True"),
        ({"num_iterations": 0}, "num_iterations must be an integer >= 1, got 0"),
        ({"num_episodes": 0}, "num_episodes must be an integer >= 1, got 0"),
        ({"max_depth": 0}, "max_depth must be an integer >= 1, got 0"),
    ],
)
def test_refuses_configurations_without_meaning(options, message):
    with pytest.raises(ValueError, match=message):
        learners.TrainConfig(**options)


@pytest.mark.slow
@pytest.mark.emitters  # without them the two differ in last bits
def test_a_training_in_parts_is_the_training():
    config = dataclasses.replace(PAPER, num_iterations=4)
    whole = jax.jit(learners.make_train(config, WORLD))((), jax.random.key(3))
    training = learners.make_train_loop(config, WORLD)
    advance = jax.jit(training.advance)
    state, keys = training.init(jax.random.key(3))
    curves = []
    for part in (slice(0, 2), slice(2, 4)):
        state, found = advance((), state, jnp.arange(4, dtype=jnp.int32)[part], keys[part])
        curves.append(found)
    chex.assert_trees_all_equal(state, whole.learner_state)
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *curves)
    chex.assert_trees_all_equal(joined, whole.curves)
