"""How many programs a thread has compiled, so that compilation is told apart from search."""

from __future__ import annotations

import threading

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
"""JAX reports it for each program that it compiles, or reads from its cache of compiled ones."""

_counted = threading.local()


def num_compilations() -> int:
    """Programs that this thread has compiled, or read compiled, since the module was imported."""
    return getattr(_counted, "programs", 0)


def _count(event: str, duration_secs: float, **metadata: str | int) -> None:
    del duration_secs, metadata
    # JAX reports in the thread that compiles.
    _counted.programs = num_compilations() + (event == _EVENT)


jax.monitoring.register_event_duration_secs_listener(_count)
