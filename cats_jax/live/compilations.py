"""How many programs JAX has compiled, so that compilation is told apart from search."""

from __future__ import annotations

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
"""JAX reports it for each program that it compiles, or reads from its cache of compiled ones."""

_counted = 0


def num_compilations() -> int:
    """Programs compiled, or read compiled, since this module was imported."""
    return _counted


def _count(event: str, duration_secs: float, **metadata: str | int) -> None:
    del duration_secs, metadata
    global _counted
    _counted += event == _EVENT


jax.monitoring.register_event_duration_secs_listener(_count)
