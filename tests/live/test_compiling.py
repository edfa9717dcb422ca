"""Programs that are compiled before a search, and the count of compilations."""

import threading
from typing import Any

import pytest
from letters import QUESTIONS, HashScorer, LetterPolicy

from cats_jax.controllers.strategies import build_strategy
from cats_jax.live import ticks
from cats_jax.live.compilations import num_compilations
from cats_jax.live.compiling import compile_search, num_slots
from cats_jax.live.driver import Limits, SearchSettings
from cats_jax.live.searcher import Searcher
from cats_jax.specs.recipe import StrategySpec

PROGRAMS: tuple[Any, ...] = (ticks.first_states, ticks.plan, ticks.commit, ticks.where_slots)


@pytest.mark.parametrize("name", ["beam", "sequential_best_of_n", "cats"])
def test_a_search_compiles_nothing_after_its_programs_were(name):
    strategy, params, _ = build_strategy(StrategySpec(name))
    settings = SearchSettings(strategy, 8, 6, Limits())
    compiled = []

    def in_a_thread():
        compile_search(settings, params, num_slots(len(QUESTIONS)))
        compiled.append(num_compilations())

    thread = threading.Thread(target=in_a_thread)
    before = num_compilations()
    thread.start()
    thread.join()
    assert compiled[0] > 0
    assert num_compilations() == before  # another thread's are not this one's
    sizes = [program._cache_size() for program in PROGRAMS]
    searcher = Searcher(
        policy=LetterPolicy(5),
        scorer=HashScorer(),
        strategy=strategy,
        params=params,
        num_candidates=8,
        max_depth=6,
    )
    searcher.run(QUESTIONS)
    assert [program._cache_size() for program in PROGRAMS] == sizes
    assert "compiling" not in searcher.timings.as_dict()


@pytest.mark.parametrize(("questions", "slots"), [(1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_slots_are_powers_of_two(questions, slots):
    assert num_slots(questions) == slots
