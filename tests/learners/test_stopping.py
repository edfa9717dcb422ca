"""Training of a stopper: its episodes by hand, and what it learns on answers with a known best."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import learners
import search
from learners import stopping

NUM_PATHS = 8
CONFIG = learners.StoppingConfig(
    num_candidates=(NUM_PATHS,),
    prices=(2.0,),
    num_episodes=64,
    num_iterations=80,
    actor_hidden=(16,),
    critic_hidden=(16,),
    learner=learners.LearnerConfig(learning_rate=1e-2),
)


def _recorded(answers, scores=None):
    answer = jnp.asarray(answers, jnp.int32)
    score = jnp.zeros(answer.shape) if scores is None else jnp.asarray(scores)
    valid = jnp.ones(answer.shape, bool)
    return learners.Recorded(
        search.stopping.Answers(valid, answer, score.astype(jnp.float32)), answer == 0
    )


def _questions(number, seed):
    """Half of the questions always have the right answer; the others have it in 5 of 8 paths."""
    rng = np.random.default_rng(seed)
    hard = np.array([0, 0, 0, 0, 0, 1, 2, 3])
    rows = [np.zeros(8, int) if i % 2 else rng.permutation(hard) for i in range(number)]
    return _recorded(rows)


def test_the_answer_after_each_path_is_the_vote():
    recorded = _recorded([[1, 0, 0, 1, 1, 2, 2, 0]])
    answers, right = jax.tree.map(lambda leaf: leaf[0], recorded)
    features, is_right = learners.after_each(CONFIG, answers, right, jnp.int32(8), jnp.float32(1.0))
    # Of equal votes the first answer wins.
    assert is_right.tolist() == [False, False, True, False, False, False, False, False]
    assert features.shape == (8, len(search.stopping.STOPPING_FEATURES))
    weighing = dataclasses.replace(CONFIG, uses_scores=True)
    scored = _recorded([[1, 0, 0, 1, 1, 2, 2, 0]], [[0.25, 0.5, 0.5, 0.25, 0.25, 0.0, 0.0, 1.0]])
    answers, right = jax.tree.map(lambda leaf: leaf[0], scored)
    _, is_right = learners.after_each(weighing, answers, right, jnp.int32(8), jnp.float32(1.0))
    assert is_right.tolist() == [False] + [True] * 7


def test_the_return_of_a_decision_pays_the_paths_after_it():
    recorded = _recorded([[0] * NUM_PATHS])
    actor, _ = learners.stopping_networks(CONFIG)
    params = actor.init(jax.random.key(0))
    episode = jax.jit(functools.partial(stopping._episode, CONFIG, actor, recorded, params))
    seen = set()
    for seed in range(12):
        rows, total = jax.device_get(episode(jax.random.key(seed)))
        decided = int(rows.weight_t.sum())
        stopped = rows.action_tm1[decided - 1] == search.stopping.STOP
        paths = decided if stopped else NUM_PATHS
        assert decided == (paths if stopped else NUM_PATHS - 1)
        assert (rows.weight_t[:decided] == 1.0).all()
        assert (rows.action_tm1[: decided - 1] == search.stopping.MORE).all()
        expected = 1.0 - 0.02 * (paths - 1 - np.arange(decided))
        np.testing.assert_allclose(rows.reward_t[:decided], expected, rtol=1e-6)
        np.testing.assert_allclose(rows.available_tm1[:decided], 7 - np.arange(decided))
        assert total == pytest.approx(1.0 - 0.02 * paths)
        assert not rows.discount_t.any()
        seen.add(paths)
    assert len(seen) > 2


def test_a_stopper_learns_where_more_paths_pay():
    """One wrong answer is never followed by an end; equal answers are, as soon as it is cheap."""
    train = jax.jit(learners.make_stopping(CONFIG))
    state, returns = train(_questions(64, 0), jax.random.key(1))
    held_out = _questions(256, 1)
    paths, right = jax.jit(functools.partial(learners.stopping_times, CONFIG))(
        state.actor, held_out, jnp.int32(NUM_PATHS), jnp.float32(2.0)
    )
    easy = np.arange(256) % 2 == 1
    value = float(np.mean(right)) - 0.02 * float(np.mean(paths))
    one, everything = (1.0 + 5 / 8) / 2 - 0.02, 1.0 - 0.02 * NUM_PATHS
    assert value > max(one, everything) + 0.02
    assert np.mean(paths[easy]) < 0.75 * np.mean(paths[~easy])
    assert np.mean(returns[-10:]) > np.mean(returns[:10])


def test_fewer_recorded_paths_than_n_are_refused():
    """The search would otherwise seem to stop after its first path."""
    train = learners.make_stopping(CONFIG)
    with pytest.raises(ValueError, match="recorded has 7 paths of a question: N = 8 needs as many"):
        train(_recorded([[0] * (NUM_PATHS - 1)]), jax.random.key(0))


def test_a_stopper_stops_at_the_latest_with_the_recorded_paths(monkeypatch):
    """One that always wants more would otherwise seem to stop after the first path."""

    def more(params, features):
        return jnp.broadcast_to(jnp.array([0.0, 1.0]), (features.shape[0], 2))

    actor = types.SimpleNamespace(apply=more)
    monkeypatch.setattr(stopping, "stopping_networks", lambda config: (actor, None))
    recorded, price = _recorded([[0] * 4]), jnp.float32(0.1)
    times, _ = learners.stopping_times(CONFIG, (), recorded, jnp.int32(8), price)
    assert times.tolist() == [4]


def test_what_is_out_of_range_is_named():
    for changes, message in (
        ({"num_candidates": (1,)}, "values of 2 to 256, got"),
        ({"prices": (-1.0,)}, "prices must be numbers >= 0"),
        ({"num_iterations": 0}, "num_iterations must be an integer >= 1"),
        ({"critic_hidden": (0,)}, "critic_hidden must be an integer >= 1"),
        ({"entropy_weight": float("nan")}, "entropy_weight must be a number >= 0"),
    ):
        with pytest.raises(ValueError, match=message):
            learners.StoppingConfig(**changes)
