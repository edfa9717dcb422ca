"""Seconds of calls that overlap."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Share:
    """The part of the time that belongs to one call; complete when its `with` block has ended."""

    seconds: float = 0.0


class SharedTime:
    """Divides each second among the calls in progress, in proportion to their weights."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weight = 0
        # Seconds of a call of weight 1 that has been in progress from the beginning.
        self._seconds = 0.0
        self._until = 0.0

    @contextlib.contextmanager
    def call(self, weight: int) -> Iterator[Share]:
        """The share of a call that lasts as long as the `with` block; `weight` is at least 1."""
        share = Share()
        begun = self._change(weight)
        try:
            yield share
        finally:
            share.seconds = weight * (self._change(-weight) - begun)

    def _change(self, weight: int) -> float:
        with self._lock:
            now = time.perf_counter()
            if self._weight:
                self._seconds += (now - self._until) / self._weight
            self._until = now
            self._weight += weight
            return self._seconds
