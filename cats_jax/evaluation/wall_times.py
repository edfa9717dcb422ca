"""Where the wall time of an evaluation goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class WallTimes:
    """Where an evaluation's wall time went, in seconds.

    Attributes:
        loading: reading models.
        searching: inside `Searcher.run`, without `recording`.
        recording: grading, and making text of rows and trees, in the searches' threads.
        writing: compressing and writing them, in a thread of its own.
        parts: the searches' own account, summed over its two threads (`Searcher.timings`).
        total: all of `evaluate`.
    """

    loading: float = 0.0
    searching: float = 0.0
    recording: float = 0.0
    writing: float = 0.0
    total: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)
