"""What must hold for every strategy whatever happens outside, and the degenerate cases by name."""

import functools
import operator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import search_script as script
from search_script import Case

import search

WIDE = 32
# Its weights alone differ from those of another strategy.
ALIKE = ("particle_filtering_confident",)
BATCH = 3


@functools.cache
def batched_rollout(name: str):
    """The rollout of several questions at once, in arrays twice as large."""
    rollout = jax.vmap(script.rollout_of(name))
    return script.jit_once(rollout, f"batched_{name}")


@functools.cache
def answer_of(name: str):
    """The answer of a search's last state, as a compiled function."""
    strategy, _ = script.STRATEGIES[name]
    return jax.jit(functools.partial(search.answer, (), strategy=strategy))


def run(name: str, case: Case) -> tuple[search.SearchState, script.Record]:
    strategy, _ = script.STRATEGIES[name]
    params = script.params(case, exact=name in script.EXACT)
    state = script.first_state(strategy, case)
    return jax.device_get(script.programs(name).rollout(params, params, case.key, state))


def paths_of(paths: search.Paths) -> search.Paths:
    """The valid rows."""
    rows = np.asarray(paths.valid)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], paths)


def transitions_of(records: script.Record) -> Any:
    """Those of weight 1; () of a search without decisions."""
    if records.decisions == ():
        return ()
    transition = records.decisions.transition
    return jax.tree.map(lambda leaf: np.asarray(leaf)[transition.weight_t > 0], transition)


# Padding and batching


@pytest.mark.parametrize("name", [name for name in script.EXACT if name not in ALIKE])
@hypothesis.settings(max_examples=6)
@hypothesis.given(cases=st.lists(script.cases(), min_size=BATCH, max_size=BATCH))
def test_neither_padding_nor_neighbours_change_a_search(name, cases):
    strategy, _ = script.STRATEGIES[name]
    # Alone: 16 rows, garbage in the padding. Together: 32 rows, clean padding.
    alone = [run(name, case) for case in cases]
    params = [script.params(case, WIDE, garbage=False) for case in cases]
    states = [
        script.first_state(strategy, case, WIDE, frontier_capacity=script.CAPACITY + 4)
        for case in cases
    ]
    stack = functools.partial(jax.tree.map, lambda *leaves: np.stack(leaves))
    keys = jnp.stack([case.key for case in cases])
    batch = stack(*params)
    together = jax.device_get(batched_rollout(name)(batch, batch, keys, stack(*states)))
    for index, (final, records) in enumerate(alone):
        other, other_records = jax.tree.map(lambda leaf, i=index: leaf[i], together)
        for group in ("frontier", "finished"):
            script.assert_same(paths_of(getattr(other, group)), paths_of(getattr(final, group)))
        script.assert_same(transitions_of(other_records), transitions_of(records))
        # More rows are more ticks for methods that write one path after the other.
        ticks, slots = len(records.output.active), script.CAPACITY
        fields = ["output.num_samples"]
        if records.decisions != ():
            fields += ["decisions.decision.valid", "decisions.decision.reward"]
        for field in fields:
            wide, narrow = map(operator.attrgetter(field), (other_records, records))
            script.assert_equal(field, wide[:ticks, :slots], narrow)
            assert not wide[:, slots:].any()
            assert not wide[ticks:].any()
        active = other_records.output.active
        np.testing.assert_array_equal(active[:ticks], records.output.active)
        assert not active[ticks:].any()
        assert (other.spent, other.step) == (final.spent, final.step)
        assert answer_of(name)(other) == answer_of(name)(final)


def test_what_stands_in_padding_rows_does_not_matter():
    # A pool with holes, and the same pool with the rows of its holes in another order.
    strategy, _ = script.STRATEGIES["cats_one_round"]
    case = Case(num_candidates=12, seed=3)
    programs, params = script.programs("cats_one_round"), script.params(case)
    state = script.first_state(strategy, case)
    rows = np.arange(script.CAPACITY)
    scores = np.zeros((script.CAPACITY, script.DEPTH_CAPACITY), np.float32)
    scores[:, 0] = rows / 16
    pool = state.pool.replace(
        valid=jnp.asarray(rows % 3 == 0),
        depth=jnp.ones((script.CAPACITY,), jnp.int32),
        step_scores=jnp.asarray(scores),
        text=jnp.asarray(rows % 5, jnp.int32),
    )
    order = np.where(rows % 3 == 0, rows, np.where(rows % 3 == 1, rows + 1, rows - 1))
    order = np.minimum(order, script.CAPACITY - 1)
    shuffled = jax.tree.map(lambda leaf: leaf[order], pool).replace(valid=pool.valid)
    state = state.replace(pool=pool, phase=jnp.int32(1))
    plan = programs.plan(params, case.key, state)
    other = programs.plan(params, case.key, state.replace(pool=shuffled))
    assert np.asarray(plan.memory.decision.valid)[0]
    script.assert_identical(jax.device_get(other), jax.device_get(plan))


# After the end


@pytest.mark.parametrize("name", script.STRATEGIES)
def test_ticks_after_the_end_change_nothing(name):
    case = Case(num_candidates=8, budget=11, seed=1)
    final, _ = run(name, case)
    programs, params = script.programs(name), script.params(case, exact=name in script.EXACT)
    state = jax.device_put(final)
    plan = programs.plan(params, case.key, state)
    assert not np.asarray(plan.request.num_samples).any()
    # Even an expansion that nobody asked for is not taken in.
    everything = search.Expansion(
        valid=np.ones(16, bool),
        parent=np.zeros(16, np.int32),
        score=np.ones(16, np.float32),
        done=np.ones(16, bool),
        answer=np.ones(16, np.int32),
        text=np.ones(16, np.int32),
        log_prob=np.full(16, np.nan, np.float32),
        num_tokens=np.ones(16, np.int32),
        certainty=np.full(16, np.nan, np.float32),
        vector=np.full((16, search.vectors.VECTOR_SIZE), np.nan, np.float32),
        embedding={"id": np.ones(16, np.int32), "latent": np.ones((16, 2), np.float32)},
    )
    memory = programs.first_memory(state)
    after, after_memory, record = programs.commit(memory, state, plan, everything)
    script.assert_identical(jax.device_get(after), final)
    script.assert_identical(after_memory, memory)
    assert not record.output.active
    assert set(np.asarray(record.output.ended).tolist()) == {-1}
    for leaf in jax.tree.leaves(record.decisions):
        assert not np.asarray(leaf).any()


# Gradients


@pytest.mark.parametrize("name", ["beam", "particle_filtering", "cats_three_rounds"])
def test_gradients_through_a_search_are_finite_and_zero_at_padding(name):
    case = Case(num_candidates=6, max_depth=3, seed=2, levels=8)
    strategy, _ = script.STRATEGIES[name]
    state = script.first_state(strategy, case)
    params = script.params(case)
    tables = params["script"]

    def total(scores: jax.Array) -> jax.Array:
        scripted = {**params, "script": tables._replace(score=scores)}
        final, records = script.rollout_of(name)(params, scripted, case.key, state)
        paths = final.finished
        value = strategy.aggregation.value(paths.step_scores, paths.depth)
        result = jnp.sum(jnp.where(paths.valid, value, 0.0))
        if records.decisions != ():
            transition = records.decisions.transition
            result += jnp.sum(records.decisions.decision.reward)
            result += jnp.sum(transition.weight_t[..., None] * transition.features_t)
        return result

    gradient = np.asarray(jax.jit(jax.grad(total))(jnp.asarray(tables.score)))
    _, records = run(name, case)
    assert np.isfinite(gradient).all()
    assert gradient.any()
    for tick, granted in enumerate(records.output.num_samples.sum(axis=1)):
        assert not gradient[tick, granted:].any()


# Degenerate cases


@pytest.mark.parametrize("name", script.STRATEGIES)
class TestDegenerate:
    def test_nothing_valid(self, name):
        final, records = run(name, Case(p_invalid=1.0))
        _, rules = script.STRATEGIES[name]
        assert not final.frontier.valid.any()
        assert not final.finished.valid.any()
        assert records.decisions == () or not records.decisions.decision.valid.any()
        assert final.spent > 0  # they were paid for
        assert final.step == rules.beginnings(script.CAPACITY)
        assert script.programs(name).answer(final) == -1

    def test_nothing_ends(self, name):
        case = Case(num_candidates=8, max_depth=2, p_done=0.0, p_obeys=0.0, p_invalid=0.0)
        final, _ = run(name, case)
        assert not final.finished.valid.any()
        assert final.frontier.depth.max() <= 2

    def test_one_candidate(self, name):
        steps = script.DEPTH_CAPACITY
        case = Case(num_candidates=1, p_invalid=0.0, p_done=0.0, budget=steps)
        final, records = run(name, case)
        assert final.spent == steps == final.step
        assert final.finished.valid.sum() == 1
        assert final.finished.depth[0] == steps
        assert (records.output.num_samples.sum(axis=1) <= 1).all()

    def test_zero_budget(self, name):
        final, records = run(name, Case(budget=0))
        assert not records.output.active.any()
        assert not records.output.num_samples.any()
        assert final.step == final.spent == final.finished.valid.sum() == 0

    def test_all_scores_equal(self, name):
        final, _ = run(name, Case(levels=0, p_invalid=0.0, num_candidates=8))
        assert final.finished.valid.any()

    def test_width_equal_to_candidates(self, name):
        final, _ = run(name, Case(width=16, p_invalid=0.0))
        assert final.finished.valid.sum() + final.frontier.valid.sum() <= 16

    def test_all_children_done_at_once(self, name):
        final, records = run(name, Case(num_candidates=8, p_done=1.0, p_invalid=0.0))
        assert not final.frontier.valid.any()
        assert final.finished.valid.any()
        assert set(final.finished.depth[final.finished.valid].tolist()) == {1}
        if name == "cats_one_round":  # one decision per step, and there is one step
            assert not transitions_of(records).discount_t.any()

    def test_paths_that_end_at_once_on_a_small_budget(self, name):
        for budget, seed in ((1, 0), (2, 1), (3, 2)):
            case = Case(num_candidates=8, p_done=1.0, p_invalid=0.0, budget=budget, seed=seed)
            final, _ = run(name, case)
            ended = final.finished.valid
            assert ended.any()
            assert final.spent <= budget
            # An answer is not lost, and a path without one gives none.
            answered = ended & (final.finished.answer >= 0)
            assert (script.programs(name).answer(final) >= 0) == answered.any()

    def test_one_step(self, name):
        final, _ = run(name, Case(num_candidates=8, max_depth=1, p_invalid=0.0))
        assert final.finished.valid.any()
        assert set(final.finished.depth[final.finished.valid].tolist()) == {1}


def test_greedy_asks_for_temperature_zero_and_ignores_n():
    case = Case(num_candidates=16)
    strategy, _ = script.STRATEGIES["greedy"]
    state = script.first_state(strategy, case)
    plan = script.programs("greedy").plan(script.params(case), case.key, state)
    assert plan.request.num_samples.sum() == 1
    assert plan.request.temperature[0] == 0.0


# Methods that begin at the question several times


def test_particle_gibbs_keeps_one_particle_from_iteration_to_iteration():
    """Three iterations of 4 particles, all of five steps: in the last two, 3 of them are free."""
    whole = [4] * 5 + [3] * 10
    for seed in range(5):
        case = Case(num_candidates=13, p_done=0.0, p_invalid=0.0, seed=seed)
        final, records = run("particle_gibbs", case)
        assert records.output.num_samples.sum(axis=1).tolist() == whole
        assert final.memory.iteration == 2
        assert final.finished.valid.sum() == 4
        # The reference comes first, although it was the first to be there.
        reference = final.memory.reference.embedding["id"][0]
        assert final.finished.embedding["id"][0] == reference
        # A budget that is spent within the second iteration leaves the reference to answer.
        early = Case(num_candidates=13, p_done=0.0, p_invalid=0.0, seed=seed, budget=4 * 5 + 3 * 2)
        final, records = run("particle_gibbs", early)
        assert records.output.num_samples.sum(axis=1)[:8].tolist() == [*whole[:7], 0]
        assert final.finished.valid.tolist() == [True] + [False] * (script.CAPACITY - 1)
        assert final.finished.depth[0] == 5


def test_rounds_of_sequential_halving_cost_the_same():
    """80 candidates in 4 rounds: 16 paths for one step, 8 for two, then 4 for five and more."""
    for seed in range(5):
        case = Case(num_candidates=16, p_done=0.0, p_invalid=0.0, seed=seed)
        final, records = run("sequential_halving", case)
        assert records.output.num_samples.sum(axis=1).tolist() == [16, 8, 8, 4, 4]
        assert final.finished.valid.sum() == 4
        means = final.finished.step_scores.mean(axis=1)
        answered = [row for row in range(4) if final.finished.answer[row] >= 0]
        row = int(answer_of("sequential_halving")(final))
        assert row in answered
        assert means[row] == max(means[row] for row in answered)


def test_early_stopping_stops_at_the_first_window_that_agrees():
    stopped, not_for_silence = 0, 0
    for seed in range(40):
        case = Case(num_candidates=16, p_invalid=0.0, classes=1, seed=seed)
        final, _ = run("early_stopping_consistency", case)
        answers = final.finished.answer[final.finished.valid].tolist()
        windows = [answers[first : first + 3] for first in range(0, len(answers), 3)]
        *earlier, last = windows
        assert not any(window == [0, 0, 0] for window in earlier)
        not_for_silence += any(window == [-1, -1, -1] for window in earlier)
        row = int(answer_of("early_stopping_consistency")(final))
        if len(answers) < 16:
            stopped += 1
            assert last == [0, 0, 0]
            assert answers[row] == 0
    assert stopped > 5
    assert not_for_silence > 5


@pytest.mark.parametrize("name", ["beam", "cats_three_rounds"])
def test_a_frontier_smaller_than_the_pool_changes_nothing(name):
    strategy, _ = script.STRATEGIES[name]
    for seed in range(3):
        case = Case(seed=seed, width=4)
        final, records = run(name, case)
        small = script.first_state(strategy, case, frontier_capacity=4)
        params = script.params(case)
        rollout = jax.jit(script.rollout_of(name))
        other, other_records = jax.device_get(rollout(params, params, case.key, small))
        for group in ("frontier", "finished"):
            script.assert_same(paths_of(getattr(other, group)), paths_of(getattr(final, group)))
        script.assert_same(transitions_of(other_records), transitions_of(records))
