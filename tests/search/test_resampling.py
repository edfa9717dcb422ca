"""Resampling, particle filtering and REBASE: the published rules, values of the authors' code."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import search
from search.resampling import SCHEMES
from search.strategy.particle_filtering import tempered
from search.strategy.rebase import balanced

M = 8
MASS = st.lists(st.sampled_from([0.0, 0.125, 0.3, 1.0, 40.0]), min_size=M, max_size=M).filter(any)


@functools.cache
def drawn_of(name):
    return jax.jit(SCHEMES[name])


def drawn(name, seed, mass, total):
    mass = jnp.asarray(mass, jnp.float32)
    return np.asarray(drawn_of(name)(jax.random.key(seed), mass, jnp.int32(total)))


@pytest.mark.parametrize("name", SCHEMES)
@settings(max_examples=60, deadline=None)
@given(mass=MASS, total=st.integers(0, M), seed=st.integers(0, 1000))
def test_copies_sum_to_the_total_and_none_are_of_a_row_without_mass(name, mass, total, seed):
    copies = drawn(name, seed, mass, total)
    assert copies.sum() == total
    assert (copies >= 0).all()
    assert not copies[np.asarray(mass) == 0].any()
    expected = np.asarray(mass) / np.sum(mass) * total
    if name == "systematic":
        assert (np.abs(copies - expected) < 1 + 1e-4).all()
        # With eighths no sum is rounded, in float32 and in the oracle.
        eighths = [round(8 * each) for each in mass]
        offset = float(jax.random.uniform(jax.random.key(seed), (), jnp.float32))
        teeth = oracle.systematic_resample(offset, eighths, total)
        assert drawn(name, seed, eighths, total).tolist() == teeth
    if name == "residual":
        exact = [Fraction(float(np.float32(each))) for each in mass]
        assert all(
            copy >= math.floor(total * each / sum(exact))
            for copy, each in zip(copies.tolist(), exact, strict=True)
        )
    padded = drawn(name, seed, [*mass, *[0.0] * M], total)
    assert padded.tolist() == [*copies.tolist(), *[0] * M]


@pytest.mark.parametrize("number", range(1, 2 * M + 1))
def test_residual_copies_equal_masses_once(number):
    """Douc et al.: the floor of an expected number of 1 is 1, and nothing is left to draw."""
    padded = jax.nn.softmax(jnp.where(jnp.arange(2 * M) < number, 1.3, -jnp.inf))
    copies = np.asarray(drawn_of("residual")(jax.random.key(1), padded, jnp.int32(number)))
    assert copies.tolist() == [1] * number + [0] * (2 * M - number)


@pytest.mark.parametrize("name", SCHEMES)
def test_the_expected_number_of_copies_is_proportional_to_the_mass(name):
    mass, total, draws = np.array([0.5, 0.0, 3.0, 1.0, 0.7]), 5, 4000
    keys = jax.random.split(jax.random.key(3), draws)
    many = jax.jit(jax.vmap(lambda key: SCHEMES[name](key, jnp.asarray(mass), jnp.int32(total))))
    mean = np.asarray(many(keys)).mean(axis=0)
    expected = mass / mass.sum() * total
    # Five standard errors of a multinomial draw, which varies most.
    error = np.sqrt(expected * (1 - expected / total) / draws)
    assert (np.abs(mean - expected) <= 5 * error).all()


def at_the_second_step(scores, strategy, num_candidates):
    """A search of which one step is done: paths with these scores."""
    width = strategy.width(num_candidates)
    state = search.init(
        jnp.int32(0), strategy=strategy, num_candidates=num_candidates, max_depth=3, capacity=64
    )
    rows = jnp.arange(64)
    valid = rows < len(scores)
    padded = jnp.zeros((64,)).at[: len(scores)].set(jnp.asarray(scores))
    frontier = state.frontier.replace(
        valid=valid,
        depth=valid.astype(jnp.int32),
        step_scores=state.frontier.step_scores.at[:, 0].set(padded),
    )
    assert int(width) == num_candidates
    return state.replace(frontier=frontier, step=jnp.int32(1))


@pytest.mark.parametrize(
    ("scores", "shares"),
    [  # softmax of log-odds, by its_hub's `_inv_sigmoid` and `_softmax` at e4d00d1
        ([0.1, 0.5, 0.9], [0.010989011, 0.098901099, 0.89010989]),
        ([0.0, 0.25, 0.5, 1.0], [0.0, 3.3e-08, 1e-07, 0.999999867]),
        ([0.625, 0.75, 0.875, 0.9375], [0.0625, 0.1125, 0.2625, 0.5625]),
    ],
)
def test_particles_are_drawn_by_the_odds_of_their_scores(scores, shares):
    strategy = search.methods.particle_filtering()
    state = at_the_second_step(scores, strategy, 32)
    plans = jax.jit(jax.vmap(lambda key: strategy.plan((), key, state)[0].num_samples))(
        jax.random.split(jax.random.key(1), 500)
    )
    mean = np.asarray(plans).sum(axis=0) / (32 * 500)
    error = np.sqrt(np.multiply(shares, np.subtract(1, shares)) / (32 * 500))
    assert (np.abs(mean[: len(scores)] - shares) <= 5 * error + 1e-6).all()
    assert not mean[len(scores) :].any()


def test_a_finished_particle_is_lost_or_stands_twice():
    """Two particles, of which the finished one has nearly no weight, and then nearly all of it."""
    strategy = search.methods.particle_filtering()
    state = at_the_second_step([0.5], strategy, 2)
    for score, copies in ((0.0, 0), (1.0, 2)):
        finished = state.finished.replace(
            valid=state.finished.valid.at[0].set(True),
            depth=state.finished.depth.at[0].set(1),
            step_scores=state.finished.step_scores.at[0, 0].set(score),
            answer=state.finished.answer.at[0].set(7),
        )
        begun = state.replace(finished=finished)
        request, memory = strategy.plan((), jax.random.key(0), begun)
        assert int(request.num_samples[0]) == 2 - copies
        assert strategy.keep_finished is not None
        after = strategy.keep_finished(begun.replace(memory=memory))
        assert int(after.valid.sum()) == copies
        assert (np.asarray(after.answer)[:copies] == 7).all()


def test_the_sampled_answer_is_drawn_by_weight():
    strategy = search.methods.particle_filtering(vote="sampled", weight_temperature=2.0)
    state = at_the_second_step([0.5, 0.9], strategy, 2)
    finished = state.frontier.replace(answer=jnp.arange(64))

    def chosen(key):
        _, memory = strategy.plan((), key, state)
        memory = memory.replace(copies=jnp.ones(64, jnp.int32))
        assert strategy.keep_finished is not None
        kept = strategy.keep_finished(state.replace(finished=finished, memory=memory))
        kept = kept.replace(valid=finished.valid)
        return strategy.answer((), kept, state.context, strategy.aggregation)

    rows = np.asarray(jax.jit(jax.vmap(chosen))(jax.random.split(jax.random.key(5), 2000)))
    share = 3 / (1 + 3)  # the square roots of the odds 1 and 9
    assert abs((rows == 1).mean() - share) < 5 * np.sqrt(share * (1 - share) / 2000)


@pytest.mark.parametrize(
    ("log_weights", "progress", "temperatures"),
    [  # by the formulas of its_hub's `_temperature_annealing` in float64: ess, entropy, base
        ([3.0, 0.0, -1.0, -2.0], 0.25, [2.604193, 2.392007, 1.75]),
        ([3.0, 0.0, -1.0, -2.0], 0.5, [1.0, 1.0, 1.0]),  # late
        ([1.0, 0.5, 0.0, 0.2], 0.25, [1.0, 1.0, 1.0]),  # many particles hold the mass
        ([16.0, -16.0, -16.0, -16.0, -16.0, -16.0], 0.125, [5.249999, 7.999745, 1.875]),
        ([2.0, -2.0, -2.0], 0.4, [1.676159, 2.012703, 1.6]),
    ],
)
def test_weights_are_tempered_as_in_its_hub(log_weights, progress, temperatures):
    padded = jnp.asarray([*log_weights, *[-jnp.inf] * (M - len(log_weights))], jnp.float32)
    for method, temperature in zip(("ess", "entropy", "base"), temperatures, strict=True):
        found = tempered(padded, jnp.float32(progress), method, 0.5, 0.5)
        np.testing.assert_allclose(found, padded / np.float32(temperature), rtol=1e-4)


def test_a_lone_particle_keeps_its_weight():
    alone = jnp.asarray([3.0, -jnp.inf], jnp.float32)
    for method in ("ess", "entropy", "base"):
        assert tempered(alone, jnp.float32(0.0), method, 1.0, 1.0).tolist() == [3.0, -math.inf]


def test_confident_particles_are_drawn_by_the_likelihood_of_their_tokens():
    strategy = search.methods.particle_filtering(weight_source="confidence")
    assert strategy.needs_log_probs
    assert not strategy.uses_scores
    state = at_the_second_step([0.9, 0.1], strategy, 32)
    # Per token .8 and .5, of 2 and 3 tokens: odds 4 and 1.
    frontier = state.frontier.replace(
        log_prob=state.frontier.log_prob.at[:2].set(jnp.log(jnp.asarray([0.64, 0.125]))),
        num_tokens=state.frontier.num_tokens.at[:2].set(jnp.asarray([2, 3])),
        answer=state.frontier.answer.at[:2].set(jnp.asarray([5, 6])),
    )
    state = state.replace(frontier=frontier)
    plans = jax.jit(jax.vmap(lambda key: strategy.plan((), key, state)[0].num_samples))
    copies = np.asarray(plans(jax.random.split(jax.random.key(1), 500))).sum(axis=0)
    assert abs(copies[0] / copies.sum() - 0.8) < 5 * math.sqrt(0.8 * 0.2 / copies.sum())
    for vote in ("best", "weighted"):
        answers = search.methods.particle_filtering(weight_source="confidence", vote=vote).answer
        assert int(answers((), frontier, state.context, strategy.aggregation)) == 0


@pytest.mark.parametrize(
    ("scores", "places", "children"),
    [  # `select_softmax` of thu-wyz/inference_scaling, temperature .2
        ([0.637], 4, [4]),
        ([0.27, 0.041, 0.017], 4, [3, 1, 0]),
        ([0.813, 0.913, 0.607, 0.729, 0.544], 8, [2, 4, 0, 2, 0]),
        ([0.935, 0.816, 0.003, 0.857, 0.034, 0.73, 0.176, 0.863], 16, [5, 3, 0, 3, 0, 1, 0, 4]),
        (
            [0.541, 0.3, 0.423, 0.028, 0.124, 0.671, 0.647, 0.615, 0.384, 0.997, 0.981, 0.686],
            16,
            [0, 0, 0, 0, 0, 1, 1, 1, 0, 6, 5, 2],
        ),
    ],
)
def test_rebase_shares_the_places_as_the_authors_do(scores, places, children):
    strategy = search.methods.rebase()
    state = at_the_second_step(scores, strategy, places)
    request, _ = strategy.plan((), jax.random.key(0), state)
    assert np.asarray(request.num_samples)[: len(scores)].tolist() == children


def test_rebase_allots_no_place_too_many():
    """`select_softmax` allots 17, 4 and 2 of 22 places: its last share is above 1 in float32."""
    scores, valid = jnp.array([0.8, 0.5, 0.3, 0.9]) / 0.2, jnp.array([True, True, True, False])
    assert balanced(scores, valid, jnp.int32(22)).tolist() == [17, 4, 1, 0]


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.floats(0, 1, width=32), min_size=M, max_size=M),
    valid=st.lists(st.booleans(), min_size=M, max_size=M).filter(any),
    places=st.integers(0, 64),
    balance=st.sampled_from([0.001, 0.2, 10.0]),
)
def test_rebase_gives_away_all_places(scores, valid, places, balance):
    found = np.asarray(
        jax.jit(balanced)(
            jnp.asarray(scores, jnp.float32) / balance, jnp.asarray(valid), jnp.int32(places)
        )
    )
    assert found.sum() == places
    assert (found >= 0).all()
    assert not found[~np.asarray(valid)].any()
