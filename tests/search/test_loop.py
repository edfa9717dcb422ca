"""In the graph equals on the host equals the oracle: every strategy, every tick, every field."""

import functools

import hypothesis
import jax
import numpy as np
import oracle
import pytest
import search_script as script

import search

# Compiling takes longer than many cases: CI, whose examples are fixed, replays them in one test.
NUM_CASES = 75 if hypothesis.settings().derandomize else 25
DISCOUNTS = {0.0, float(np.float32(0.9))}


def run_everywhere(name: str, case: script.Case) -> None:
    """Replay a case in three ways and compare everything after every tick."""
    strategy, rules = script.STRATEGIES[name]
    exact = name in script.EXACT
    programs = script.programs(name)
    params = script.params(case, exact=exact)
    state = script.first_state(strategy, case)

    final, records = script.on_host(programs.rollout(params, params, case.key, state))
    memory = programs.first_memory(state)
    ticks = script.run_oracle(rules, case, exact)
    found, recorded = script.on_host(state), []
    for index, expected in enumerate(ticks):
        plan = programs.plan(params, script.plan_key(case.seed, index), state)
        expansion = script.host_expand(case, index, plan.request, exact)
        before = found
        # What the next tick reads stays an array of JAX, which its programs take faster.
        state, memory, record = programs.commit(memory, state, plan, expansion)
        plan, found, record = script.on_host((plan, state, record))

        script.assert_state(found, rules, expected.state)
        script.assert_tick(plan, record, before, rules, expected)
        recorded.append(record)
        if not expected.active:
            script.assert_identical(found, before)
            break  # the host stops here; the graph runs on and must change nothing
    host_records = jax.tree.map(lambda *leaves: np.stack(leaves), *recorded)
    script.assert_same(jax.tree.map(lambda leaf: leaf[: len(recorded)], records), host_records)
    script.assert_same(final, found)
    assert_budgets_hold(strategy, rules, case, final, records)
    assert records.output.active.tolist() == [tick.active for tick in ticks]
    assert oracle.ended(ticks[-1].state)
    assert programs.answer(final) == oracle.answer(rules, ticks[-1].state["finished"])


def assert_budgets_hold(strategy, rules, case, final, records):
    """What every search keeps to, whatever the oracle says; nothing of the padding's NaN."""
    granted = records.output.num_samples.sum(axis=1)
    steps = granted.reshape(-1, strategy.num_phases).sum(axis=1)
    budget = case.num_candidates * case.max_depth if case.budget is None else case.budget
    width = rules.width(case.num_candidates) if case.width is None else case.width
    assert (steps <= case.num_candidates).all()
    assert granted.sum() == final.spent <= budget
    assert final.frontier.valid.sum() + final.finished.valid.sum() <= width <= case.num_candidates
    if records.decisions != ():
        assert not records.decisions.pending.valid[-1].any()  # every decision was closed
        transition = records.decisions.transition
        assert set(transition.discount_t[transition.weight_t > 0].tolist()) <= DISCOUNTS
    for leaf in jax.tree.leaves((final, records)):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("name", script.STRATEGIES)
@hypothesis.settings(max_examples=NUM_CASES)
@hypothesis.given(case=script.cases())
def test_graph_host_and_oracle_agree(name, case):
    run_everywhere(name, case)


@pytest.mark.parametrize("seed", range(5))
def test_finished_paths_keep_their_places(seed):
    # Wide, with many early ends: the frontier must shrink by what has finished.
    run_everywhere("beam", script.Case(width=8, p_done=0.3, p_invalid=0.0, seed=seed))


# The other strategies with several phases differ from these in their scores alone.
@pytest.mark.parametrize(
    "name", ["litesearch", "cats_one_round", "cats_three_rounds", "cats_in_doubt"]
)
def test_the_promise_of_a_phase_changes_nothing(name):
    strategy, _ = script.STRATEGIES[name]
    case = script.Case(num_candidates=7, max_depth=3, seed=3)
    params, state = script.params(case), script.first_state(strategy, case)
    programs = script.programs(name)
    plan, commit = (
        functools.partial(function, strategy=strategy) for function in (search.plan, search.commit)
    )
    promised = [jax.jit(functools.partial(f, base_phase=True)) for f in (plan, commit)]
    later = [jax.jit(functools.partial(f, base_phase=False)) for f in (plan, commit)]
    memory = programs.first_memory(state)
    phases = []
    for index in range(strategy.num_phases * case.max_depth):
        plan_key = script.plan_key(case.seed, index)
        planned = programs.plan(params, plan_key, state)
        expansion = script.host_expand(case, index, planned.request, False)
        after, memory, record = programs.commit(memory, state, planned, expansion)
        phases.append(int(state.phase))
        other = later if state.phase else promised
        script.assert_identical(other[0](params, plan_key, state), planned)
        script.assert_identical(other[1](state, planned, expansion), (after, record.output))
        state = after
    assert phases.count(0) >= 2
    assert max(phases) == strategy.num_phases - 1
