"""`search.check_strategy`: ours keep every rule, and each broken rule is named."""

import dataclasses
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import search

# These differ from others by the answer rule or the policy alone.
ALIKE = ("best_of_n_weighted", "cats_constant")
SLOW = [name for name in search.methods.DEFAULTS if name not in ("greedy", "beam", *ALIKE)]


@pytest.mark.parametrize(
    "name", ["greedy", "beam", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_named_strategies_keep_the_contract(name):
    search.check_strategy(search.methods.DEFAULTS[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [search.best_of_n(path_score="last"), search.methods.sequential_best_of_n(path_score="last")],
    ids=lambda strategy: strategy.name,
)
def test_methods_that_read_the_last_score_alone_say_so(strategy):
    assert not strategy.needs_step_scores
    search.check_strategy(strategy)


def test_scores_of_ends_are_refused_to_a_method_that_needs_all():
    with pytest.raises(ValueError, match="'beam' needs the scores of unfinished paths"):
        search.interface.scoring_ends(search.beam())


BEAM, MAJORITY = search.beam(), search.majority()


def _hot(params, key, state):
    return search.request(state, 1, search.Sampling(1.3)), state.memory


def _one_each(state):
    return search.request(state, 1), state.memory


def _in_the_last_phase(params, key, state):
    return search.request(state, jnp.where(state.phase == 2, 1, 0)), state.memory


def _best_path_only(params, key, state):
    scores = search.aggregations.path_scores(state.frontier, MAJORITY.aggregation)
    best = jnp.argmax(jnp.where(state.frontier.valid, scores, -1.0))
    slots = jnp.arange(state.frontier.valid.size, dtype=jnp.int32)
    return search.request(state, jnp.where(slots == best, state.num_candidates, 0)), state.memory


def _other_memory(state):
    return state.pool, state.pool.valid, jnp.int32(0)


def _first_slot(params, finished, context, aggregation):
    return jnp.int32(0)


def _python_max(params, key, state):
    return search.request(state, max(state.num_candidates, 1)), state.memory


def _python_if(state):
    return (state.pool, state.pool.valid, state.memory) if state.step == 0 else None


def _python_range(params, finished, context, aggregation):
    return jnp.int32(max(range(finished.valid.sum()), default=-1))


def _boolean_index(state):
    return state.pool, state.pool.valid[state.pool.valid], state.memory


def _numpy(params, key, state):
    return search.request(state, np.maximum(state.num_candidates, 1)), state.memory


BROKEN = {
    "Python's max in a plan": (
        dataclasses.replace(BEAM, plan=_python_max),
        r"^strategy 'beam': plan \(test_check_strategy.py:\d+\) uses a traced array as .*"
        r"\(TracerBoolConversionError\): use jnp.maximum in place of max",
    ),
    "a Python condition in keep": (
        dataclasses.replace(BEAM, keep=_python_if),
        r"^strategy 'beam': keep .*TracerBoolConversionError",
    ),
    "a Python range in an answer": (
        dataclasses.replace(BEAM, answer=_python_range),
        r"^strategy 'beam': answer .*TracerIntegerConversionError",
    ),
    "a boolean index in keep": (
        dataclasses.replace(BEAM, keep=_boolean_index),
        r"^strategy 'beam': keep .*NonConcreteBooleanIndexError",
    ),
    "NumPy in a plan": (
        dataclasses.replace(BEAM, plan=_numpy),
        r"^strategy 'beam': plan .*TracerArrayConversionError",
    ),
    "a width for numbers only": (
        dataclasses.replace(BEAM, width=lambda n: max(1, n // 4)),
        "'beam': width must also work on traced arrays: use search.share_of_candidates",
    ),
    "steps for numbers only": (
        dataclasses.replace(BEAM, num_steps=lambda n, depth: max(n, depth)),
        "'beam': num_steps must also work on traced arrays",
    ),
    "a width that is no integer": (
        dataclasses.replace(BEAM, width=lambda n: n / 2),
        r"width\(1,\) must be an int >= 1, got 0.5",
    ),
    "more paths than candidates": (
        dataclasses.replace(BEAM, width=lambda n: n + 1),
        r"width\(1\) = 2: no more paths can be kept than sampled",
    ),
    "undeclared sampling": (
        dataclasses.replace(BEAM, plan=_hot),
        "samples with temperature 1.3, top_p 1, top_k 0, which `sampling` does not list: add it",
    ),
    "a memory that changes": (
        dataclasses.replace(BEAM, keep=_other_memory),
        "memory must keep its structure",
    ),
    "scores that it says are not used": (
        dataclasses.replace(BEAM, uses_scores=False),
        "uses_scores is False, but the scores change what it samples, keeps or answers",
    ),
    "scores of unfinished paths that it says are not read": (
        dataclasses.replace(BEAM, needs_step_scores=False),
        "needs_step_scores is False, but scores of unfinished paths change what it samples or",
    ),
    "paths that it says are kept": (
        dataclasses.replace(BEAM, keeps_all_paths=True),
        r"keeps_all_paths, but \d of 8 paths were kept",
    ),
    "paths that get no child": (
        dataclasses.replace(
            BEAM, plan=_best_path_only, width=search.interface.all_candidates, keeps_all_paths=True
        ),
        "keeps_all_paths, but a tick grew only some paths",
    ),
    "an N that it says is ignored": (
        dataclasses.replace(MAJORITY, ignores_num_candidates=True),
        "ignores_num_candidates, but N changes what it samples",
    ),
    "a quiet phase before one that samples": (
        dataclasses.replace(
            BEAM, num_phases=3, plan=_in_the_last_phase, base=_one_each, quiet_ends_step=True
        ),
        "quiet_ends_step, but a phase samples after one that sampled nothing",
    ),
    "draws of the question that repeat": (
        dataclasses.replace(
            search.methods.adaptive_consistency(),
            earlier_draws=search.interface.no_earlier_draws,
        ),
        "samples children of a node in several steps, and a step bank would repeat draws: set "
        "`earlier_draws`",
    ),
    "an answer that is no path": (
        dataclasses.replace(BEAM, answer=_first_slot),
        "answer gave row 0, which is no finished path; -1 stands for no answer",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_named(rule):
    strategy, message = BROKEN[rule]
    with pytest.raises(AssertionError, match=message):
        search.check_strategy(strategy)


def test_types_are_checked_where_no_type_checker_is():
    """Names in place of functions, and counts that are no integers."""
    look_up = "must be a function, got the name {!r}: look it up, as search.{} does"
    calls = {
        "Strategy(name='mine', plan=print, aggregation='last')": "strategy 'mine': aggregation "
        + look_up.format("last", 'aggregations.AGGREGATIONS["last"]'),
        "Strategy(name='mine', plan=print, answer='best')": "strategy 'mine': answer "
        + look_up.format("best", 'answers.answer_rule("weighted")'),
        "beam(expansion=2.5)": "expansion must be an integer >= 1, got 2.5",
        "dvts(expansion=2.5)": "expansion must be an integer >= 1, got 2.5",
        "mcts(branching=2.5)": "branching must be an integer >= 1, got 2.5",
        "particle_gibbs(num_iterations=1.5)": "num_iterations must be an integer >= 1, got 1.5",
        "early_stopping_consistency(window=2.5)": "window must be an integer >= 1, got 2.5",
        "speculative_rejection(memory_tokens=1e3)": "memory_tokens must be an integer >= 0, got "
        "1000.0",
    }
    lines = ["from search.methods import *"]
    for call in calls:
        lines += ["try:", f"    print({call})"]
        lines += ["except (TypeError, ValueError) as error:", "    print(error)"]
    # In a process of its own, without the type checks of tests.
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == list(calls.values())
