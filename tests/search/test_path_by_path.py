"""Methods that write one path after the other: their rules against independent sources."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import search
from search import simulation
from search.strategy.path_by_path import leader_stays

stays = jax.jit(leader_stays)


@given(st.lists(st.integers(-1, 3), max_size=40))
def test_the_leader_stays_with_the_probability_of_scipys_beta_distribution(answers):
    padded = np.full(48, 7, np.int32)
    padded[: len(answers)] = answers
    valid = np.arange(48) < len(answers)
    votes = sorted((answers.count(answer) for answer in range(4)), reverse=True)
    expected = stats.beta(votes[1] + 1, votes[0] + 1).cdf(0.5)
    assert float(stays(jnp.asarray(padded), jnp.asarray(valid))) == pytest.approx(
        expected, abs=1e-5
    )


def play(strategy, num_candidates, *, lucky=0.2, seed=3):
    """Final states of 64 searches of a simulated question."""
    params = simulation.toy_params(num_steps=(4,), invalid=0.05, lucky=lucky, max_depth=5)
    task = simulation.question(params, jax.random.key(seed), 0, 0)

    def one(key):
        state = search.init(
            task.root, strategy=strategy, num_candidates=num_candidates, max_depth=5, capacity=16
        )
        expand_fn = simulation.simulator(16)
        return search.rollout((), task.params, key, state, strategy=strategy, expand_fn=expand_fn)[
            0
        ]

    return jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), 64)))


def test_a_larger_confidence_asks_for_more_paths():
    few, some, all_paths = (
        play(search.adaptive_consistency(confidence=confidence), 16).spent.mean()
        for confidence in (0.7, 0.95, 0.999999)
    )
    assert few < 0.7 * some < 0.7 * all_paths
    # Four equal answers are enough for .95: 1 - 2^-5 = .969, and three are not.
    assert search.adaptive_consistency().sampling == (search.Sampling(),)


def test_adaptive_consistency_stops_after_four_equal_answers():
    answers = jnp.asarray([2, 2, 2, 2, 0, 0], jnp.int32)
    chances = [float(stays(answers, jnp.arange(6) < count)) for count in range(7)]
    assert chances == pytest.approx([0.5, 0.75, 0.875, 0.9375, 0.96875, 0.890625, 0.7734375])


def test_thresholds_that_never_hold_give_best_of_n_in_turn():
    final = play(search.sequential_best_of_n(stop=2.0), 8)
    assert (final.memory.begun == 8).all()
    stopped = play(search.sequential_best_of_n(stop=0.0), 8)
    answered = (stopped.finished.valid & (stopped.finished.answer >= 0)).any(axis=1)
    assert (stopped.memory.begun[answered] < 8).any()
    # A search stops at its first answer.
    assert ((stopped.finished.answer >= 0).sum(axis=1) <= 1).all()


def test_bad_paths_are_given_up_but_not_the_last():
    patient = play(search.sequential_best_of_n(stop=2.0), 8)
    strict = play(search.sequential_best_of_n(stop=2.0, abort=1.1), 8)
    assert strict.spent.mean() < 0.5 * patient.spent.mean()
    # With a threshold that no path reaches, all but the last are given up at their first step.
    assert (strict.finished.valid.sum(axis=1) <= 1).all()
    assert (strict.spent >= 8).all()
    assert (strict.finished.valid.sum(axis=1) == 1).mean() > 0.5


def test_only_the_first_path_is_greedy():
    strategy = search.sequential_best_of_n(stop=2.0, greedy_first=True)
    assert strategy.sampling == (search.Sampling(temperature=0.0), search.Sampling())
    state = search.init(jnp.int32(0), strategy=strategy, num_candidates=4, max_depth=3, capacity=4)
    later = state.replace(memory=state.memory.replace(begun=jnp.int32(2)))
    for moment, temperature in ((state, 0.0), (later, 1.0)):
        wanted = search.plan((), jax.random.key(0), moment, strategy=strategy).request
        assert wanted.num_samples.tolist() == [1, 0, 0, 0]
        assert wanted.temperature[0] == temperature


@pytest.mark.parametrize("options", [{"stop": -0.1}, {"abort": -1.0}, {"stop": float("nan")}])
def test_thresholds_are_checked(options):
    with pytest.raises(ValueError, match="must be a path score >= 0"):
        search.sequential_best_of_n(**options)


@pytest.mark.parametrize("confidence", [0.5, 1.0, float("nan")])
def test_confidence_is_checked(confidence):
    with pytest.raises(ValueError, match=r"confidence must be in \(0\.5, 1\)"):
        search.adaptive_consistency(confidence=confidence)
