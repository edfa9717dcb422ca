"""The parts of a search, each against brute force: scores, ranks, allocation, votes, actions."""

import functools
import inspect
import itertools
import math
import random
import warnings

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import search_script as script

import search
from search.cats import actions as cats_actions
from search.cats import features as cats_features

N = 12
SLOTS = 4
EIGHTHS = st.integers(0, 8).map(lambda number: number / 8)

segment_ranks = jax.jit(search.ranking.segment_ranks)
retain = jax.jit(search.ranking.retain)
prune = jax.jit(search.ranking.prune)
allocate = jax.jit(search.allocation.allocate)


def rows(element: st.SearchStrategy, size: int = N) -> st.SearchStrategy[list]:
    return st.lists(element, min_size=size, max_size=size)


def f32(values) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def i32(values) -> jax.Array:
    return jnp.asarray(values, jnp.int32)


# Aggregation

T = 5


@pytest.mark.parametrize("name", search.aggregations.AGGREGATIONS)
@hypothesis.given(scores=rows(st.floats(0.0078125, 1.0, width=32), T), depth=st.integers(0, T))
def test_path_score_is_that_of_the_oracle(name, scores, depth):
    aggregation = search.aggregations.aggregation(name)
    value = aggregation.value(f32(scores), jnp.int32(depth))
    key = aggregation.key(f32(scores), jnp.int32(depth))
    np.testing.assert_allclose(value, oracle.path_score(name, scores[:depth]), rtol=1e-5)
    expected = 0.0 if name == "product" and not depth else oracle.path_key(name, scores[:depth])
    np.testing.assert_allclose(key, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", search.aggregations.AGGREGATIONS)
def test_aggregation_takes_any_batch_and_ignores_what_is_beyond_the_depth(name):
    value, key = search.aggregations.aggregation(name)
    scores, depth = f32([[[0.5, 0.25, jnp.nan], [0.75, jnp.nan, jnp.nan]]]), i32([[2, 1]])
    clean = jnp.nan_to_num(scores)
    for function in (value, key):
        np.testing.assert_array_equal(function(scores, depth), function(clean, depth))
        assert function(scores, depth).shape == (1, 2)


@pytest.mark.parametrize("name", search.aggregations.AGGREGATIONS)
def test_gradient_through_padding_is_zero(name):
    scores, depth = f32([0.5, 0.25, 0.0, 0.0]), jnp.int32(2)
    for function in search.aggregations.aggregation(name):
        gradient = jax.grad(lambda s, f=function: f(s, depth))(scores)
        assert np.isfinite(gradient).all()
        assert not np.asarray(gradient)[2:].any()
        assert np.asarray(gradient)[:2].any()


def test_forty_scores_of_a_tenth_still_rank_by_product():
    depth = i32([40, 40, 40, 39])
    scores = np.full((4, 40), 0.1, np.float32)
    scores[1, 7] = 0.11
    scores[2, 39] = 0.09
    scores[3, 39] = 0.0
    value, key = search.aggregations.aggregation("product")
    assert not value(f32(scores), depth)[:3].any()  # they underflow: 1e-40
    order = np.argsort(-np.asarray(key(f32(scores), depth)))
    np.testing.assert_array_equal(order, [3, 1, 0, 2])


def test_a_zero_does_not_make_products_incomparable():
    key = search.aggregations.log_product(f32([[0.0, 0.5], [0.0, 0.25]]), i32([2, 2]))
    assert np.isfinite(key).all()
    assert key[0] > key[1]


# Ranking


@hypothesis.given(rows(EIGHTHS), rows(st.integers(0, SLOTS - 1)), rows(st.booleans()))
def test_segment_ranks_sorts_each_segment(scores, segments, valid):
    expected = [N] * N
    for segment in range(SLOTS):
        members = [row for row in range(N) if valid[row] and segments[row] == segment]
        for rank, row in enumerate(sorted(members, key=lambda row: (-scores[row], row))):
            expected[row] = rank
    actual = segment_ranks(f32(scores), i32(segments), jnp.asarray(valid))
    np.testing.assert_array_equal(actual, expected)


@hypothesis.given(
    rows(EIGHTHS),
    rows(st.integers(0, SLOTS - 1)),
    rows(st.booleans()),
    rows(st.integers(0, 5), SLOTS),
)
def test_retain_keeps_the_best_of_each_parent(scores, parent, valid, num_retain):
    expected = []
    for slot in range(SLOTS):
        children = [row for row in range(N) if valid[row] and parent[row] == slot]
        expected += sorted(children, key=lambda row: (-scores[row], row))[: num_retain[slot]]
    actual = retain(f32(scores), i32(parent), jnp.asarray(valid), i32(num_retain))
    np.testing.assert_array_equal(np.flatnonzero(actual), sorted(expected))


@hypothesis.given(rows(EIGHTHS), rows(st.booleans()), st.integers(-2, N + 2))
def test_prune_keeps_the_best(scores, keep, width):
    candidates = [row for row in range(N) if keep[row]]
    expected = sorted(candidates, key=lambda row: (-scores[row], row))[: max(width, 0)]
    actual = prune(f32(scores), jnp.asarray(keep), jnp.int32(width))
    np.testing.assert_array_equal(np.flatnonzero(actual), sorted(expected))


# Allocation


@hypothesis.example([3] * N, [0.5] * N, [True] * N, 4)  # ties, of which the first is served
@hypothesis.given(rows(st.integers(-2, 6)), rows(EIGHTHS), rows(st.booleans()), st.integers(-1, 30))
def test_allocate_serves_the_best_first(wanted, keys, valid, available):
    expected, left = [0] * N, max(available, 0)
    for row in sorted((row for row in range(N) if valid[row]), key=lambda r: (-keys[r], r)):
        expected[row] = min(max(wanted[row], 0), left)
        left -= expected[row]
    actual = allocate(i32(wanted), f32(keys), jnp.asarray(valid), jnp.int32(available))
    np.testing.assert_array_equal(actual, expected)


# Selection


@hypothesis.given(rows(EIGHTHS), rows(st.integers(-1, 3)), rows(st.booleans()))
def test_votes(weights, answer, valid):
    voters = [row for row in range(N) if valid[row] and answer[row] >= 0]
    arrays = (i32(answer), jnp.asarray(valid))

    def winner(value) -> int:
        return min(voters, key=lambda row: (-value(row), row)) if voters else -1

    def votes(row, weight):
        return sum(weight[other] for other in voters if answer[other] == answer[row])

    assert search.selection.best(f32(weights), *arrays) == winner(lambda row: weights[row])
    assert search.selection.majority_vote(*arrays) == winner(lambda row: votes(row, [1] * N))
    assert search.selection.weighted_vote(f32(weights), *arrays) == winner(
        lambda row: votes(row, weights)
    )


def _underflowing(step_scores, answer):
    return search.state.empty_paths(4, 40, jnp.int32(0)).replace(
        valid=jnp.ones(4, bool),
        answer=i32(answer),
        depth=i32([40, 40, 40, 1]),
        weight=jnp.ones(4),
        step_scores=jnp.broadcast_to(f32(step_scores)[:, None], (4, 40)),
    )


@pytest.mark.parametrize(
    ("answer", "winner"),
    # .08^40, .09^40, .1^40, and a path without an answer
    [([5, 7, 5, -1], 0), ([4, 7, 5, -1], 2), ([-1, -1, -1, -1], -1)],
)
def test_products_that_underflow_still_vote(answer, winner):
    product = search.aggregations.aggregation("product")
    finished = _underflowing([0.08, 0.09, 0.1, 1.0], answer)
    chosen = search.answers.answer_weighted((), finished, search.Context(), product)
    assert chosen == winner


def test_products_that_underflow_keep_their_ratios():
    paths = _underflowing([0.08, 0.09, 0.0, 1.0], [0, 0, 0, 0])
    product = search.aggregations.aggregation("product")
    among = jnp.asarray([True, True, True, False])
    found = search.aggregations.relative_scores(paths, product, among)
    np.testing.assert_allclose(found[:3], [(8 / 9) ** 40, 1.0, 0.0], rtol=1e-4)


# Reward

#            scores of a node's children, how many are kept, extra samples, N -> reward
REWARDS = [
    ([0.75, 0.50], 1, 0, 16, 0.5 * (0.75 - 0.5) + 0.3 * 0.75),
    ([0.75, 0.50], 2, 0, 16, 0.3 * 0.75),  # nothing discarded, no margin
    ([0.75, 0.50], 9, 0, 16, 0.3 * 0.75),  # cannot keep more than there are
    ([0.75, 0.50], 0, 0, 16, 0.5 * 0.25 + 0.3 * 0.75),  # always keeps one
    ([0.75, 0.50], 1, 8, 16, -0.2 * 0.5 + 0.5 * 0.25 + 0.3 * 0.75),
    ([0.75, 0.50], 1, 8, 64, -0.2 * 0.125 + 0.5 * 0.25 + 0.3 * 0.75),
    ([0.5, 0.5, 0.5], 1, 0, 16, 0.3 * 0.5),  # all equal: margin 0
    ([0.0, 0.0], 1, 1, 4, -0.2 * 0.25),
    ([], 1, 2, 8, -0.2 * 0.25),  # all invalid: the cost alone
]


@pytest.mark.parametrize(("scores", "num_retain", "extra", "candidates", "expected"), REWARDS)
def test_reward_table(scores, num_retain, extra, candidates, expected):
    # Slot 1 is the node; slot 0 and padding around it must not matter.
    padding = 4 - len(scores)
    parent = i32([0, *[1] * len(scores), *[1] * padding])
    valid = jnp.asarray([True, *[True] * len(scores), *[False] * padding])
    values = f32([1.0, *scores, *[0.9] * padding])
    kept = search.ranking.retain(values, parent, valid, i32([1, max(num_retain, 1)]))
    rewards = search.cats.step_reward(
        values,
        parent,
        valid,
        kept,
        i32([0, extra]),
        jnp.int32(candidates),
        search.cats.RewardWeights(),
    )
    np.testing.assert_allclose(rewards[1], expected, atol=1e-6)
    cost = extra / candidates
    np.testing.assert_allclose(
        oracle.reward((0.2, 0.5, 0.3), sorted(scores)[::-1], num_retain, cost), expected
    )


# Features


@functools.cache
def _features_and_gradient(name: str):
    """One program for all seeds: the features of a state, and their slope in the pool's scores."""
    score = search.aggregations.aggregation(name)

    def total(scores: jax.Array, state: search.SearchState) -> tuple[jax.Array, jax.Array]:
        pool = state.pool.replace(step_scores=scores)
        features = cats_features.extract(state.replace(pool=pool), score)
        return jnp.sum(features), features

    def both(state: search.SearchState) -> tuple[jax.Array, jax.Array]:
        gradient, features = jax.grad(total, has_aux=True)(state.pool.step_scores, state)
        return features, gradient

    return jax.jit(both)


@pytest.mark.parametrize("name", search.aggregations.AGGREGATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_features_are_those_of_the_oracle(name, seed):
    draw = random.Random(seed)
    rules = oracle.Rules("beam", name)
    root = {**oracle.EMPTY, "weight": 1.0, "embedding": script.ROOT}

    def path(depth: int, parent: int = 0) -> dict:
        scores = [draw.uniform(0.1, 1.0) for _ in range(depth)]
        return {
            **root,
            "scores": scores,
            "depth": depth,
            "parent": parent,
            "text": draw.randint(0, 2),
            "unread": draw.choice([0, 0, 5, 40]),
            "log_prob": draw.choice([math.nan, -draw.random(), -5.0 * draw.random()]),
        }

    plain = {
        "frontier": [path(2) for _ in range(5)],
        # Slot 4 has no child, slot 0 more than the features list.
        "pool": [draw.choice([path(3, slot), None]) for slot in [*[0] * 40, 1, 1, 1, 2, 3, 3]],
        "finished": [path(3)] * 2,
        "max_depth": 5,
        "num_candidates": 64,
        "width": 8,
        "budget": 150,
        "spent": 101,
        "used": 46,
        "phase": 1,
        "price": 0.06,
        "prm_features": [0.3, 0.0, 0.1, 0.8, 0.4, 0.0, 0.0, 1.0, 4.0],
    }
    state = search.init(
        jnp.int32(0),
        strategy=search.beam(),
        num_candidates=64,
        width=8,
        max_depth=5,
        budget=150,
        context=search.Context(0.06, 0.3, 0.0, search.Calibration(0.1, 0.8, 0.4), 4.0),
        capacity=64,
        frontier_capacity=8,
    )

    def array(paths: search.Paths, listed: list) -> search.Paths:
        columns = oracle.padded(listed, *paths.step_scores.shape)
        fields = {
            key: jnp.asarray(column, getattr(paths, key).dtype) for key, column in columns.items()
        }
        return paths.replace(**fields)

    state = state.replace(
        spent=jnp.int32(101),
        used=jnp.int32(46),
        phase=jnp.int32(1),
        **{
            group: array(getattr(state, group), plain[group])
            for group in ("frontier", "pool", "finished")
        },
    )
    features, gradient = jax.device_get(_features_and_gradient(name)(state))
    for slot in range(8):
        expected = oracle.node_features(rules, plain, slot) if slot < 5 else None
        np.testing.assert_allclose(
            features[slot], script.feature_row(expected), rtol=1e-5, atol=1e-5
        )
    assert np.isfinite(gradient).all()
    assert not gradient[~np.asarray(state.pool.valid)].any()
    assert not gradient[:, 3:].any()


def test_feature_names_are_unique():
    assert len(set(search.cats.FEATURE_NAMES)) == len(search.cats.FEATURE_NAMES)


# Actions

FINE = (0, 1, 1.0, 1.0, 0)
BAD_ACTIONS = [
    ((-1, 1, 1.0, 1.0, 0), "action 1 is out of range: num_extra=-1"),
    ((0, 0, 1.0, 1.0, 0), "action 1 is out of range: .*num_retain=0"),
    ((0, 1, -0.5, 1.0, 0), "action 1 is out of range: .*temperature=-0.5"),
    ((0, 1, math.nan, 1.0, 0), "action 1 is out of range: .*temperature=nan"),
    ((0, 1, 1.0, 0.0, 0), "action 1 is out of range: .*top_p=0.0"),
    ((0, 1, 1.0, 1.5, 0), "action 1 is out of range: .*top_p=1.5"),
    ((0, 1, 1.0, 1.0, -1), "action 1 is out of range: .*top_k=-1"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ACTIONS)
def test_a_bad_action_is_named(row, message):
    with pytest.raises(ValueError, match=message):
        search.cats.ActionTable((FINE, row))


def test_a_table_is_neither_empty_nor_too_long_and_can_always_sample_nothing():
    with pytest.raises(ValueError, match=r"1\.\.128 entries, got 0"):
        search.cats.ActionTable(())
    with pytest.raises(ValueError, match=r"1\.\.128 entries, got 129"):
        search.cats.ActionTable((FINE,) * 129)
    with pytest.raises(ValueError, match="num_extra = 0"):
        search.cats.ActionTable(((1, 1, 1.0, 1.0, 0),))


def test_default_table_is_the_product_of_its_axes():
    table = search.cats.ActionTable.product()
    axes = (0, 1, 2, 4, 8), (1, 2, 4), (0.6, 1.0, 1.4), (0.9, 1.0), (0,)
    assert table.rows == tuple(itertools.product(*axes))
    assert hash(table) == hash(search.cats.ActionTable.product())
    action = table.lookup(i32([0, 89, 31]))
    for name, column in zip(action.__dataclass_fields__, range(5), strict=True):
        expected = [table.rows[row][column] for row in (0, 89, 31)]
        script.assert_equal(name, getattr(action, name), expected)


def test_named_tables_vary_what_their_names_say():
    tables = search.cats.ACTION_TABLES
    assert {name: len(table) for name, table in tables.items()} == {
        "temperature": 30,
        "narrow": 5,
        "ask": 6,
        "top-p": 90,
        "top-k": 99,
    }
    varying = {
        name: tuple(
            len({getattr(setting, field) for setting in table.sampling_settings()})
            for field in ("temperature", "top_p", "top_k")
        )
        for name, table in tables.items()
    }
    # (temperatures, values of top-p, values of top-k)
    assert varying == {
        "temperature": (2, 1, 1),
        "narrow": (1, 1, 1),
        "ask": (2, 1, 1),
        "top-p": (3, 2, 1),
        "top-k": (2, 2, 2),
    }
    assert tables["temperature"] == search.cats.CATS.actions
    assert tables["narrow"] == search.cats.CATS_TOKENS.actions
    assert tables["ask"] == search.cats.SELECTIVE.actions
    assert tables["top-p"] == search.cats.PAPER.actions == search.cats.ActionTable.product()
    for name, table in tables.items():
        assert len(set(table.rows)) == len(table) <= cats_actions.MAX_ACTIONS
        extra = {row[0] for row in table.rows}
        assert extra == {0, 1, 2, 4, 8}
        kept = {row[1] for row in table.rows if row[0] == 0}
        assert kept == ({1} if name in ("narrow", "ask") else {1, 2, 4})
    assert set(tables["ask"].rows) - set(tables["narrow"].rows) == {(1, 1, 0.0, 1.0, 0)}
    assert tables["ask"].rows[tables["ask"].retry] == (1, 1, 1.0, 1.0, 0)
    sampling = itertools.product((1, 2, 4, 8), (1, 2, 4), (0.6, 1.0), (0.9, 1.0), (0, 20))
    stops = {(0, keep, 1.0, 1.0, 0) for keep in (1, 2, 4)}
    assert set(search.cats.action_table("top-k").rows) == stops | set(sampling)
    with pytest.raises(ValueError, match="unknown action table 'paper': choose one of temperature"):
        search.cats.action_table("paper")


def test_what_samples_nothing_has_no_sampling_settings():
    table = search.cats.ActionTable(
        ((0, 1, 1.4, 0.5, 7), (1, 1, 1.0, 1.0, 0), (2, 1, 1.0, 1.0, 0), (2, 2, 0.6, 0.9, 5))
    )
    assert table.sampling_settings() == (search.Sampling(1.0), search.Sampling(0.6, 0.9, 5))


@pytest.mark.parametrize("available", [-3, 0, 1, 3, 7, 8, 100])
def test_legal_actions_are_those_that_can_be_afforded(available):
    table = search.cats.ActionTable.product()
    expected = [row[0] <= max(available, 0) for row in table.rows]
    np.testing.assert_array_equal(table.legal(jnp.int32(available)), expected)


def test_policies_only_take_legal_actions(key):
    legal = jnp.asarray([False, True, False, True])
    observation = search.cats.Observation(
        features=jnp.zeros((200, len(search.cats.FEATURE_NAMES)), jnp.float32),
        legal=legal,
        deciding=jnp.ones(200, bool),
        state=search.init(jnp.int32(0), strategy=search.beam(), num_candidates=200, max_depth=1),
    )
    action, log_prob = search.cats.random_policy((), key, observation)
    assert set(action.tolist()) == {1, 3}
    np.testing.assert_allclose(log_prob, math.log(0.5), rtol=1e-6)
    for wanted, taken in ((3, 3), (2, 1)):  # an illegal one gives way to the first legal one
        action, log_prob = search.cats.constant_policy(jnp.int32(wanted), key, observation)
        assert set(action.tolist()) == {taken}
        assert not log_prob.any()


# Bad input of init and of the factories

SIZES = {"num_candidates": 8, "max_depth": 3, "capacity": 16}
BAD_SIZES = [
    ({"num_candidates": 0}, r"num_candidates must be in 1\.\.16 .*got 0"),
    ({"num_candidates": 17}, r"num_candidates must be in 1\.\.16 .*got 17"),
    ({"num_candidates": 257, "capacity": 256}, r"num_candidates must be in 1\.\.256 .*got 257"),
    ({"num_candidates": 300, "capacity": 512}, r"capacity must be in 1\.\.256.*got 512"),
    ({"width": 9}, "width must be at most num_candidates: 9 > 8"),
    ({"width": 0}, r"width must be in 1\.\.16 .*got 0"),
    ({"width": 5, "frontier_capacity": 4}, r"width must be in 1\.\.4 .*frontier.*got 5"),
    ({"max_depth": 0}, r"max_depth must be in 1\.\.\d+ .*got 0"),
    ({"max_depth": 4, "depth_capacity": 3}, r"max_depth must be in 1\.\.3 .*got 4"),
    ({"budget": -1}, "budget must be >= 0 .*got -1"),
    ({"budget": 1 << 31}, r"budget must be .*below 2\*\*31, got 2147483648"),
    # Numbers of NumPy and JAX that are not traced are checked, too.
    ({"num_candidates": jnp.int32(300)}, r"num_candidates must be in 1\.\.16 .*got 300"),
    ({"width": jnp.int32(9)}, "width must be at most num_candidates: 9 > 8"),
    ({"max_depth": jnp.int32(4), "depth_capacity": 3}, r"max_depth must be in 1\.\.3 .*got 4"),
    ({"budget": jnp.int32(-1)}, "budget must be >= 0 .*got -1"),
]


@pytest.mark.parametrize(("sizes", "message"), BAD_SIZES)
def test_init_names_the_size_that_is_wrong(sizes, message):
    with pytest.raises(ValueError, match=message):
        search.init(jnp.int32(0), strategy=search.beam(), **{**SIZES, **sizes})


def test_init_needs_a_depth_capacity_for_a_traced_depth():
    def depths(max_depth):
        return search.init(
            jnp.int32(0), strategy=search.beam(), num_candidates=8, max_depth=max_depth
        ).frontier.step_scores

    assert depths(jnp.int32(3)).shape[1] == 3
    with pytest.raises(ValueError, match="depth_capacity must be given"):
        jax.eval_shape(depths, jnp.int32(3))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_candidates", 4.7, "num_candidates must be one integer, got 4.7"),
        ("num_candidates", True, "num_candidates must be one integer, got True"),
        ("num_candidates", jnp.array([8, 8]), "num_candidates must be one integer, got Array"),
        ("budget", math.nan, "budget must be one integer, got nan"),
        ("capacity", np.float64(16), "capacity must be one integer, got np.float64"),
    ],
)
def test_a_size_that_is_not_one_integer_is_named(name, value, message):
    with pytest.raises(TypeError, match=message):
        search.state._size(name, value)


def test_a_traced_size_is_one_integer():
    assert search.state._size("N", np.int64(3)) == 3
    sizes = jax.eval_shape(jax.vmap(lambda n: search.state._size("N", n)), jnp.arange(3))
    assert sizes.shape == (3,)
    for value in (jnp.arange(3), jnp.float32(3.0)):
        with pytest.raises(
            TypeError, match=r"N must be one integer, got (float32|.*: use jax.vmap)"
        ):
            jax.eval_shape(lambda n: search.state._size("N", n), value)


@pytest.mark.parametrize("name", ["beam", "particle_gibbs"])
def test_the_first_state_can_be_donated(name):
    context = search.Context(price=jnp.float32(0.5))
    state = search.init(
        jnp.int32(0),
        strategy=search.methods.DEFAULTS[name],
        num_candidates=2,
        max_depth=2,
        capacity=4,
        context=context,
    )
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    assert len(set(pointers)) == len(pointers)
    assert context.price.unsafe_buffer_pointer() not in pointers


@pytest.mark.parametrize("function", ["is_terminal", "answer", "plan"])
def test_a_batch_of_searches_needs_vmap(function):
    beam = search.beam()
    state = search.init(jnp.int32(0), strategy=beam, num_candidates=2, max_depth=2, capacity=4)
    call = {
        "is_terminal": search.is_terminal,
        "answer": lambda state: search.answer((), state, strategy=beam),
        "plan": lambda state: search.plan((), jax.random.key(0), state, strategy=beam),
    }[function]
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf, leaf]), state)
    with pytest.raises(ValueError, match=r"a batch of searches of shape \[3\]: use jax.vmap"):
        call(batch)
    assert jax.tree.leaves(jax.eval_shape(jax.vmap(call), batch))[0].shape[0] == 3


def test_a_root_is_no_text_and_a_strategy_no_factory():
    sizes = {"num_candidates": 2, "max_depth": 2, "capacity": 4}
    with pytest.raises(TypeError, match=r"root must be an embedding .* got the text 'What is 2"):
        search.init("What is 2 + 2?", strategy=search.beam(), **sizes)
    for value in ("beam", search.beam):
        with pytest.raises(
            TypeError, match=r"strategy must be a search.Strategy, .*search.beam\(\)"
        ):
            search.interface.check_is_strategy(value)


def test_a_request_takes_a_list_of_integers():
    state = search.init(
        jnp.int32(0), strategy=search.beam(), num_candidates=2, max_depth=2, capacity=4
    )
    request = inspect.unwrap(search.request)
    assert request(state, [2, 0, 0, 1]).num_samples.tolist() == [2, 0, 0, 1]
    with pytest.raises(TypeError, match="num_samples must be integers, got float32: round"):
        request(state, [2.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize("name", ["ets", "rebase", "lookahead"])
def test_a_search_stays_in_32_bits_where_64_are_enabled(name):
    strategy = search.methods.DEFAULTS[name]

    def run(key):
        state = search.init(
            jnp.int32(0), strategy=strategy, num_candidates=4, max_depth=2, capacity=4
        )
        final, _ = search.rollout(
            (),
            (jnp.float32(0.0), jnp.float32(1.0)),
            key,
            state,
            strategy=strategy,
            expand_fn=_four_children,
        )
        return final

    standard = jax.numpy_dtype_promotion("standard")
    with jax.enable_x64(True), standard, warnings.catch_warnings():
        warnings.simplefilter("error")
        final = jax.eval_shape(run, jax.random.key(0))
    wide = {leaf.dtype for leaf in jax.tree.leaves(final)} & {np.dtype("f8"), np.dtype("i8")}
    assert not wide


def _four_children(params, key, request):
    parent, valid = search.children.children_of(request.num_samples, 4)
    zeros, numbers = jnp.zeros(4, jnp.float32), jnp.arange(4, dtype=jnp.int32)
    done = request.to_end[parent]
    return search.Expansion(
        valid=valid,
        parent=parent,
        score=zeros,
        done=done,
        answer=jnp.where(done, numbers, -1),
        text=numbers,
        log_prob=zeros,
        num_tokens=numbers,
        embedding=numbers,
        vector=jnp.ones((4, search.vectors.VECTOR_SIZE), jnp.float32),
    )


def test_equal_options_give_the_same_strategy():
    assert search.beam(expansion=4) is search.beam(expansion=4)
    assert search.beam(expansion=4) is not search.beam(expansion=2)


def test_a_capacity_is_the_smallest_that_holds_the_rows():
    sizes = {1: 4, 4: 4, 5: 16, 16: 16, 17: 64, 64: 64, 65: 256, 256: 256}
    assert {size: search.state.capacity_for(size) for size in sizes} == sizes
    for size in (0, 257):
        with pytest.raises(
            ValueError, match=rf"size must be in 1\.\.256 \(the largest N\), got {size}"
        ):
            search.state.capacity_for(size)
