"""The bank in the graph: contract, draws without replacement, invariances."""

import collections
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simulated_searches
from hypothesis import given
from hypothesis import strategies as st
from toy_bank import DEPTH, SETTINGS, toy_bank

import search
from search import bank, simulation
from search.bank import expansion

CAPACITY = 16

expand = jax.jit(bank.expand, static_argnames="capacity")
jitted = functools.cache(lambda capacity: jax.jit(bank.expander(capacity)))


def recorded(tables, node, setting):
    """The draws of a node, as a plain list."""
    cell = int(node) * len(SETTINGS) + setting
    first = np.asarray(tables.first_draw)
    return np.asarray(tables.drawn)[first[cell] : first[cell + 1]].tolist()


def request(num_samples, nodes, **options):
    return simulated_searches.request(num_samples, jnp.asarray(nodes, jnp.int32), **options)


@pytest.mark.parametrize("prm", [0, 1])
@pytest.mark.parametrize("number", [0, 3])
def test_contract(number, prm):
    task = bank.question(toy_bank(), number, prm)
    search.check_expand_fn(
        jitted(CAPACITY), task.params, task.root, capacity=CAPACITY, max_depth=int(task.max_depth)
    )
    assert int(task.right_answer) == bank.RIGHT_ANSWER
    expected = jax.tree.map(lambda leaf: leaf[prm], toy_bank().context)
    chex.assert_trees_all_equal(task.context, expected)


@pytest.mark.parametrize("make", [bank.expander, simulation.simulator])
def test_an_expand_function_is_one_object_per_capacity(make):
    assert make(8) is make(8)
    with pytest.raises(ValueError, match="capacity must be an integer >= 1, got 0"):
        make(0)


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize("slots", [1, 3])
def test_draws_are_taken_without_replacement_whichever_slots_ask(slots, setting, key):
    tables = toy_bank(1)
    params, root, *_ = bank.question(tables, 2, 0)
    draws = recorded(tables, root, setting)
    for size in {1, len(draws) // 2, len(draws), len(draws) + 1, 2 * len(draws)}:
        asked = np.bincount(np.arange(size) % slots, minlength=slots)
        out = expand(
            params,
            key,
            request(asked, [int(root)] * slots, temperature=SETTINGS[setting][0]),
            capacity=CAPACITY,
        )
        rows = np.flatnonzero(np.arange(CAPACITY) < size)
        # Invalid draws have no embedding: count them by their tokens.
        valid = np.asarray(out.valid)[rows]
        got = collections.Counter(np.asarray(out.embedding)[rows][valid].tolist())
        bad = int((~valid).sum())
        invalid = np.asarray(tables.invalid)
        all_good = collections.Counter(d for d in draws if not invalid[d])
        all_bad = sum(bool(invalid[d]) for d in draws)
        laps, rest = divmod(size, len(draws))
        for child, count in all_good.items():
            assert laps * count <= got[child] <= (laps + bool(rest)) * count
        assert laps * all_bad <= bad <= (laps + bool(rest)) * all_bad
        assert set(got) <= set(all_good)


@given(order=st.integers(0, 2**32 - 1), ticks=st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_the_ticks_of_a_step_go_on_with_the_draws_of_its_path(order, ticks):
    tables = toy_bank(1)
    root = int(tables.root[2])
    params = bank.question(tables, 2, 0, jnp.uint32(order)).params
    one = expand(params, jax.random.key(0), request([CAPACITY], [root]), capacity=CAPACITY)
    used, rows = 0, []
    for number, asked in enumerate(ticks):
        asked = min(asked, CAPACITY - used)
        ask = request([asked], [root], used=used)
        out = expand(params, jax.random.key(number), ask, capacity=CAPACITY)
        rows += np.asarray(out.embedding)[:asked].tolist()
        used += asked
    assert rows == np.asarray(one.embedding)[:used].tolist()


def test_each_draw_is_first_equally_often(key):
    tables = toy_bank(1)
    params, root, *_ = bank.question(tables, 0, 0)
    draws = recorded(tables, root, 2)
    assert len(set(draws)) > 1
    ask = request([2], [int(root)])

    def pair(order):
        out = expand(params._replace(order=order), key, ask, capacity=2)
        return jnp.where(out.valid, out.embedding, -1)

    pairs = np.asarray(jax.vmap(pair)(jax.random.bits(key, (4000,))))
    invalid = np.asarray(tables.invalid)
    seen = [-1 if invalid[d] else d for d in draws]
    for child in set(seen):
        share = seen.count(child) / len(seen)
        error = 4 * np.sqrt(share * (1 - share) / 4000)
        assert np.mean(pairs[:, 0] == child) == pytest.approx(share, abs=error)
        assert np.mean(pairs[:, 1] == child) == pytest.approx(share, abs=error)
    # Two of the same draw only where it was recorded twice.
    both = {(a, b) for a, b in pairs.tolist()}
    assert all(a != b or seen.count(a) > 1 for a, b in both)


def test_rows_carry_what_was_recorded(key):
    tables = toy_bank(2)
    for prm in (0, 1):
        params, root, *_ = bank.question(tables, 1, prm)
        out = expand(params, key, request([9], [int(root)]), capacity=CAPACITY)
        valid = np.asarray(out.valid)
        assert valid.any()
        child = np.asarray(out.embedding)[valid]
        for name, column in (
            ("score", np.asarray(tables.score)[:, prm]),
            ("done", np.asarray(tables.done)),
            ("answer", np.asarray(tables.answer)),
            ("text", np.asarray(tables.text)),
            ("log_prob", np.asarray(tables.log_prob)),
            ("num_tokens", np.asarray(tables.num_tokens)),
        ):
            np.testing.assert_array_equal(np.asarray(getattr(out, name))[valid], column[child])


def test_a_path_that_one_prm_cannot_read_is_invalid_for_it_alone(key):
    tables = toy_bank()
    asked = request([8], [0])
    children = {
        prm: expand(bank.question(tables, 0, prm).params, key, asked, capacity=CAPACITY)
        for prm in (0, 1)
    }
    child = int(children[0].embedding[0])
    score = tables.score.at[child, 0].set(bank.UNREADABLE)
    for prm, before in children.items():
        params = bank.question(tables.replace(score=score), 0, prm).params
        after = expand(params, key, asked, capacity=CAPACITY)
        dropped = before.valid & (before.embedding == child) & (prm == 0)
        np.testing.assert_array_equal(after.valid, before.valid & ~dropped)
        np.testing.assert_array_equal(after.num_tokens, before.num_tokens)  # sampled all the same
        assert float(after.score.min()) >= 0.0


def test_what_was_cut_is_paid_for(key):
    tables = toy_bank(0).replace(invalid=jnp.ones_like(toy_bank(0).invalid))
    params, root, *_ = bank.question(tables, 0, 0)
    out = expand(params, key, request([5], [int(root)]), capacity=CAPACITY)
    assert not np.any(out.valid)
    assert np.all(np.asarray(out.num_tokens)[:5] > 0)
    assert not np.any(np.asarray(out.num_tokens)[5:])


@given(seed=st.integers(0, 2**31 - 1), asked=st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_no_row_depends_on_a_capacity(seed, asked):
    tables = toy_bank(3)
    params, root, *_ = bank.question(tables, 0, 1, jnp.uint32(seed))
    nodes = (int(root), *[d for d in recorded(tables, root, 2) if not tables.invalid[d]][:2])
    nodes = [nodes[i % len(nodes)] for i in range(len(asked))]
    key = jax.random.key(0)
    small = expand(params, key, request(asked, nodes), capacity=CAPACITY)
    wide = expand(
        params, key, request([*asked, 0, 0], [*nodes, nodes[0], 0]), capacity=2 * CAPACITY
    )
    for name in ("valid", "embedding", "score", "done", "answer", "text", "num_tokens"):
        rows = np.asarray(getattr(wide, name))
        np.testing.assert_array_equal(rows[:CAPACITY], getattr(small, name))


@pytest.mark.parametrize(
    ("asked", "setting"),
    [((0.0, 1.0, 0), 0), ((0.2, 1.0, 0), 0), ((0.7, 0.9, 0), 1), ((1.4, 1.0, 50), 2)],
)
def test_the_nearest_setting_answers(asked, setting, key):
    tables = toy_bank(4)
    params, root, *_ = bank.question(tables, 1, 0)
    draws = recorded(tables, root, setting)
    temperature, top_p, top_k = asked
    ask = request([len(draws)], [int(root)], temperature=temperature, top_p=top_p, top_k=top_k)
    out = expand(params, key, ask, capacity=CAPACITY)
    got = np.asarray(out.embedding)[np.asarray(out.valid)].tolist()
    assert sorted(got) == sorted(d for d in draws if not tables.invalid[d])


def test_reset_draws_every_question_with_every_prm(key):
    tables = toy_bank()
    tasks = bank.ENVIRONMENT.reset_many(tables, jax.random.split(key, 200))
    assert len(set(np.asarray(tasks.params.order).tolist())) == 200
    prm = np.asarray(tasks.params.prm)
    pairs = set(zip(np.asarray(tasks.root).tolist(), prm.tolist(), strict=True))
    assert pairs == {(int(r), p) for r in tables.root for p in range(2)}
    chex.assert_trees_all_equal(tasks.params.bank, tables)  # not one for each question
    expected = jax.tree.map(lambda leaf: leaf[prm], tables.context)
    chex.assert_trees_all_equal(tasks.context, expected)
    assert set(np.asarray(tasks.max_depth).tolist()) == {DEPTH}
    assert set(np.asarray(tasks.right_answer).tolist()) == {bank.RIGHT_ANSWER}


def test_the_bank_is_not_copied_per_question():
    """Under vmap the tables stay one array: no batched value has their size."""
    tables = toy_bank()

    def one(key):
        params, root, *_ = bank.reset(tables, key)
        return expand(params, key, request([4], [root]), capacity=4).score

    jaxpr = jax.make_jaxpr(jax.vmap(one))(jax.random.split(jax.random.key(0), 5))
    size = tables.done.shape[0]
    assert not [
        variable
        for equation in jaxpr.jaxpr.eqns
        for variable in equation.outvars
        if variable.aval.shape[:2] == (5, size)
    ]


def test_settings_must_have_been_recorded():
    tables = toy_bank()

    def check(config):
        for setting in search.cats.cats(search.cats.random_policy, config).sampling:
            bank.check_sampling(tables, setting)

    check(search.cats.CATS)
    hot = search.cats.ActionTable.product(temperature=(1.0, 1.4), top_p=(1.0,))
    with pytest.raises(ValueError, match=r"temperature 1\.4, top_p 1, top_k 0 is not in the bank"):
        check(search.cats.CatsConfig(actions=hot))
    # What samples nothing needs no record.
    silent = search.cats.ActionTable(((0, 1, 1.4, 1.0, 0), (1, 1, 1.0, 1.0, 0)))
    check(search.cats.CatsConfig(actions=silent))
    with pytest.raises(ValueError, match=r"top_k 5 is not in the bank, which has 0, 1, 0; 0.6"):
        bank.check_sampling(tables, search.Sampling(0.6, top_k=5))


@given(
    nodes=st.lists(st.integers(1, 12), min_size=1, max_size=20),
    counted=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_scored_tokens_counts_each_step_once(nodes, counted):
    tables = toy_bank()
    params, *_ = bank.question(tables, 0, 1)
    nodes = np.resize(nodes, 20)
    distinct = {n for n, c in zip(nodes.tolist(), counted, strict=True) if c}
    expected = sum(int(tables.prm_tokens[n, 1]) for n in distinct)
    got = bank.scored_tokens(params, jnp.asarray(nodes, jnp.int32), jnp.asarray(counted))
    assert int(got) == expected


def test_strides_are_primes_above_the_number_of_draws():
    for stride in expansion._STRIDES.tolist():
        assert stride > search.state.MAX_CANDIDATES
        assert all(stride % divisor for divisor in range(2, 257))


@pytest.mark.parametrize("name", ["sequential_best_of_n", "early_stopping_consistency"])
def test_a_method_that_returns_to_the_question_takes_new_draws(name, key):
    """Six paths that begin one after another, or two by two, against the recorded draws."""
    strategy = {
        "sequential_best_of_n": search.methods.sequential_best_of_n(stop=2.0),
        "early_stopping_consistency": search.methods.early_stopping_consistency(window=2),
    }[name]
    tables = toy_bank(1)
    tables = tables.replace(answer=jnp.full_like(tables.answer, -1))  # no window agrees
    invalid = np.asarray(tables.invalid)

    def record(memory, tick):
        rows = jnp.arange(CAPACITY) < jnp.sum(tick.plan.request.num_samples)
        first = tick.before.frontier.depth[tick.expansion.parent] == 0
        return memory, jnp.where(rows & first, tick.expansion.embedding, -1)

    def run(number):
        task = bank.question(tables, number, 0, jnp.uint32(7))
        state = search.init(
            task.root, strategy=strategy, num_candidates=6, max_depth=DEPTH, capacity=CAPACITY
        )
        return search.rollout(
            (),
            task.params,
            key,
            state,
            strategy=strategy,
            expand_fn=bank.expander(CAPACITY),
            recorder=search.Recorder(init=lambda state: (), record=record),
        )[1]

    questions = tables.root.shape[0]
    found = np.asarray(jax.jit(jax.vmap(run))(jnp.arange(questions, dtype=jnp.int32)))
    for number in range(questions):
        draws = recorded(tables, tables.root[number], 2)
        expected = collections.Counter(0 if invalid[child] else child for child in draws)
        got = collections.Counter(found[number][found[number] >= 0].tolist())
        assert got.total() == 6
        laps, rest = divmod(6, len(draws))
        for child in expected | got:
            most = (laps + bool(rest)) * expected[child]
            assert laps * expected[child] <= got[child] <= most


def _one_first_step(children):
    """A bank of one question: each first step is the node 1, which has this many other children."""
    toy, rows = toy_bank(0, 1, 1), children + 3
    first, grandchild = 1, rows - 1
    draws = [[first] * 4] * 3 + [[2], [2], list(range(2, 2 + children))]
    draws += [[grandchild]] * (3 * children) + [[]] * 3
    ends = np.arange(rows) == grandchild
    return toy.replace(
        log_prob=jnp.zeros(rows),
        value=jnp.zeros(rows),
        invalid=jnp.zeros(rows, bool),
        done=jnp.asarray(ends),
        answer=jnp.where(ends, 0, -1).astype(jnp.int32),
        text=jnp.arange(rows, dtype=jnp.int32),
        num_tokens=jnp.ones(rows, jnp.int32),
        score=jnp.asarray(np.where(np.arange(rows) == first, 0.9, 0.1)[:, None], jnp.float32),
        prm_tokens=jnp.ones((rows, 1), jnp.int32),
        root=jnp.zeros(1, jnp.int32),
        first_draw=jnp.asarray(np.cumsum([0, *map(len, draws)]), jnp.int32),
        drawn=jnp.asarray([row for cell in draws for row in cell], jnp.int32),
    )


@pytest.mark.parametrize(("name", "n"), [("mcts", 8), ("litesearch", 16)])
def test_nodes_of_one_text_take_new_draws(name, n, key):
    """Equal steps below the root are several nodes of a tree, and one node of the bank."""
    strategy, tables = search.methods.__dict__[name](), _one_first_step(64)

    def record(memory, tick):
        rows = jnp.arange(CAPACITY) < jnp.sum(tick.plan.request.num_samples)
        warm = tick.plan.request.temperature[tick.expansion.parent] > 0
        return memory, jnp.where(rows & warm, tick.expansion.embedding, -1)

    task = bank.question(tables, 0, 0, jnp.uint32(7))
    state = search.init(
        task.root, strategy=strategy, num_candidates=n, max_depth=3, capacity=CAPACITY
    )
    _, found = search.rollout(
        (),
        task.params,
        key,
        state,
        strategy=strategy,
        expand_fn=bank.expander(CAPACITY),
        recorder=search.Recorder(init=lambda state: (), record=record),
    )
    drawn = np.asarray(found)
    drawn = drawn[(drawn > 1) & (drawn < 66)].tolist()
    assert 4 < len(drawn) <= 64
    assert len(set(drawn)) == len(drawn)
