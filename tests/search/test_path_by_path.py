"""Methods that decide how many whole paths to write: their rules against independent sources."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import search
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


@pytest.mark.parametrize(("spent", "stays"), [(1, False), (2, True)])
def test_the_path_that_spends_the_budget_is_not_given_up(spent, stays):
    """The second of four paths has ended with an answer, a score of .2 and a budget of two."""
    strategy = search.methods.sequential_best_of_n(abort=0.3)
    state = search.init(
        jnp.int32(0), strategy=strategy, num_candidates=4, max_depth=2, budget=2, capacity=4
    )
    first = jnp.arange(4) == 0
    pool = state.pool.replace(
        valid=first,
        done=first,
        depth=first.astype(jnp.int32),
        answer=jnp.where(first, 7, -1),
        step_scores=state.pool.step_scores.at[0, 0].set(0.2),
    )
    memory = state.memory.replace(begun=jnp.int32(spent))
    state = state.replace(
        pool=pool, memory=memory, spent=jnp.int32(spent), used=jnp.int32(1), step=jnp.int32(spent)
    )
    assert strategy.keep(state)[1].tolist() == [not stays, stays, False, False, False]


def test_only_the_first_path_is_greedy():
    strategy = search.methods.sequential_best_of_n(stop=2.0, greedy_first=True)
    assert strategy.sampling == (search.Sampling(temperature=0.0), search.Sampling())
    state = search.init(jnp.int32(0), strategy=strategy, num_candidates=4, max_depth=3, capacity=4)
    later = state.replace(memory=state.memory.replace(begun=jnp.int32(2)))
    for moment, temperature in ((state, 0.0), (later, 1.0)):
        wanted = search.plan((), jax.random.key(0), moment, strategy=strategy).request
        assert wanted.num_samples.tolist() == [1, 0, 0, 0]
        assert wanted.temperature[0] == temperature


def test_the_window_that_agrees_answers_against_more_votes():
    """Three windows of two: 7 and 8, 7 and 9, then 5 and 5."""
    strategy = search.methods.early_stopping_consistency(window=2)
    state = search.init(jnp.int32(0), strategy=strategy, num_candidates=8, max_depth=3, capacity=16)
    rows = jnp.arange(16)
    answers = jnp.zeros(16, jnp.int32).at[:5].set(jnp.asarray([7, 8, 7, 9, 7]))
    finished = state.finished.replace(
        valid=rows < 5, answer=answers, weight=(rows < 5).astype(jnp.float32)
    )
    memory = state.memory.replace(begun=jnp.int32(6), before=jnp.int32(4))
    pool = state.pool.replace(
        valid=rows < 1, done=rows < 1, depth=(rows < 1).astype(jnp.int32), answer=rows + 5
    )
    state = state.replace(memory=memory, finished=finished, pool=pool)
    assert strategy.keep_finished is not None
    for last, row, begins in ((5, 4, False), (7, 0, True)):
        moment = state.replace(finished=finished.replace(answer=answers.at[4].set(last)))
        kept = moment.replace(finished=strategy.keep_finished(moment))
        assert strategy.keep(kept)[1].tolist() == [begins, True, *[False] * 15]
        assert int(search.answer((), kept, strategy=strategy)) == row


def test_paths_that_are_fewer_than_a_window_only_vote():
    """N = 5 and windows of two: 7 and 8, 7 and 9, then 5 alone, which agrees with itself."""
    strategy = search.methods.early_stopping_consistency(window=2)
    state = search.init(jnp.int32(0), strategy=strategy, num_candidates=5, max_depth=3, capacity=8)
    rows = jnp.arange(8)
    finished = state.finished.replace(
        valid=rows < 4,
        answer=jnp.zeros(8, jnp.int32).at[:4].set(jnp.asarray([7, 8, 7, 9])),
        weight=(rows < 4).astype(jnp.float32),
    )
    pool = state.pool.replace(
        valid=rows < 1, done=rows < 1, depth=(rows < 1).astype(jnp.int32), answer=rows + 5
    )
    memory = state.memory.replace(begun=jnp.int32(5), before=jnp.int32(4))
    state = state.replace(memory=memory, finished=finished, pool=pool)
    assert strategy.keep_finished is not None
    assert strategy.keep_finished(state).weight[:4].tolist() == [1.0] * 4
    voted = state.replace(finished=strategy.keep_finished(state))
    assert int(search.answer((), voted, strategy=strategy)) == 0


@pytest.mark.parametrize(
    ("memory_tokens", "ended", "stay", "ranked"),
    [
        (40, [], [0, 1, 2, 3, 4], []),  # not full
        (39, [], [1, 3, 4], []),  # 4 of 5 live, 2 of 5 ranked; row 4 has ended
        (39, [0.95], [1, 3, 4], [True]),
        (39, [0.0, 0.4], [1, 2, 3, 4], [False, True]),  # 4 of 7: Python rounds 3.5 to even
        (39, [0.95, 0.95, 0.2], [1, 3, 4], [True, True, False]),
        (0, [1.0] * 5, [4], [True] * 5),
    ],
)
def test_the_worse_half_is_dropped_when_memory_is_full(memory_tokens, ended, stay, ranked):
    strategy = search.methods.speculative_rejection(memory_tokens=memory_tokens)
    state = search.init(
        jnp.int32(0), strategy=strategy, num_candidates=16, max_depth=3, capacity=16
    )
    rows = jnp.arange(16)

    def scored(paths, scores):
        padded = jnp.zeros(16).at[: len(scores)].set(jnp.asarray(scores, jnp.float32))
        here = rows < len(scores)
        return paths.replace(
            valid=here,
            depth=here.astype(jnp.int32),
            step_scores=paths.step_scores.at[:, 0].set(padded),
            num_tokens=jnp.full(16, 10, jnp.int32),
        )

    pool = scored(state.pool, [0.1, 0.9, 0.5, 0.7, 0.3]).replace(done=rows == 4)
    memory = state.memory.replace(ranked=rows < len(ended))
    state = state.replace(pool=pool, finished=scored(state.finished, ended), memory=memory)
    _, marked, memory = strategy.keep(state)
    assert np.flatnonzero(marked).tolist() == stay
    growing = len(stay) - 1
    assert memory.length.tolist() == [10] * growing + [0] * (16 - growing)
    assert memory.ranked[: len(ended)].tolist() == ranked
    assert bool(memory.ranked[len(ended)]) == (memory_tokens == 40)
    assert not memory.ranked[len(ended) + 1 :].any()
