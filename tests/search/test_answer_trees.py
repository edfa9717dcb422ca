"""MCTSr and AB-MCTS-A: every choice of a search is that of the oracle in `answer_trees`."""

import functools
import random
from typing import Any

import answer_trees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import search
from search.strategy import ab_mcts_a, mctsr

CAPACITY = 16
AB = functools.partial(
    search.methods.ab_mcts_a, dist_type="gaussian"
)  # equal arguments share programs


def _expansion(script, first, request):
    parent, granted = search.children.children_of(request.num_samples, CAPACITY)
    rows = jnp.minimum(first + jnp.arange(CAPACITY, dtype=jnp.int32), script["score"].size - 1)
    valid = granted & script["valid"][rows]
    done = valid & request.to_end[parent]
    return search.Expansion(
        valid=valid,
        parent=parent,
        score=jnp.where(valid, script["score"][rows], 0.0),
        done=done,
        answer=jnp.where(done, 0, -1),
        text=jnp.where(granted, rows, -1),
        log_prob=jnp.zeros((CAPACITY,), jnp.float32),
        num_tokens=jnp.ones((CAPACITY,), jnp.int32),
        embedding=jnp.where(granted, rows + 1, 0),
    )


@functools.cache
def _compiled(strategy):
    @jax.jit
    def begin(num_candidates, budget):
        return search.init(
            jnp.int32(0),
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=2,
            budget=budget,
            capacity=CAPACITY,
        )

    @jax.jit
    def tick(script, key, number, state):
        plan_key, _ = search.tick_keys(key, number)
        planned = search.plan((), plan_key, state, strategy=strategy)
        expansion = _expansion(script, state.spent, planned.request)
        state, _ = search.commit(state, planned, expansion, strategy=strategy)
        answer = search.answer((), state, strategy=strategy)
        return planned.request, state, search.is_terminal(state), answer

    return begin, tick


def _searched(strategy, scores, valid, num_candidates, *, budget=None, seed=0):
    """The ticks of a search, (request, state after it), its last state, and its answer's row."""
    begin, tick = _compiled(strategy)
    budget = 2 * CAPACITY if budget is None else budget
    state = begin(jnp.int32(num_candidates), jnp.int32(budget))
    script = {"score": jnp.asarray(scores, jnp.float32), "valid": jnp.asarray(valid, bool)}
    key, ticks, ended, answer = jax.random.key(seed), [], False, -1
    while not ended:
        request, state, ended, answer = tick(script, key, jnp.int32(len(ticks)), state)
        ticks.append(jax.device_get((request, state)))
    return ticks, jax.device_get(state), int(answer)


def _script(seed, size, p_invalid=0.15):
    draw = random.Random(seed)
    scores = [draw.randint(0, 8) / 8 for _ in range(size)]
    return scores, [draw.random() >= p_invalid for _ in range(size)]


def _asked(request):
    """The embeddings that get children, as often as they do."""
    return np.repeat(request.embedding, request.num_samples).tolist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param(
            {"exploration": 60.0, "max_expand": 2, "full_score": 70.0}, marks=pytest.mark.slow
        ),
    ],
)
def test_mctsr_rewrites_the_published_node(options):
    for seed in range(10):
        scores, valid = _script(seed, CAPACITY)
        ticks, final, _ = _searched(search.methods.mctsr(**options), scores, valid, CAPACITY)
        oracle, numbers = answer_trees.SelfRefine(**options), {0: 0}
        wanted = None
        assert len(ticks) == CAPACITY
        for step, (request, _) in enumerate(ticks):
            (asked,) = _asked(request)
            assert asked == (0 if wanted is None else numbers[wanted]), (seed, step)
            if valid[step]:
                numbers[len(oracle.rewards)] = step + 1
                oracle.add(wanted, scores[step])
            wanted = oracle.choose()
        assert final.finished.valid.sum() == sum(valid)


def test_mctsr_by_hand():
    """A middling answer is left once the dummy's new answers are better; then it is mature."""
    parent = jnp.asarray([0, 1, 1, 1, 1], jnp.int32)
    valid = jnp.ones(5, bool)
    rewards = jnp.asarray([-100.0, 0.0, -20.0, -40.0, 0.0])
    visits = jnp.asarray([1, 4, 1, 1, 1], jnp.int32)

    compiled = jax.jit(mctsr.choose, static_argnums=(4, 5))

    def choose(rewards, exploration=0.0, max_expand=3):
        return int(compiled(parent, valid, rewards, visits, exploration, max_expand))

    assert choose(rewards) == 4  # node 1 has a child as good as itself: it is mature
    assert choose(rewards, max_expand=4) == 1  # and (0 + 0) / 2 is the first of two equal values
    assert choose(rewards.at[4].set(-1.0)) == 1  # -.5 is above -1, and no child is better
    assert choose(rewards.at[4].set(-1.0), exploration=1.4) == 4  # a bonus of 1.78


def _summary(scores):
    return [len(scores), sum(scores), sum(score * score for score in scores)]


@pytest.mark.parametrize(
    ("dist_type", "batch_size"),
    [("gaussian", 1), pytest.param("beta", 1, marks=pytest.mark.slow), ("gaussian", 3)],
)
def test_ab_mcts_a_grows_the_published_node(dist_type, batch_size):
    strategy = search.methods.ab_mcts_a(dist_type=dist_type, batch_size=batch_size)
    draw = jax.jit(functools.partial(ab_mcts_a.values_of_nodes, draw=ab_mcts_a._DRAWS[dist_type]))
    shapes = set()
    for seed in range(6):
        scores, valid = _script(seed, CAPACITY)
        ticks, final, _ = _searched(strategy, scores, valid, CAPACITY, seed=seed)
        oracle, numbers, spent = answer_trees.AdaptiveBranching(), {0: 0}, 0
        wanted = [0] * batch_size
        for tick, (request, state) in enumerate(ticks):
            left = min(batch_size, CAPACITY - spent)
            assert sorted(_asked(request)) == sorted(numbers[node] for node in wanted[:left])
            node_of = {number: node for node, number in numbers.items()}
            for asked in _asked(request):
                if valid[spent]:
                    numbers[len(oracle.parent)] = spent + 1
                    oracle.add(node_of[asked], scores[spent])
                spent += 1
            size = len(oracle.parent)
            seen = state.memory.seen
            for name, lists in (
                ("own", oracle.own),
                ("wider", oracle.gen),
                ("deeper", oracle.cont),
            ):
                found = getattr(seen, name)[:size]
                wanted_rows = [_summary(lists[node]) for node in range(size)]
                if name == "own":  # no posterior chooses the root
                    found, wanted_rows = found[1:], wanted_rows[1:]
                np.testing.assert_allclose(
                    np.reshape(found, (-1, 3)), np.reshape(wanted_rows, (-1, 3)), atol=1e-5
                )
            # The draws are those of the core; what they lead to is the oracle's choice.
            plan_key, _ = search.tick_keys(jax.random.key(seed), tick)
            keys = jax.random.split(plan_key, batch_size)
            values = [np.asarray(draw(key, seen)) for key in keys]
            wanted = [oracle.descend(*each) for each in values]
        assert spent == CAPACITY
        assert final.finished.valid.sum() == sum(valid)
        shapes.add(tuple(len(oracle.children[node]) for node in oracle.children))
    assert len(shapes) > 4  # trees of many shapes were compared
    assert any(0 < shape[0] < sum(shape) for shape in shapes)  # wider and deeper


def test_a_place_does_not_depend_on_padding():
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.uniform(0, 4, (3, 9, 3)), jnp.float32)

    def values(padding):
        wider, deeper, own = jnp.pad(rows, ((0, 0), (0, padding), (0, 0)))
        seen = ab_mcts_a.AnswerStatistics(own=own, wider=wider, deeper=deeper)
        draw = ab_mcts_a._DRAWS["gaussian"]
        return ab_mcts_a.values_of_nodes(jax.random.key(0), seen, draw)[:, :9]

    np.testing.assert_array_equal(values(0), values(8))


def test_posteriors_are_the_published_ones():
    draw = random.Random(0)
    for size in range(9):
        scores = [draw.random() for _ in range(size)]
        seen = jnp.asarray(_summary(scores), jnp.float32)
        found = [float(each) for each in ab_mcts_a.gaussian_posterior(seen)]
        np.testing.assert_allclose(found, answer_trees.gaussian(scores), rtol=1e-4, atol=1e-6)


def test_equal_scores_have_no_negative_variance():
    seen = jnp.asarray(_summary([0.7] * 200), jnp.float32)
    m, kappa, nu, tau_square = map(float, ab_mcts_a.gaussian_posterior(seen))
    shift = 200 * 0.7**2 / 201
    assert (m, kappa, nu) == (pytest.approx(140 / 201, abs=1e-5), 201.0, 201.0)
    assert 0.0 < tau_square == pytest.approx((0.1 + shift) / 201, abs=1e-4)


@pytest.mark.parametrize("dist_type", ["gaussian", "beta"])
def test_draws_have_the_moments_of_the_posterior(dist_type):
    scores = [0.9, 0.4, 0.8, 0.6, 0.75, 0.9]
    seen = jnp.tile(jnp.asarray(_summary(scores), jnp.float32), (20_000, 1))
    values = np.asarray(ab_mcts_a._DRAWS[dist_type](jax.random.key(3), seen), np.float64)
    if dist_type == "beta":
        a, b = answer_trees.beta(scores)
        mean, variance = a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)
        assert 0.0 < values.min() < values.max() < 1.0
    else:
        mean, kappa, nu, tau_square = answer_trees.gaussian(scores)
        variance = nu * tau_square / (nu - 2) / kappa  # of a t distribution of nu degrees
    assert values.mean() == pytest.approx(mean, abs=4 * (variance / values.size) ** 0.5)
    assert values.var() == pytest.approx(variance, rel=0.08)


@pytest.mark.parametrize("strategy", [search.methods.mctsr(), AB(batch_size=3)])
def test_n_and_the_budget_limit_the_answers(strategy):
    scores, valid = _script(1, CAPACITY, p_invalid=0.0)
    for num_candidates in (1, 5, CAPACITY):
        for budget in (1, 4, None):
            ticks, final, _ = _searched(strategy, scores, valid, num_candidates, budget=budget)
            most = num_candidates if budget is None else min(num_candidates, budget)
            assert final.spent == final.finished.valid.sum() == most
            assert not final.frontier.valid.any()  # the search ended by itself
            assert all(request.to_end[request.num_samples > 0].all() for request, _ in ticks)
    programs: tuple[Any, ...] = _compiled(strategy)
    assert [each._cache_size() for each in programs] == [1, 1]  # for all N


def test_the_best_answer_is_chosen():
    for strategy in (search.methods.mctsr(), AB(batch_size=1)):
        scores = [0.25, 0.5, 0.375, *[0.25] * (CAPACITY - 3)]
        assert _searched(strategy, scores, [True] * CAPACITY, 4)[2] == 1
