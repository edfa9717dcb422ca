"""Votes by certainty against the published rules in plain Python; the certainty of paths in a tick.

The rules are those of `voting_from_list.py` (backprop07/Self-Certainty at b17d021) and of
`filter_top_confidence` and `weighted_majority_vote` (facebookresearch/deepconf at 675529d).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import search
from search.strategy.certainty_votes import quantile

ROWS = 12


def borda_votes(certainties, answers, power):
    """The votes of each answer. Certainties in the order of sampling."""
    order = sorted(range(len(answers)), key=lambda row: certainties[row], reverse=True)
    votes = {}
    for row, answer in enumerate(answers):
        if answer >= 0:
            rank = order.index(row)
            votes[answer] = votes.get(answer, 0.0) + (len(answers) - rank) ** power
    return votes


def deepconf_answer(certainties, answers, top_share):
    """The answer with the most confidence among the paths at or above the percentile."""
    answered = [(c, a) for c, a in zip(certainties, answers, strict=True) if a >= 0]
    if not answered:
        return -1
    bar = np.percentile([c for c, _ in answered], (1 - top_share) * 100)
    votes = {}
    for certainty, answer in answered:
        if certainty >= bar:
            votes[answer] = votes.get(answer, 0.0) + certainty
    return max(votes, key=lambda answer: votes[answer], default=-1)


@functools.cache
def answering(strategy):
    return jax.jit(functools.partial(search.answer, (), strategy=strategy))


def answer_of(strategy, certainties, answers):
    """What a strategy answers with these finished paths."""
    state = search.init(
        jnp.int32(0), strategy=strategy, num_candidates=ROWS, max_depth=2, capacity=ROWS
    )

    def column(values, padding, dtype):
        rows = np.full(ROWS, padding, dtype)
        rows[: len(values)] = values
        return jnp.asarray(rows)

    finished = state.finished.replace(
        valid=jnp.arange(ROWS) < len(answers),
        answer=column(answers, 1, np.int32),
        certainty=column(certainties, 1000.0, np.float32),
    )
    row = int(answering(strategy)(state.replace(finished=finished)))
    return -1 if row < 0 else answers[row]


# Sums of these are exact in float32, so that ties are ties in both.
paths = st.lists(
    st.tuples(st.integers(0, 24).map(lambda n: n / 8), st.integers(-1, 3)), max_size=ROWS
)


@given(paths)
def test_deepconf_votes_as_the_authors_code(paths):
    certainties, answers = [c for c, _ in paths], [a for _, a in paths]
    for share in (1.0, 0.5, 0.1):
        strategy = search.methods.deepconf(top_share=share)
        expected = deepconf_answer(certainties, answers, share)
        assert answer_of(strategy, certainties, answers) == expected


@given(paths)
def test_self_certainty_votes_as_the_authors_code(paths):
    certainties, answers = [c for c, _ in paths], [a for _, a in paths]
    for power in (0.0, 1.0, 2.0):  # whole powers, whose sums are exact up to rounding of 1 / n
        votes = borda_votes(certainties, answers, power)
        expected = max(votes, key=lambda answer: votes[answer], default=-1)
        found = answer_of(search.methods.self_certainty(power=power), certainties, answers)
        # Of equal sums, rounding may choose another.
        assert found == expected or votes[found] == pytest.approx(votes[expected])


def test_a_large_power_gives_the_most_certain_answer_and_none_the_majority():
    certainties, answers = [0.25, 0.5, 0.375, 3.0], [1, 1, 1, 2]
    assert answer_of(search.methods.self_certainty(power=0.0), certainties, answers) == 1
    assert answer_of(search.methods.self_certainty(), certainties, answers) == 1
    assert answer_of(search.methods.self_certainty(power=500.0), certainties, answers) == 2


@given(st.lists(st.floats(0, 30, width=32), min_size=1, max_size=ROWS), st.sampled_from([0.1, 0.9]))
def test_quantiles_are_numpys(values, share):
    padded = np.full(ROWS, 5.0, np.float32)
    padded[: len(values)] = values
    found = quantile(jnp.asarray(padded), jnp.arange(ROWS) < len(values), share)
    assert float(found) == pytest.approx(np.quantile(values, share), rel=1e-5, abs=1e-5)


def test_a_quantile_at_a_row_is_that_row():
    """Float32 places the tenth percentile of 31 numbers above the fourth of them."""
    for number in (11, 21, 31, 41):
        values = jnp.arange(number, dtype=jnp.float32) / 3
        bar = quantile(values, jnp.ones(number, bool), 1.0 - 90.0 / 100.0)
        assert float(bar) == float(values[(number - 1) // 10])


def test_a_tick_without_certainties_is_refused():
    # As one program each: the operations one by one are hundreds.
    @functools.partial(jax.jit, static_argnames="strategy")
    def begin(strategy):
        sizes = {"num_candidates": 2, "max_depth": 2, "capacity": 4}
        state = search.init(np.int32(0), strategy=strategy, **sizes)
        return state, search.plan((), jax.random.key(0), state, strategy=strategy)

    commit = jax.jit(search.commit, static_argnames="strategy")
    strategy = search.methods.deepconf()
    state, plan = begin(strategy)
    children = search.children.padded_expansion(
        4, parent=[0, 0], embedding=np.arange(2, dtype=np.int32)
    )
    with pytest.raises(AssertionError, match="'deepconf' reads the certainty of paths"):
        commit(state, plan, children, strategy=strategy)
    known = children.replace(certainty=jnp.asarray([0.5, 2.0, np.nan, np.nan]))
    after, _ = commit(state, plan, known, strategy=strategy)
    assert after.frontier.certainty.tolist() == [0.5, 2.0, 0.0, 0.0]
    # Other strategies keep nothing of it.
    beam = search.beam()
    assert commit(begin(beam)[0], plan, known, strategy=beam)[0].frontier.certainty is None
