"""Recorded decisions as rows to learn from, and what is learnt from them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import learners
import search
from cats_jax.errors import BadInputError
from cats_jax.training import trajectories
from cats_jax.training.collect import StoredDecisions

NUM_FEATURES = len(search.cats.FEATURE_NAMES)
ACTIONS = search.cats.ActionTable(((0, 1, 1.0, 1.0, 0), (2, 1, 1.0, 1.0, 0), (4, 1, 1.0, 1.0, 0)))
PAPER = dataclasses.replace(
    learners.PAPER,
    cats=dataclasses.replace(search.cats.PAPER, actions=ACTIONS),
    terminal_weight=0.5,
)
OFFLINE = dataclasses.replace(
    learners.OFFLINE,
    cats=dataclasses.replace(search.cats.CATS, actions=ACTIONS),
    learner=dataclasses.replace(learners.OFFLINE.learner, learning_rate=5e-3),
    actor_hidden=(16,),
    critic_hidden=(16,),
    num_iterations=300,
    num_episodes=8,
)


def _decisions(**changes):
    """Two searches: a tree of four decisions, and a single one."""
    rng = np.random.default_rng(0)
    columns = {
        "search": np.array([0, 0, 0, 0, 3], np.int32),
        "question": np.array(["a", "a", "a", "a", "b"]),
        "prm": np.array(["good", "good", "good", "good", "bad"], object),
        "price": np.array([0.2, 0.2, 0.2, 0.2, 0.6], np.float32),
        "features": rng.normal(size=(5, NUM_FEATURES)).astype(np.float32),
        "available": np.array([9, 8, 7, 6, 5], np.int32),
        "action": np.array([1, 0, 2, 0, 1], np.int32),
        "log_prob": np.array([-1.0, -1.1, -1.2, -1.3, 0.0], np.float32),
        "reward": np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32),
        "remaining": np.array([20, 15, 15, 4, 30], np.int32),
        "predecessor": np.array([-1, 0, 0, 2, -1], np.int32),
        "ends": np.array([0, 1, 0, 2, 1], np.int32),
        "correct": np.array([True, True, True, True, False]),
    }
    manifest = {"question_ids": ["a", "b", "c"], "question_texts": ["of a", "of b", "of c"]}
    return StoredDecisions({**columns, **changes}, search.cats.FEATURE_NAMES, ACTIONS, manifest)


@pytest.fixture
def stored(monkeypatch):
    """Every folder holds these decisions."""
    monkeypatch.setattr(trajectories, "load_decisions", lambda folder: _decisions())


def test_outcome_rows_are_monte_carlo_returns():
    decisions = _decisions()
    rows = trajectories.outcome_rows(decisions, 1.0)
    expected = [1 - 0.2 * n / 100 for n in (20, 15, 15, 4)] + [0 - 0.6 * 30 / 100]
    np.testing.assert_allclose(rows.reward_t, expected, rtol=1e-6)
    assert not np.any(rows.discount_t)
    assert np.all(np.asarray(rows.weight_t) == 1)
    for name in ("features", "available", "action", "log_prob"):
        np.testing.assert_array_equal(getattr(rows, f"{name}_tm1"), decisions.columns[name])


def test_one_step_rows_follow_the_paths():
    decisions = _decisions()
    rows = trajectories.one_step_rows(decisions, PAPER)
    features = decisions.columns["features"]
    #           from, to, weight, bonus
    expected = [(0, 1, 1, 0), (0, 2, 1, 0), (2, 3, 1, 0), (1, None, 1, 0.5), (3, None, 2, 0.5)]
    expected += [(4, None, 1, 0)]
    columns = (rows.features_tm1, rows.features_t, rows.reward_t, rows.discount_t, rows.weight_t)
    found = list(zip(*columns, strict=True))
    assert len(found) == len(expected)
    for row, (source, target, weight, bonus) in zip(found, expected, strict=True):
        before, after, reward, discount, found_weight = map(np.asarray, row)
        np.testing.assert_array_equal(before, features[source])
        np.testing.assert_array_equal(after, 0 if target is None else features[target])
        assert reward == pytest.approx(decisions.columns["reward"][source] + bonus)
        assert discount == pytest.approx(0.0 if target is None else 0.9)
        assert found_weight == weight


def test_refuses_another_action_table(stored, tmp_path):
    with pytest.raises(BadInputError, match="collected with another action table"):
        trajectories.load_rows(tmp_path, learners.OFFLINE)
    rows, questions = trajectories.load_rows(tmp_path, OFFLINE)
    assert questions == {"a": "of a", "b": "of b"}
    assert rows.reward_t.shape == (5,)
    assert trajectories.load_rows(tmp_path, PAPER)[0].reward_t.shape == (6,)
    with pytest.raises(
        BadInputError, match="--trajectories needs reward=outcome with gae_lambda=1"
    ):
        trajectories.load_rows(tmp_path, dataclasses.replace(OFFLINE, gae_lambda=0.9))


def test_questions_that_a_behaviour_policy_learned_from_count_as_learned(monkeypatch, tmp_path):
    made = _decisions()
    manifest = {**made.manifest, "behaviours_learned": {"z": "of z", "a": "of a"}}
    told = dataclasses.replace(made, manifest=manifest)
    monkeypatch.setattr(trajectories, "load_decisions", lambda folder: told)
    _, questions = trajectories.load_rows(tmp_path, OFFLINE)
    assert questions == {"z": "of z", "a": "of a", "b": "of b"}
    # Ids may be mere numbers of rows: no text is lost.
    manifest["behaviours_learned"] = {"a": "of another a"}
    _, questions = trajectories.load_rows(tmp_path, OFFLINE)
    assert sorted(questions.values()) == ["of a", "of another a", "of b"]


def test_the_checkpoint_states_the_recorded_prices(monkeypatch, stored, tmp_path):
    found = trajectories.at_recorded_prices(tmp_path, OFFLINE)
    assert (found.prices, found.default_price) == ((0.2, 0.6), OFFLINE.default_price)
    given = dataclasses.replace(OFFLINE, default_price=0.5)
    found = trajectories.at_recorded_prices(tmp_path, given, ["good"])
    assert (found.prices, found.default_price) == ((0.2,), 0.2)
    assert trajectories.at_recorded_prices(tmp_path, PAPER) is PAPER
    # Costs of a PRM token are in a feature: log2(1 + cost) / 4.
    made = _decisions()
    features = made.columns["features"].copy()
    features[:, search.cats.FEATURES.column("prm_token_cost")] = np.log2(1 + 4.0) / 4
    told = dataclasses.replace(made, columns={**made.columns, "features": features})
    monkeypatch.setattr(trajectories, "load_decisions", lambda folder: told)
    found = trajectories.at_recorded_prices(tmp_path, learners.CATS_TOKENS)
    assert found.prm_token_costs == (4.0,)


def test_only_the_named_prms_are_learnt_from(stored, tmp_path):
    whole, _ = trajectories.load_rows(tmp_path, OFFLINE)
    rows, questions = trajectories.load_rows(tmp_path, OFFLINE, ["bad"])
    assert questions == {"b": "of b"}
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[4:]), rows, whole)
    rows, questions = trajectories.load_rows(tmp_path, PAPER, ["good"])
    assert questions == {"a": "of a"}
    assert rows.reward_t.shape == (5,)
    with pytest.raises(BadInputError, match=r"have no PRM 'god': did you mean 'good'"):
        trajectories.load_rows(tmp_path, OFFLINE, ["good", "god"])


def test_ppo_does_not_learn_from_others_decisions(tmp_path):
    with pytest.raises(BadInputError, match=r"algorithm=PPO: PPO learns from decisions of the"):
        trajectories.load_rows(tmp_path, learners.CATS)


def test_decisions_are_not_judged_by_tokens(stored, tmp_path):
    tokens = dataclasses.replace(OFFLINE.cats, cost_unit="tokens")
    with pytest.raises(BadInputError, match="imitated and not valued; choose --config clone"):
        trajectories.load_rows(tmp_path, dataclasses.replace(OFFLINE, cats=tokens))
    clone = dataclasses.replace(learners.CLONE, cats=tokens)
    rows, _ = trajectories.load_rows(tmp_path, clone)
    # The critic learns what the answers were worth.
    np.testing.assert_array_equal(rows.reward_t, [1.0, 1.0, 1.0, 1.0, 0.0])


@functools.cache
def _table(deterministic):
    """Two contexts; action 1 is right in the first, action 2 in the second.

    Actions were taken at random, or by a fixed plan that takes the right one once in four times.
    """
    rng = np.random.default_rng(1)
    context = rng.integers(0, 2, 600)
    action = rng.integers(0, 3, 600)
    if deterministic:
        action = np.where(np.arange(600) % 4 == 0, context + 1, 0)
    features = np.zeros((600, NUM_FEATURES), np.float32)
    features[np.arange(600), context] = 1.0
    right = (action == context + 1).astype(np.float32)
    return search.cats.Transition(
        features_tm1=jnp.asarray(features),
        available_tm1=jnp.full((600,), 9, jnp.int32),
        action_tm1=jnp.asarray(action, jnp.int32),
        log_prob_tm1=jnp.zeros((600,)),
        reward_t=jnp.asarray(right),
        discount_t=jnp.zeros((600,)),
        features_t=jnp.zeros((600, NUM_FEATURES)),
        weight_t=jnp.ones((600,)),
    )


def test_regression_learns_better_decisions_than_were_taken():
    train = jax.jit(learners.make_offline(OFFLINE))
    actor = learners.make_actor(3, OFFLINE.actor_hidden)
    critic = learners.make_critic(OFFLINE.critic_hidden)
    contexts = jnp.eye(2, NUM_FEATURES)
    for table in (_table(False), _table(True)):
        state, metrics = train(jax.random.key(0), table)
        probabilities = np.asarray(jax.nn.softmax(actor.apply(state.actor, contexts)))
        # mu exp(A / temperature), normalised, is .96 and .97.
        assert probabilities[0, 1] > 0.9
        assert probabilities[1, 2] > 0.9
        # The critic has learnt what those decisions were worth.
        mean = float(np.mean(table.reward_t))
        np.testing.assert_allclose(critic.apply(state.critic, contexts), mean, atol=0.1)
        assert metrics.critic_loss.shape == (300,)
        assert np.mean(metrics.critic_loss[-30:]) < np.mean(metrics.critic_loss[:30])


def test_a_clone_takes_the_decisions_that_were_taken():
    clone = dataclasses.replace(
        OFFLINE,
        learner=dataclasses.replace(learners.CLONE.learner, learning_rate=5e-3),
        num_iterations=600,
    )
    state, _ = jax.jit(learners.make_offline(clone))(jax.random.key(0), _table(True))
    actor = learners.make_actor(3, OFFLINE.actor_hidden)
    found = np.asarray(jax.nn.softmax(actor.apply(state.actor, jnp.eye(2, NUM_FEATURES))))
    # A quarter of the decisions in a context was the right one, the others were action 0.
    np.testing.assert_allclose(found, [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], atol=0.05)
