"""Compilation of a search's programs before its first question."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import search

from ..compiled_programs import keep_compiled_programs
from . import ticks
from .driver import SearchSettings


def num_slots(questions: int) -> int:
    """Number of slots for so many questions at once.

    It is a power of two, so that runs of similar size share their programs.
    """
    return 1 << (questions - 1).bit_length()


def compile_search(settings: SearchSettings, params: Any, slots: int) -> None:
    """Compile the programs of a cohort, by a tick of slots without questions.

    A cohort with the same settings and slots then compiles nothing.

    Args:
        settings: settings of the search, without a recorder.
        params: parameters of the strategy's policy.
        slots: number of slots, from `num_slots`.
    """
    keep_compiled_programs()
    terms = ticks.stack_terms([ticks.idle_terms()] * slots)
    state = ticks.first_states(terms, **settings.shapes)
    state = ticks.where_slots(np.ones((slots,), bool), state, state)
    counts = np.zeros((slots,), np.int32)
    planned = ticks.plan(params, terms.key, counts, state, settings.strategy, None)
    expansion = search.Expansion(**ticks.blank_expansion(slots, settings.capacity))
    state, observed = ticks.commit(params, state, planned, expansion, settings.strategy, None)
    jax.block_until_ready((state, observed))
