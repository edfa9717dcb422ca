"""A learned stopper: what it sees, in plain Python, and how its search stops.

The search by a rule of the same form is compared with the oracle in `test_loop`.
"""

import collections
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import search

CAPACITY = 12


def published(paths, begun, num_candidates, price, uses_scores):
    """The features by name; a path is (answer or None, score)."""
    voters = [(answer, score) for answer, score in paths if answer is not None]
    votes = collections.Counter(answer for answer, _ in voters).most_common()
    ordered = [number for _, number in votes] + [0, 0]
    number, log_most = max(1, len(voters)), math.log(257)
    found = {
        "begun_share": begun / num_candidates,
        "log_begun": math.log(begun) / log_most,
        "num_candidates": math.log(num_candidates) / log_most,
        "answered_share": len(voters) / begun,
        "distinct_share": len(votes) / number,
        "first_votes": math.log(1 + ordered[0]) / log_most,
        "first_share": ordered[0] / number,
        "second_share": ordered[1] / number,
        "leader_stays": stats.beta(ordered[1] + 1, ordered[0] + 1).cdf(0.5),
        "price": math.log(1 + 1000 * price) / 12,
        "best_score": 0.0,
        "mean_score": 0.0,
        "first_best_score": 0.0,
        "first_weight": 0.0,
    }
    if uses_scores and voters:
        scores = [score for _, score in voters]
        # The leader of equals is the one that comes first.
        leader = next(answer for answer, _ in voters if dict(votes)[answer] == ordered[0])
        of_leader = [score for answer, score in voters if answer == leader]
        found["best_score"], found["mean_score"] = max(scores), sum(scores) / number
        found["first_best_score"] = max(of_leader)
        found["first_weight"] = sum(of_leader) / max(sum(scores), 1e-6)
    return found


def _arrays(paths):
    padded = [*paths, *[(3, 0.7)] * (CAPACITY - len(paths))]
    return search.stopping.Answers(
        valid=jnp.arange(CAPACITY) < len(paths),
        answer=jnp.asarray([-1 if answer is None else answer for answer, _ in padded], jnp.int32),
        score=jnp.asarray([score for _, score in padded], jnp.float32),
    )


SEEN = {
    uses: jax.jit(
        lambda *each, uses=uses: search.stopping.stopping_features(*each, uses_scores=uses)
    )
    for uses in (False, True)
}
PATHS = st.lists(
    st.tuples(st.none() | st.integers(0, 3), st.integers(0, 8).map(lambda eighth: eighth / 8)),
    max_size=CAPACITY,
)


@given(PATHS, st.integers(0, 3), st.sampled_from([0.0, 0.1, 3.0]), st.booleans())
def test_a_stopper_sees_the_statistics_of_the_answers(paths, lost, price, uses_scores):
    begun = max(1, len(paths) + lost)
    size = jnp.int32(begun + 2)
    found = SEEN[uses_scores](_arrays(paths), jnp.int32(begun), size, jnp.float32(price))
    wanted = published(paths, begun, begun + 2, price, uses_scores)
    assert tuple(wanted) == search.stopping.STOPPING_FEATURES
    np.testing.assert_allclose(found, list(wanted.values()), atol=2e-6)


def test_prefixes_are_the_searches_that_stopped_there():
    paths = [(1, 0.5), (None, 0.25), (1, 1.0), (2, 0.75)]
    each = search.stopping.answer_prefixes(_arrays(paths))
    for number in range(1, len(paths) + 1):
        one = jax.tree.map(lambda leaf, row=number - 1: leaf[row], each)
        sizes = jnp.int32(number), jnp.int32(CAPACITY), jnp.float32(1.0)
        alone = SEEN[True](_arrays(paths[:number]), *sizes)
        np.testing.assert_array_equal(SEEN[True](one, *sizes), alone)


def _always(params, features):
    return params > features[0]


@pytest.mark.slow
@pytest.mark.parametrize("uses_scores", [False, True])
def test_the_contract_is_kept(uses_scores):
    search.check_strategy(
        search.methods.learned_stopping(_always, uses_scores=uses_scores), jnp.float32(0.0)
    )


def test_names_are_checked():
    with pytest.raises(ValueError, match="'best'"):
        search.methods.learned_stopping(_always, path_score="best")
