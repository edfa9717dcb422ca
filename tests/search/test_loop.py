"""In the graph equals on the host equals the oracle: every strategy, every tick, every field."""

import functools

import hypothesis
import jax
import oracle
import pytest
import search_script as script

import search

# Compiling takes longer than many cases: CI, whose examples are fixed, replays them in one test.
NUM_CASES = 75 if hypothesis.settings().derandomize else 25


def run_everywhere(name: str, case: script.Case) -> None:
    """Replay a case in three ways and compare everything after every tick."""
    strategy, rules = script.STRATEGIES[name]
    exact = name in script.EXACT
    programs = script.programs(name)
    params = script.params(case, exact=exact)
    state = script.first_state(strategy, case)

    final, records = jax.device_get(programs.rollout(params, params, case.key, state))
    memory = programs.first_memory(state)
    ticks = script.run_oracle(rules, case, exact)
    for index, expected in enumerate(ticks):
        plan = programs.plan(params, script.plan_key(case.seed, index), state)
        expansion = script.host_expand(case, index, plan.request, exact)
        before = state
        state, memory, record = jax.device_get(programs.commit(memory, state, plan, expansion))

        script.assert_state(state, rules, expected.state)
        script.assert_tick(jax.device_get(plan), record, before, rules, expected)
        script.assert_same(jax.tree.map(lambda leaf, i=index: leaf[i], records), record)
        if not expected.active:
            script.assert_identical(state, before)
            break  # the host stops here; the graph runs on and must change nothing
    script.assert_same(final, state)
    assert records.output.active.tolist() == [tick.active for tick in ticks]
    assert oracle.ended(ticks[-1].state)
    assert programs.answer(final) == oracle.answer(rules, ticks[-1].state["finished"])


@pytest.mark.parametrize("name", script.STRATEGIES)
@hypothesis.settings(max_examples=NUM_CASES)
@hypothesis.given(case=script.cases())
def test_graph_host_and_oracle_agree(name, case):
    run_everywhere(name, case)


@pytest.mark.parametrize("seed", range(5))
def test_finished_paths_keep_their_places(seed):
    # Wide, with many early ends: the frontier must shrink by what has finished.
    run_everywhere("beam", script.Case(width=8, p_done=0.3, p_invalid=0.0, seed=seed))


@pytest.mark.parametrize("name", [n for n, (s, _) in script.STRATEGIES.items() if s.num_phases > 1])
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
        script.assert_identical(*jax.device_get((other[0](params, plan_key, state), planned)))
        committed = other[1](state, planned, expansion)
        script.assert_identical(*jax.device_get((committed, (after, record.output))))
        state = jax.device_get(after)
    assert phases.count(0) >= 2
    assert max(phases) == strategy.num_phases - 1
