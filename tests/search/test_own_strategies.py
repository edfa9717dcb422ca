"""Methods from outside the package: each is what a user writes, and a check of what it did."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import search

CAPACITY = 4
DEPTH = 3


def expand_fn(params, key, request):
    """Children drawn at random, some of them invalid; their scores are never 0."""
    del params
    parent, granted = search.children.children_of(request.num_samples, CAPACITY)
    keys = jax.random.split(key, 4)
    valid = granted & (jax.random.uniform(keys[0], (CAPACITY,)) < 0.9)
    done = valid & (request.to_end[parent] | (jax.random.uniform(keys[1], (CAPACITY,)) < 0.3))
    answer = jax.random.randint(keys[2], (CAPACITY,), 0, 3, jnp.int32)
    return search.Expansion(
        valid=valid,
        parent=parent,
        score=jnp.where(valid, jax.random.uniform(keys[3], (CAPACITY,), minval=0.1), 0.0),
        done=done,
        answer=jnp.where(done, answer, -1),
        text=answer,
        log_prob=jnp.zeros(CAPACITY),
        num_tokens=jnp.ones(CAPACITY, jnp.int32),
        embedding=jnp.arange(CAPACITY, dtype=jnp.int32),
    )


def run(strategy, key, params=(), recorder=search.loop.OUTPUTS, **sizes):
    state = search.init(
        jnp.int32(0),
        strategy=strategy,
        **{"num_candidates": CAPACITY, "max_depth": DEPTH, "capacity": CAPACITY, **sizes},
    )
    rollout = functools.partial(
        search.rollout, strategy=strategy, expand_fn=expand_fn, recorder=recorder
    )
    return jax.device_get(jax.jit(rollout)(params, (), key, state))


# More steps than a path has: one path after another, each from the root


def grow_one(params, key, state):
    return search.request(state, 1), state.memory


def keep_or_begin_anew(state):
    """The child, and the root from the memory where the path has ended or come to nothing."""
    pool, root = state.pool, state.memory
    paths = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), pool, root)
    grows = jnp.any(pool.valid & ~pool.done)
    places = state.width - search.state.count(state.finished) - search.state.count(pool)
    begins = jnp.broadcast_to(~grows & (places > 0), root.valid.shape)
    return paths, jnp.concatenate([pool.valid, begins]), state.memory


ONE_AFTER_ANOTHER = search.Strategy(
    name="one_after_another",
    plan=grow_one,
    keep=keep_or_begin_anew,
    init_memory=lambda state: jax.tree.map(lambda leaf: leaf[:1], state.frontier),
    num_steps=lambda num_candidates, max_depth: num_candidates * max_depth,
    earlier_draws=lambda state: state.step,  # a candidate each
    answer=search.answers.answer_majority,
    uses_scores=False,
)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_may_have_more_steps_than_a_path(seed):
    key = jax.random.key(seed)
    final, outputs = run(ONE_AFTER_ANOTHER, key)
    # The same in plain Python: grow a path until it ends, then the next.
    paths, depth, steps = [], 0, 0
    root = search.init(
        jnp.int32(0), strategy=ONE_AFTER_ANOTHER, num_candidates=1, max_depth=1, capacity=CAPACITY
    )
    expand = jax.jit(expand_fn)
    while len(paths) < CAPACITY and steps < CAPACITY * DEPTH:
        _, expand_key = search.tick_keys(key, steps)
        asked = search.request(root, jnp.asarray([1, 0, 0, 0], jnp.int32))
        to_end = jnp.full(CAPACITY, depth == DEPTH - 1)
        child = expand((), expand_key, asked.replace(to_end=to_end))
        steps, depth = steps + 1, depth + 1
        if not child.valid[0]:
            depth = 0
        elif child.done[0]:
            paths.append((depth, int(child.answer[0])))
            depth = 0
    finished = final.finished
    rows = np.flatnonzero(finished.valid)
    assert [(finished.depth[row], finished.answer[row]) for row in rows] == paths
    assert final.step == final.spent == steps > DEPTH
    assert outputs.active.sum() == steps
    answers = [answer for _, answer in paths]
    answer = jax.jit(functools.partial(search.answer, (), strategy=ONE_AFTER_ANOTHER))
    chosen = answer(final)
    assert chosen == answers.index(max(answers, key=answers.count))


def test_functions_and_shapes_of_a_strategy_are_named():
    with pytest.raises(TypeError, match="width"):  # here the types are checked before
        dataclasses.replace(search.beam(), name="mine", width=4)
    wrong = dataclasses.replace(
        search.beam(), plan=lambda params, key, s: search.request(s, jnp.ones(3, jnp.int32))
    )
    with pytest.raises(ValueError, match=r"num_samples has the shape \[3\]: give one number, or"):
        search.check_strategy(wrong)


@pytest.mark.parametrize("kind", [jnp.int32, jnp.float32])
def test_marks_of_another_type_are_named(kind):
    strategy = dataclasses.replace(
        search.beam(), name="mine", keep=lambda s: (s.pool, s.pool.valid.astype(kind), s.memory)
    )
    with pytest.raises(TypeError, match=r"'mine': keep returned marks .*; they must be bool"):
        search.check_strategy(strategy)


def test_one_path_after_another_keeps_the_contract():
    search.check_strategy(ONE_AFTER_ANOTHER)


# The PRM is asked for some nodes only


def test_children_of_a_node_that_is_not_scored_have_score_zero(key):
    def plan(params, key, state):
        first = state.step == 0
        scored = first | (state.frontier.embedding % 2 == 0)
        asked = jnp.where(first, state.num_candidates, 1)
        return search.request(state, asked, scored=scored), state.memory

    last = search.aggregations.aggregation("last")
    strategy = search.Strategy(name="every_other", plan=plan, aggregation=last)

    def record(memory, tick):
        return memory, (tick.plan.request, tick.expansion, tick.output.path_score)

    watch = search.Recorder(init=lambda state: (), record=record)
    final, (request, expansion, newest) = run(strategy, key, recorder=watch)
    valid = expansion.valid
    assert (expansion.score[valid] > 0).all()  # what comes back for the others is not taken
    asked = np.take_along_axis(request.scored, expansion.parent, axis=1)
    assert set(asked[valid].tolist()) == {False, True}
    np.testing.assert_array_equal(newest[valid], np.where(asked, expansion.score, 0.0)[valid])
    assert (final.finished.step_scores[final.finished.valid, 0] > 0).all()


# An answer that is learned


def weigh_steps(params, finished, context, aggregation):
    """The path with the largest weighted sum of step scores; it knows the price."""
    del aggregation
    value = jnp.sum(finished.step_scores * params["weights"][None, :], axis=1)
    value -= context.price * finished.depth.astype(jnp.float32)
    return search.selection.best(value, finished.answer, finished.valid)


LEARNED_ANSWER = dataclasses.replace(
    search.majority(), name="learned_answer", answer=weigh_steps, uses_scores=True
)


def test_an_answer_may_be_learned(key):
    weights = ([1.0, 0.0, 0.0], [-1.0, 0.0, 0.0])
    answer = jax.jit(functools.partial(search.answer, strategy=LEARNED_ANSWER))
    final, _ = run(LEARNED_ANSWER, key, {"weights": jnp.asarray(weights[0])})
    finished = final.finished  # the weights choose among the paths, they do not change them
    chosen = []
    for row in weights:
        values = np.where(finished.valid, finished.step_scores[:, 0] * row[0], -np.inf)
        chosen.append(int(answer({"weights": jnp.asarray(row)}, final)))
        assert chosen[-1] == values.argmax()
    assert chosen[0] != chosen[1]
    params = {"weights": jnp.asarray(weights[1])}
    # Paths of several lengths: at a high price the shortest one wins.
    dear = final.replace(context=final.context._replace(price=np.float32(100.0)))
    row = answer(params, dear)
    assert len(set(finished.depth[finished.valid].tolist())) > 1
    assert finished.depth[row] == finished.depth[finished.valid].min()


def test_a_learned_answer_keeps_the_contract():
    search.check_strategy(LEARNED_ANSWER, {"weights": jnp.ones(DEPTH)})


# A policy of one's own, its features and its reward

ACTIONS = search.cats.ActionTable(((0, 1, 1.0, 1.0, 0), (1, 1, 1.0, 1.0, 0)))
CONFIG = search.cats.CatsConfig(rounds=1, num_base=1, expansion=1, actions=ACTIONS)


def sample_at_first(params, key, observation):
    """One more child of every node, until a third of the budget is spent."""
    state = observation.state
    more = (3 * state.spent < state.budget) & observation.legal[1]
    slots = observation.deciding.shape
    return jnp.full(slots, more, jnp.int32), jnp.zeros(slots)


def test_a_policy_may_look_at_the_whole_search(key):
    strategy = search.cats.cats(sample_at_first, CONFIG)

    def record(memory, tick):
        return memory, (tick.before.spent, tick.before.used, tick.output.report)

    watch = search.Recorder(init=lambda state: (), record=record)
    final, (spent, used, decisions) = run(strategy, key, recorder=watch, num_candidates=3)
    decided = decisions.valid.any(axis=1)
    more = (3 * spent < final.budget) & (used < 3)
    assert {False, True} <= set(more[decided].tolist())
    for tick in np.flatnonzero(decided):
        assert set(decisions.action[tick][decisions.valid[tick]].tolist()) == {int(more[tick])}


def depth_and_price(state, aggregation):
    del aggregation
    columns = [state.frontier.depth.astype(jnp.float32), state.frontier.weight]
    columns.append(jnp.full(state.frontier.depth.shape, state.context.price))
    return jnp.stack(columns, axis=1)


OWN_FEATURES = search.cats.FeatureSet(("depth", "weight", "price_in_units"), depth_and_price)


def minus_extra(scores, parent, valid, kept, num_extra, num_candidates, weights):
    del scores, parent, valid, kept, num_candidates, weights
    return -num_extra.astype(jnp.float32)


@pytest.mark.parametrize("excluded", [(), ("depth",)])
def test_features_and_reward_may_be_ones_own(key, excluded):
    policy = search.cats.sample_while_below("depth", OWN_FEATURES)
    config = dataclasses.replace(CONFIG, excluded_features=excluded)
    strategy = search.cats.cats(policy, config, features=OWN_FEATURES, reward=minus_extra)
    params = search.cats.RuleParams(jnp.float32(1.0), jnp.int32(1), jnp.int32(0))
    context = search.Context(price=0.25)

    def record(memory, tick):
        memory, recorded = decisions.record(memory, tick)
        return memory, (tick.before.frontier.depth, tick.output.num_samples, recorded)

    decisions = search.cats.decision_recorder(0.9)
    recorder = search.Recorder(init=decisions.init, record=record)
    _, (depth, granted, recorded) = run(
        strategy, key, params, recorder, context=context, num_candidates=3
    )
    decision = recorded.decision
    features = decision.features
    assert features.shape[-1] == 3
    decided = decision.valid
    seen = np.zeros_like(depth) if excluded else depth
    np.testing.assert_array_equal(features[decided, 0], seen[decided])
    np.testing.assert_array_equal(features[decided, 2], 0.25)
    assert not features[~decided].any()
    np.testing.assert_array_equal(decision.reward[decided], -granted[decided])
    assert (depth[decided] > 0).any()
    # At the root it samples one more; later, too, if it does not see the depth.
    taken = decision.action[decided & (depth > 0)]
    assert taken.any() == bool(excluded)
    rewards = recorded.transition.reward_t[recorded.transition.weight_t > 0]
    assert set(rewards.tolist()) <= {0.0, -1.0}
    assert rewards.any()
    with pytest.raises(ValueError, match=r"unknown features .*choose among depth, weight"):
        search.cats.sample_while_below("max", OWN_FEATURES)


# What a search is told is traced


def test_another_price_compiles_nothing(key):
    strategy = search.cats.cats(
        search.cats.random_policy, dataclasses.replace(CONFIG, excluded_features=())
    )

    @jax.jit
    @chex.assert_max_traces(n=1)
    def seen(context):
        state = search.init(
            jnp.int32(0),
            strategy=strategy,
            num_candidates=CAPACITY,
            max_depth=1,
            context=context,
            capacity=CAPACITY,
        )
        _, outputs = search.rollout((), (), key, state, strategy=strategy, expand_fn=expand_fn)
        decided = outputs.report.features[1, 0]
        return decided[jnp.asarray(list(map(search.cats.FEATURES.names.index, names)))]

    names = ("price", "sparsity_total", "calibration_slope", "calibration_agreement")
    told = [
        search.Context(0.1, 0.5, 0.0, search.Calibration(0.0, 2.0, 1.0)),
        search.Context(1.0, 0.01, 0.0, search.Calibration(0.0, 0.0, 3.0)),
    ]
    for context in told:
        expected = (
            1 + np.log10(context.price) / 3,
            np.log10(context.sparsity_total),
            context.calibration.slope / 4,
            context.calibration.agreement / 4,
        )
        np.testing.assert_allclose(seen(context), expected, atol=1e-6)


def test_an_expansion_of_lists_is_padded():
    rows = search.children.padded_expansion(
        4,
        parent=[0, 2],
        score=[0.5, 1.0],
        done=[False, True],
        answer=[-1, 3],
        embedding={"x": np.array([[7], [8]])},
    )
    assert rows.valid.tolist() == [True, True, False, False]
    assert rows.parent.tolist() == [0, 2, 0, 0]
    assert rows.score.tolist() == [0.5, 1.0, 0.0, 0.0]
    assert rows.done.tolist() == [False, True, False, False]
    assert rows.answer.tolist() == [-1, 3, -1, -1]
    assert rows.text.tolist()[:2] == [0, 1]
    assert rows.num_tokens.tolist()[:2] == [1, 1]
    assert rows.embedding["x"].tolist() == [[7], [8], [0], [0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parent": [0] * 5, "embedding": np.arange(5)}, "5 children do not fit 4 rows"),
        ({"parent": [2, 0]}, "`parent` must ascend"),
        ({"score": [0.5]}, r"`score` has shape \(1,\), expected \(2,\)"),
        ({"score": [0.5, 1.5]}, r"`score` of child 1 is 1\.5: .* is in \[0, 1\]"),
        ({"score": [np.nan, 0.5]}, r"`score` of child 0 is nan: .* is in \[0, 1\]"),
        ({"embedding": np.arange(3)}, r"`embedding` has shape \(3,\), expected \(2, ...\)"),
    ],
)
def test_an_expansion_of_lists_that_do_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        search.children.padded_expansion(
            4, **{"parent": [0, 2], "embedding": np.arange(2), **changes}
        )
