"""Counts the programs that JAX compiles, to separate compilation time from search time."""

from __future__ import annotations

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
"""Event that JAX reports for each program that it compiles or reads from its compilation cache."""

_counted = 0


def num_compilations() -> int:
    """Number of programs compiled, or read from the cache, since this module was imported."""
    return _counted


def _count(event: str, duration_secs: float, **metadata: str | int) -> None:
    global _counted
    _counted += event == _EVENT


jax.monitoring.register_event_duration_secs_listener(_count)
