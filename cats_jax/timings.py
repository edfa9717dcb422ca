"""Where the wall time of a run goes, for the overhead table."""

from __future__ import annotations

import threading
from collections import defaultdict


class Timings:
    """Seconds by part, summed over threads.

    Parts: "policy inside" and "prm inside" are forward passes and sampling of token ids;
    "policy outside" and "prm outside" the rest of the engine calls; "core" is plan and commit;
    "host" is everything else of a tick. Waiting for the other cohort's engine is "waiting".
    """

    def __init__(self) -> None:
        """All zero."""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, part: str, seconds: float) -> None:
        """Add to a part; thread-safe."""
        with self._lock:
            self._seconds[part] += seconds

    def as_dict(self) -> dict[str, float]:
        """Seconds by part."""
        with self._lock:
            return dict(self._seconds)
