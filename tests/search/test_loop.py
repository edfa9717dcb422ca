"""In the graph equals on the host equals the oracle: every strategy, every tick, every field."""

import functools

import hypothesis
import jax
import oracle
import pytest
import search_script as script

import search


def run_everywhere(name: str, case: script.Case) -> None:
    """Replay a case in three ways and compare everything after every tick."""
    strategy, rules = script.STRATEGIES[name]
    exact = name in script.EXACT
    programs = script.programs(name)
    params = script.params(case, exact=exact)
    state = script.first_state(strategy, case)

    final, outputs = jax.device_get(programs.rollout(params, params, case.key, state))
    ticks = script.run_oracle(rules, case, exact)
    for index, expected in enumerate(ticks):
        plan_key, _ = search.tick_keys(case.key, index)
        plan = programs.plan(params, plan_key, state)
        expansion = script.host_expand(case, index, plan.request, exact)
        before = state
        state, output = jax.device_get(programs.commit(state, plan, expansion))

        script.assert_state(state, rules, expected.state)
        script.assert_tick(jax.device_get(plan), output, before, expected)
        script.assert_same(jax.tree.map(lambda leaf, i=index: leaf[i], outputs), output)
        if not expected.active:
            script.assert_identical(state, before)
            break  # the host stops here; the graph runs on and must change nothing
    script.assert_same(final, state)
    active = [tick.active for tick in ticks]
    assert outputs.active.tolist() == active
    assert oracle.ended(ticks[-1].state)
    assert programs.answer(final.finished) == oracle.answer(rules, ticks[-1].state["finished"])


@pytest.mark.parametrize("name", script.STRATEGIES)
@hypothesis.given(case=script.cases())
def test_graph_host_and_oracle_agree(name, case):
    run_everywhere(name, case)


@pytest.mark.parametrize("seed", range(5))
def test_finished_paths_keep_their_places(seed):
    # Wide, with many early ends: the frontier must shrink by what has finished.
    run_everywhere("beam", script.Case(width=8, p_done=0.3, p_invalid=0.0, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", script.STRATEGIES)
@hypothesis.settings(max_examples=100)
@hypothesis.given(case=script.cases())
def test_graph_host_and_oracle_agree_on_many_more(name, case):
    run_everywhere(name, case)


@pytest.mark.parametrize("name", [n for n, (s, _) in script.STRATEGIES.items() if s.num_phases > 1])
def test_the_promise_of_a_base_phase_changes_nothing(name):
    strategy, _ = script.STRATEGIES[name]
    case = script.Case(num_candidates=7, max_depth=3, seed=3)
    params, state = script.params(case), script.first_state(strategy, case)
    programs = script.programs(name)
    promised = {"strategy": strategy, "base_phase": True}
    plan_base = jax.jit(functools.partial(search.plan, **promised))
    commit_base = jax.jit(functools.partial(search.commit, **promised))
    base_ticks = 0
    for index in range(strategy.num_phases * case.max_depth):
        plan_key, _ = search.tick_keys(case.key, index)
        plan = programs.plan(params, plan_key, state)
        expansion = script.host_expand(case, index, plan.request, False)
        after = programs.commit(state, plan, expansion)
        if state.phase == 0:
            base_ticks += 1
            script.assert_identical(*jax.device_get((plan_base(params, plan_key, state), plan)))
            script.assert_identical(*jax.device_get((commit_base(state, plan, expansion), after)))
        state = jax.device_get(after[0])
    assert base_ticks >= 2
