"""Where the wall time of an evaluation goes, and what it computed twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class WallTimes:
    """Where an evaluation's wall time went, in seconds, and tokens that were computed again.

    Only `LocalRunner` sets `loading`, `searching`, `parts` and `recomputed`.

    Attributes:
        loading: loading models.
        searching: `Searcher.run` without `recording`.
        recording: grading results and serialising rows and trees.
        writing: compressing and writing rows and trees, in a thread of its own.
        parts: seconds by part of the searches (`Searcher.timings`).
        total: the whole of `evaluate`.
        recomputed: tokens that policy and PRM on transformers computed again because their keys
            and values did not fit into `kv_cache_gib`; no ledger counts them.
    """

    loading: float = 0.0
    searching: float = 0.0
    recording: float = 0.0
    writing: float = 0.0
    total: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)
    recomputed: int = 0
