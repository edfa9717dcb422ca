"""Where the wall time of an evaluation goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class WallTimes:
    """Where an evaluation's wall time went, in seconds.

    Only `LocalRunner` sets `loading`, `searching` and `parts`.

    Attributes:
        loading: loading models.
        searching: `Searcher.run` without `recording`.
        recording: grading results and serialising rows and trees.
        writing: compressing and writing rows and trees, in a thread of its own.
        parts: seconds by part of the searches (`Searcher.timings`), summed over threads.
        total: the whole of `evaluate`.
    """

    loading: float = 0.0
    searching: float = 0.0
    recording: float = 0.0
    writing: float = 0.0
    total: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)
