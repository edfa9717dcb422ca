"""The in-graph simulator: contract, distributions, invariances, closed forms."""

import functools
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simulated_searches
from hypothesis import given
from hypothesis import strategies as st

import search
from search import simulation
from search.children import children_of
from search.expand_contract import check_expand_fn, check_expansion
from search.simulation import draws

CAPACITY = 32
RICH = {
    "question_scale": 1.0,
    "node_scale": 1.0,
    "alternative": 0.2,
    "invalid": 0.1,
    "lucky": 0.05,
    "popular": 0.3,
    "no_answer": 0.1,
    "loading": (0.5, 0.4, 0.3),
    "exponent_slope": 0.3,
    "exponent_scale": 0.5,
}


@functools.cache
def world(**changes):
    return simulation.toy_params(max_depth=4, **changes)


@functools.cache
def rich_world():
    return simulation.toy_params(**RICH)


def make_request(num_samples, latent, **options):
    """A request in which every slot holds the same latent."""
    embedding = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(num_samples)), latent)
    return simulated_searches.request(num_samples, embedding, **options)


@jax.jit
def _root_children(params, key, depth, temperature, top_k, to_end):
    def one(key):
        question_key, expand_key = jax.random.split(key)
        model, root, _, _, answer, _ = simulation.question(params, question_key, 0, 0)
        request = make_request(
            [CAPACITY], root, depth=depth, temperature=temperature, to_end=to_end, top_k=top_k
        )
        return simulation.simulator(CAPACITY)(model, expand_key, request), answer

    return jax.vmap(one)(jax.random.split(key, 512))


def root_children(params, key, *, count=CAPACITY, depth=0, temperature=1.0, to_end=False, top_k=0):
    """`count` children of each of 512 questions' roots, as if they stood at `depth`.

    The worlds of this module have arrays of the same shapes, so that this is compiled once.
    """
    expansion, answer = _root_children(
        params, key, jnp.int32(depth), jnp.float32(temperature), jnp.int32(top_k), to_end
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf[:, :count]), expansion), np.asarray(answer)


def solve(params, key, *, strategy, num_candidates):
    """Whether each of 1024 searches found the right answer, and what it spent."""
    found, spent = _solve(params, key, jnp.int32(num_candidates), strategy)
    return np.asarray(found), np.asarray(spent)


@functools.partial(jax.jit, static_argnums=3)
def _solve(params, key, num_candidates, strategy):
    def one(key):
        question_key, search_key = jax.random.split(key)
        task = simulation.question(params, question_key, 0, 0)
        state = search.init(
            task.root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=task.max_depth,
            context=task.context,
            capacity=16,
            depth_capacity=4,
        )
        final, _ = search.rollout(
            (),
            task.params,
            search_key,
            state,
            strategy=strategy,
            expand_fn=simulation.simulator(16),
        )
        row = search.answer((), final, strategy=strategy)
        return (row >= 0) & (final.finished.answer[row] == task.right_answer), final.spent

    return jax.vmap(one)(jax.random.split(key, 1024))


# Allocation order


@given(st.lists(st.integers(0, 9), max_size=7))
def test_children_of_matches_a_plain_loop(num_samples):
    slots = num_samples + [0] * (7 - len(num_samples))
    expected = [slot for slot, count in enumerate(slots) for _ in range(count)]
    parent, granted = _jitted_children_of(jnp.asarray(slots, jnp.int32), 63)
    spare = 63 - len(expected)
    assert parent.tolist() == expected + [0] * spare
    assert granted.tolist() == [True] * len(expected) + [False] * spare


@pytest.mark.parametrize("num_samples", [[1], [0, 3], [2, 0, 0, 1], [0, 0, 3]])
def test_children_of_may_fill_the_last_row(num_samples):
    parent, granted = children_of(jnp.asarray(num_samples, jnp.int32), sum(num_samples))
    assert parent.tolist() == [s for s, count in enumerate(num_samples) for _ in range(count)]
    assert jnp.all(granted)


_jitted_children_of = jax.jit(children_of, static_argnums=1)
_question = jax.jit(simulation.question)
_reset = jax.jit(simulation.reset)
_reset_many = jax.jit(jax.vmap(simulation.reset, in_axes=(None, 0)))


# The contract


@pytest.mark.parametrize("capacity", [1, 7, CAPACITY])
@pytest.mark.parametrize("level", [0, 1])
def test_simulator_keeps_the_contract(capacity, level, key):
    model, root, *_ = _question(rich_world(), key, level, 0)
    expand = jax.jit(simulation.simulator(capacity))
    check_expand_fn(expand, model, root, capacity=capacity, max_depth=4)


@given(
    st.lists(st.integers(0, 8), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.3, 1.0, 3.0]),
    st.sampled_from([0, 1, 3]),
    st.integers(0, 9),
    st.booleans(),
)
def test_any_request_keeps_the_contract(num_samples, temperature, top_k, depth, to_end):
    model, root, *_ = _rich_question()
    request = make_request(
        num_samples, root, depth=depth, temperature=temperature, top_k=top_k, to_end=to_end
    )
    expansion = _jitted_expand(CAPACITY)(model, jax.random.key(depth), request)
    check_expansion(request, expansion, capacity=CAPACITY)


@functools.cache
def _rich_question():
    return _question(rich_world(), jax.random.key(7), 1, 0)


@functools.cache
def _jitted_expand(capacity):
    return jax.jit(simulation.simulator(capacity))


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("valid", lambda e: jnp.ones_like(e.valid), "not granted"),
        ("parent", lambda e: 1 - e.parent, "allocation order"),
        ("score", lambda e: e.score + 1.5, r"score"),
        ("score", lambda e: e.score * 1.0 + jnp.where(e.valid, jnp.nan, 0.0), "outside"),
        ("done", lambda e: jnp.zeros_like(e.done), "answer"),
        ("answer", lambda e: jnp.where(e.valid, 3, e.answer), "not done has an answer"),
        ("text", lambda e: e.text - 5, "text"),
        ("log_prob", lambda e: -e.log_prob, "log-probability"),
        ("num_tokens", lambda e: -e.num_tokens - 1, "tokens"),
        (
            "num_tokens",
            lambda e: e.num_tokens.astype(jnp.float32),
            r"float32 but expected int32.*expansion\.num_tokens",
        ),
    ],
)
def test_the_contract_test_finds_what_is_wrong(field, value, rule):
    model, root, *_ = _question(world(), jax.random.key(0), 0, 0)
    request = make_request([3, 2], root, depth=0)
    done_request = request.replace(to_end=jnp.asarray([True, False]))
    good = _jitted_expand(8)(model, jax.random.key(1), done_request)
    check_expansion(done_request, good, capacity=8)
    with pytest.raises(AssertionError, match=rule):
        check_expansion(done_request, good.replace(**{field: value(good)}), capacity=8)


def test_the_contract_test_finds_an_expand_function_that_is_not_a_function():
    model, root, *_ = _question(world(), jax.random.key(0), 0, 0)
    calls = iter(range(1000))

    def moody(params, key, request):
        return _jitted_expand(8)(params, jax.random.fold_in(key, next(calls)), request)

    with pytest.raises(AssertionError, match="the same key and request"):
        check_expand_fn(moody, model, root, capacity=8)


# Siblings


def test_equal_texts_are_the_same_step(key):
    expansion, _ = root_children(rich_world(), key)
    text, score = np.asarray(expansion.text), np.asarray(expansion.score)
    seed, valid = np.asarray(expansion.embedding.seed), np.asarray(expansion.valid)
    same = (text[:, :, None] == text[:, None, :]) & valid[:, :, None] & valid[:, None, :]
    assert same.sum() > 3 * valid.sum()  # there is something to compare
    for values in (score, seed, np.asarray(expansion.answer), np.asarray(expansion.log_prob)):
        assert np.array_equal(
            *np.broadcast_arrays(
                np.where(same, values[:, :, None], 0), np.where(same, values[:, None, :], 0)
            )
        )
    # Different texts lead to different nodes.
    differ = ~same & valid[:, :, None] & valid[:, None, :]
    assert not np.any(differ & (seed[:, :, None] == seed[:, None, :]))


def test_sampling_parameters_do_not_change_what_a_text_is(key):
    hot, _ = root_children(rich_world(), key, temperature=2.0)
    cold, _ = root_children(rich_world(), key, temperature=0.5)
    for question in range(20):
        scores = {}
        for expansion in (hot, cold):
            for text, score in zip(
                expansion.text[question].tolist(), expansion.score[question].tolist(), strict=True
            ):
                assert scores.setdefault(text, score) == score


def test_greedy_siblings_are_all_the_same(key):
    for options in ({"temperature": 0.0}, {"top_k": 1}):
        expansion, _ = root_children(rich_world(), key, count=8, **options)
        text = np.where(expansion.valid, expansion.text, -1)
        assert all(len(set(row) - {-1}) <= 1 for row in text.tolist())


def test_slots_with_the_same_node_draw_different_children(key):
    model, root, *_ = _question(world(exponent=0.0), key, 0, 0)
    expansion = _jitted_expand(CAPACITY)(model, key, make_request([16, 16], root))
    first, second = expansion.text[:16], expansion.text[16:]
    assert not jnp.array_equal(first, second)


# Invariance


@pytest.mark.parametrize(("small", "large"), [(6, 7), (6, 32), (7, 32)])
def test_capacity_changes_no_valid_row(small, large, key):
    model, root, *_ = _question(rich_world(), key, 1, 1)
    request = make_request([2, 0, 4], root)
    few = _jitted_expand(small)(model, key, request)
    many = _jitted_expand(large)(model, key, request)
    chex.assert_trees_all_equal(few, jax.tree.map(lambda leaf: leaf[:small], many))


def test_frontier_capacity_changes_nothing(key):
    model, root, *_ = _question(rich_world(), key, 1, 1)
    narrow = _jitted_expand(8)(model, key, make_request([2, 0, 4], root))
    wide = _jitted_expand(8)(model, key, make_request([2, 0, 4] + [0] * 9, root))
    chex.assert_trees_all_equal(narrow, wide)


def test_vmap_changes_nothing(key):
    params, keys = rich_world(), jax.random.split(key, 5)
    tasks = _reset_many(params, keys)
    request = jax.vmap(lambda latent: make_request([3, 1], latent))(tasks.root)
    together = jax.jit(jax.vmap(simulation.simulator(8)))(tasks.params, keys, request)
    for index in range(5):
        alone = _reset(params, keys[index])
        picked = jax.tree.map(lambda leaf, index=index: leaf[index], tasks)
        chex.assert_trees_all_close(alone, picked, rtol=1e-5, atol=1e-6)
        row = jax.tree.map(lambda leaf, index=index: leaf[index], together)
        one = _jitted_expand(8)(picked.params, keys[index], make_request([3, 1], picked.root))
        chex.assert_trees_all_equal(
            *((e.valid, e.parent, e.text, e.answer, e.embedding.seed) for e in (one, row))
        )
        chex.assert_trees_all_close(one, row, rtol=1e-5, atol=1e-6)


def test_one_trace_serves_all_questions_and_requests(key):
    traced = jax.jit(chex.assert_max_traces(simulation.simulator(CAPACITY), n=1))
    for index, counts in enumerate(([1, 0], [16, 16], [0, 0], [5, 9])):
        model, root, *_ = simulation.question(
            rich_world(), jax.random.fold_in(key, index), index % 2, index % 2
        )
        request = make_request(counts, root, depth=index, temperature=0.5 * index)
        traced(model, key, request)


# Distributions; 512 questions x 32 children, tolerances of four standard errors or more


def test_share_of_right_steps_follows_temperature(key):
    params = world(step_probability=0.7)
    margin = np.log(0.7 / 0.3)
    for temperature in (0.5, 1.0, 2.0):
        expansion, _ = root_children(params, key, temperature=temperature)
        expected = 1 / (1 + np.exp(-margin / temperature))
        assert np.mean(expansion.embedding.right) == pytest.approx(expected, abs=0.015)
    greedy, _ = root_children(params, key, temperature=0.0)
    assert np.all(greedy.embedding.right)


def test_siblings_correlate_as_the_scales_say(key):
    """Pairs of siblings are both right with E[p^2], p = sigmoid of a normal margin."""
    params = world(step_probability=0.5, question_scale=1.5, node_scale=2.0)
    expansion, _ = root_children(params, key)
    right = np.asarray(expansion.embedding.right, float)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    p = 1 / (1 + np.exp(-2.5 * nodes))
    expected = np.sum(weights * p**2) / np.sum(weights)
    pairs = (right.sum(1) ** 2 - right.sum(1)) / (32 * 31)
    assert np.mean(pairs) == pytest.approx(expected, abs=4 * np.std(pairs) / np.sqrt(512))
    assert expected > 0.3  # independent siblings would give 0.25


def test_scores_of_a_kind_have_its_offset_and_residual(key):
    """y = offset + a * N(0, 1) + residual, residual of sd `score_scale`."""
    params = world(separations=(4.0, 0.0), score_scale=0.8, loading=(0.6, 0.5, 0.0))
    # One child each, so that scores are independent.
    expansion, _ = root_children(params, key, count=1)
    right = np.asarray(expansion.embedding.right)[:, 0]
    score = np.asarray(expansion.score, float)[:, 0]
    logit = np.log(score / (1 - score))
    sd = np.sqrt(0.6**2 + 0.8**2)
    for is_kind, mean in ((right, 2.0), (~right, -2.0)):
        z = (logit[is_kind] - mean) / sd
        error = 1.0 / np.sqrt(z.size)
        assert np.mean(z) == pytest.approx(0.0, abs=4 * error)
        assert np.std(z) == pytest.approx(1.0, abs=4 * error)


def test_residuals_follow_their_quantile_table(key):
    values = simulation.to_dict(world(separations=(0.0, 0.0), num_steps=(3, 4)))
    # Two clumps: a median step from -2 to 2.
    points = np.linspace(-simulation.SCORE_GRID_END, simulation.SCORE_GRID_END, 29)
    values["scores"]["residual"] = np.broadcast_to(
        np.where(points < 0, -2.0, 2.0), (2, simulation.NUM_KINDS, 29)
    )
    expansion, _ = root_children(simulation.from_dict(values), key, count=1)
    y = np.asarray(expansion.embedding.score)
    assert np.mean(np.abs(np.abs(y) - 2.0) < 1e-5) > 0.85  # the rest lies on the slope between
    assert np.mean(y > 0) == pytest.approx(0.5, abs=0.1)


def test_siblings_share_a_factor_the_ease_and_the_parents_score(key):
    """y of two different texts of one node have covariance a^2 + b^2 + g^2."""
    params = world(
        separations=(0.0, 0.0),
        loading=(0.5, 0.4, 0.3),
        question_scale=1.0,
        node_scale=1.0,
        exponent=0.0,
    )
    expansion, _ = root_children(params, key)
    z, text = np.asarray(expansion.embedding.score), np.asarray(expansion.text)
    products = []
    for row in range(512):
        _, first = np.unique(text[row], return_index=True)
        distinct = z[row, first]
        n = distinct.size
        if n > 1:
            products.append((distinct.sum() ** 2 - (distinct**2).sum()) / (n * (n - 1)))
    error = np.std(products) / np.sqrt(len(products))
    assert np.mean(products) == pytest.approx(0.25 + 0.16 + 0.09, abs=4 * error)


def test_wrong_texts_follow_the_power_law(key):
    params = world(step_probability=0.01, exponent=1.5)
    expansion, _ = root_children(params, key)
    mistakes = np.asarray(expansion.text)[~np.asarray(expansion.embedding.right)] - 2
    counts = np.bincount(mistakes, minlength=simulation.NUM_WRONG_TEXTS)
    shares = np.exp(power_law_log_probs(1.5, simulation.NUM_WRONG_TEXTS))
    assert shares.sum() == pytest.approx(1.0, abs=1e-5)
    error = np.sqrt(shares * (1 - shares) / counts.sum())
    assert np.all(np.abs(counts / counts.sum() - shares) < 4.5 * error)


def power_law_log_probs(exponent, num_classes):
    classes = jnp.arange(num_classes, dtype=jnp.int32)
    exponents = jnp.full((num_classes,), exponent, jnp.float32)
    return draws.power_law_log_prob(classes, exponents, num_classes)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.001, 2.0, 8.0, 16.0])
def test_power_law_probabilities_at_any_exponent(exponent):
    log_prob = power_law_log_probs(exponent, 16)
    assert jnp.all(jnp.isfinite(log_prob))
    assert jnp.sum(jnp.exp(log_prob)) == pytest.approx(1.0, abs=1e-3)
    assert jnp.all(jnp.diff(log_prob) <= 1e-3)
    u = (jnp.arange(4096, dtype=jnp.float32) + 0.5) / 4096
    classes = draws.power_law(u, jnp.full(u.shape, exponent, jnp.float32), 16)
    counts = np.bincount(classes, minlength=16) / 4096
    np.testing.assert_allclose(counts, np.exp(log_prob), atol=3e-3)


def test_no_draw_leaves_the_open_interval():
    # The bits of these states are all zeros and all ones.
    states = jnp.asarray([626627285, 1713377], jnp.uint32)
    assert draws.uniform(states, 2).tolist() == [2.0**-25, 1.0 - 2.0**-24]
    assert (np.abs(draws.normal(states, 2)) < 5.5).all()


def test_hard_nodes_have_more_different_mistakes(key):
    params = world(step_probability=0.2, question_scale=2.0, exponent=1.5, exponent_slope=0.5)
    expansion, _ = root_children(params, key)
    wrong = ~expansion.embedding.right
    texts = [np.unique(row[w]).size for row, w in zip(expansion.text, wrong, strict=True)]
    distinct = np.array(texts) / np.maximum(wrong.sum(1), 1)
    many = wrong.sum(1) >= 8
    hard = wrong.mean(1) > 0.9
    assert np.mean(distinct[many & hard]) > np.mean(distinct[many & ~hard]) + 0.15


def test_log_probs_are_those_of_temperature_one(key):
    """Texts of a node have probabilities that sum to 1, and appear as often as they say."""
    params = world(step_probability=0.6, alternative=0.25, exponent=1.5)
    expansion, _ = root_children(params, key)
    text, log_prob = np.asarray(expansion.text).ravel(), np.asarray(expansion.log_prob).ravel()
    shares = np.bincount(text) / text.size
    for index in (0, 1, 2, 3):
        expected = np.exp(log_prob[text == index])
        assert np.ptp(expected) < 1e-6
        assert shares[index] == pytest.approx(expected[0], abs=0.02)
    cold, _ = root_children(params, key, temperature=0.5)
    mistakes = np.asarray(cold.text) == 2
    assert np.unique(cold.log_prob[mistakes]) == pytest.approx(log_prob[text == 2][0], abs=1e-6)


def test_invalid_samples_are_blank_and_as_frequent_as_said(key):
    expansion, _ = root_children(world(invalid=0.2), key)
    assert np.mean(expansion.valid) == pytest.approx(0.8, abs=0.015)
    assert np.all(np.asarray(expansion.score)[~np.asarray(expansion.valid)] == 0)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_step_to_the_end_is_right_if_all_the_rest_is(depth, key):
    expansion, answer = root_children(world(), key, depth=depth, to_end=True)
    assert np.all(expansion.done)
    right = np.asarray(expansion.answer) == np.asarray(answer)[:, None]
    assert np.mean(right) == pytest.approx(0.7 ** (3 - depth), abs=0.015)
    assert np.all(expansion.num_tokens >= 10 * (3 - depth))
    # The log-probability knows of all the steps.
    likely = np.asarray(expansion.log_prob)[right]
    np.testing.assert_allclose(likely, (3 - depth) * np.log(0.7), rtol=1e-4)


# Closed forms


@pytest.mark.parametrize("num_candidates", [1, 4, 16])
def test_best_of_n_with_a_perfect_prm_and_independent_paths(num_candidates, key):
    """1 - (1 - q)^N, q = 0.5^3: a path is right or wrong, and the PRM knows."""
    params = world(step_probability=0.5, separations=(20.0, 0.0), score_scale=0.0)
    found, spent = solve(params, key, strategy=search.best_of_n(), num_candidates=num_candidates)
    expected = 1 - (1 - 0.5**3) ** num_candidates
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 1024))
    assert np.all(spent == 3 * num_candidates)


def test_a_prm_that_knows_nothing_chooses_at_random(key):
    params = world(step_probability=0.8, separations=(0.0, 0.0), score_scale=1.0)
    for num_candidates in (1, 16):
        found, _ = solve(params, key, strategy=search.best_of_n(), num_candidates=num_candidates)
        # The right text is one text with one score: at N = 16 the wrong ones have many more draws.
        bound = 0.8**3 + 0.065
        assert np.mean(found) < bound
    assert np.mean(found) < 0.4


def test_majority_of_three_independent_paths(key):
    """All mistakes lead to different answers: a right one wins with two votes, or as the first."""
    params = world(step_probability=0.8, separations=(0.0, 0.0), exponent=0.0)
    found, _ = solve(params, key, strategy=search.majority(), num_candidates=3)
    q = 0.8**3
    # Two or three right paths win; a single one wins if it is the first.
    expected = q**3 + 3 * q**2 * (1 - q) + q * (1 - q) ** 2
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 1024) + 0.01)


def test_popular_mistakes_outvote_the_right_answer(key):
    """Where all mistakes are one mistake, majority goes to whatever is more likely."""
    for probability, expected in ((0.3, 0.0), (0.7, 1.0)):
        params = world(
            step_probability=probability, num_steps=(1, 4), exponent=30.0, separations=(0.0, 0.0)
        )
        found, _ = solve(params, key, strategy=search.majority(), num_candidates=16)
        assert np.mean(found) == pytest.approx(expected, abs=0.05)


def test_lucky_paths_and_missing_answers(key):
    params = world(step_probability=0.01, num_steps=(1, 4), lucky=0.3, no_answer=0.2, exponent=0.0)
    expansion, answer = root_children(params, key)
    wrong = ~np.asarray(expansion.embedding.right)
    found = (np.asarray(expansion.answer) == np.asarray(answer)[:, None])[wrong]
    missing = (np.asarray(expansion.answer) == -1)[wrong]
    assert np.mean(missing) == pytest.approx(0.2, abs=0.02)
    assert np.mean(found) == pytest.approx(0.8 * 0.3, abs=0.02)


def test_equal_mistakes_give_equal_answers_and_others_do_not(key):
    params = world(step_probability=0.01, num_steps=(1, 4), exponent=0.0)
    expansion, _ = root_children(params, key)
    text, answer = np.asarray(expansion.text), np.asarray(expansion.answer)
    same_text = text[:, :, None] == text[:, None, :]
    assert np.array_equal(same_text, answer[:, :, None] == answer[:, None, :])


def test_a_consistent_step_keeps_the_answer(key):
    """After one mistake and no other, a path's answer is that mistake's, whatever came between."""
    params = world(step_probability=0.9, num_steps=(4, 4), alternative=0.5)
    model, root, *_ = _question(params, key, 0, 0)
    wrong = root.replace(right=jnp.bool_(False), answer_seed=jnp.uint32(99))
    step = _jitted_expand(64)(model, key, make_request([64], wrong, depth=2))
    consistent = np.asarray(step.text) < 2
    assert 0 < consistent.sum() < 64
    assert set(np.asarray(step.embedding.answer_seed)[consistent]) == {99}
    assert 99 not in set(np.asarray(step.embedding.answer_seed)[~consistent])
    assert not np.any(step.embedding.right)


# Questions


def test_reset_draws_every_level_and_prm(key):
    keys = jax.random.split(key, 256)
    tasks = _reset_many(world(), keys)
    answer = tasks.right_answer
    assert np.all(tasks.max_depth == 4)
    assert set(np.round(np.asarray(tasks.context.sparsity_total), 3)) == {0.0, np.float32(0.1)}
    steps = np.argmax(np.asarray(tasks.params.end)[:, 1] > 0.5, axis=1) + 1
    assert np.bincount(steps).tolist()[3:] == pytest.approx([128, 128], abs=36)
    assert np.unique(answer).size == 256  # a strategy can't learn the answer's class
    assert np.all(answer >= 0)


def test_a_question_is_the_same_for_every_prm(key):
    one = _question(rich_world(), key, 1, 0)
    other = _question(rich_world(), key, 1, 1)
    chex.assert_trees_all_equal(one.root, other.root)
    chex.assert_trees_all_equal(one.params.margin, other.params.margin)
    assert one.right_answer == other.right_answer
    assert not jnp.array_equal(one.params.scores.offset, other.params.scores.offset)


# Parameters


def test_parameters_survive_json():
    params = rich_world()
    text = json.dumps(simulation.to_dict(params))
    again = simulation.from_dict(json.loads(text))
    chex.assert_trees_all_equal(params, again)
    chex.assert_trees_all_equal_dtypes(params, again)


def test_wrong_parameters_are_refused():
    values = simulation.to_dict(world())
    with pytest.raises(ValueError, match="differing: margin"):
        simulation.from_dict({k: v for k, v in values.items() if k != "margin"})
    with pytest.raises(ValueError, match="lucky has shape"):
        simulation.from_dict({**values, "lucky": [0.0]})
    with pytest.raises(ValueError, match=r"sampling parameters .* differing: slopes"):
        simulation.from_dict({**values, "sampling": {**values["sampling"], "slopes": []}})
