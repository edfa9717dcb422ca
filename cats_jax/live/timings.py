"""Where the wall time of a run goes, for the overhead table."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

from .compilations import num_compilations


class Timings:
    """Seconds by part.

    "policy inside" and "prm inside" are forward passes and sampling of token ids; "policy outside"
    and "prm outside" are the rest of the engine calls. "core" is plan and commit; a tick that
    compiled a program counts them as "compiling". "host" is everything else. Waiting for calls in
    other threads is not counted. The time inside these calls is counted, so parts may
    overlap.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, part: str, seconds: float) -> None:
        """Add seconds to a part."""
        self._seconds[part] += seconds

    def as_dict(self) -> dict[str, float]:
        """Seconds by part."""
        return dict(self._seconds)


class Stopwatch:
    """Seconds by part within one tick, which begins when the stopwatch is made."""

    def __init__(self) -> None:
        self._started, self._compilations = time.perf_counter(), num_compilations()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the duration of the `with` block to a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - started

    def inside(self, part: str, seconds: float) -> None:
        """Add the seconds that a model spent in its calls to the part "... inside"."""
        self._seconds[f"{part} inside"] += seconds

    def seconds(self, part: str) -> float:
        """Seconds of one part; 0 if nothing was added to it."""
        return self._seconds[part]

    def wall(self) -> float:
        """Seconds since the tick began."""
        return time.perf_counter() - self._started

    def compiled(self) -> bool:
        """Whether a program was compiled since the tick began."""
        return num_compilations() > self._compilations
