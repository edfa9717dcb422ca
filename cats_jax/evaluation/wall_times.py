"""Where the wall time of an evaluation goes, and what it computed twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class WallTimes:
    """Where an evaluation's wall time went, in seconds, and tokens that were computed again.

    Only `LocalRunner` sets `loading`, `searching`, `parts` and `recomputed`. In a run with workers
    these are sums over the workers, which search at the same time.

    Attributes:
        loading: loading models.
        searching: `Searcher.run` without `recording`.
        recording: grading results and serialising rows and trees.
        writing: compressing and writing rows and trees, in a separate thread.
        parts: seconds by part of the searches (`Searcher.timings`).
        total: the whole of `evaluate`.
        recomputed: tokens that policy and PRM on transformers computed again because their keys and
            values did not fit into `kv_cache_gib`; no ledger counts them.
        workers: number of processes that searched for this one; 0: this process searched.
    """

    loading: float = 0.0
    searching: float = 0.0
    recording: float = 0.0
    writing: float = 0.0
    total: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)
    recomputed: int = 0
    workers: int = 0

    def add(self, other: WallTimes) -> None:
        """Add what another process spent on loading and searching."""
        self.loading += other.loading
        self.searching += other.searching
        self.parts.update(other.parts)
        self.recomputed += other.recomputed

    def take(self) -> WallTimes:
        """The times of loading and searching since the last call, which are set to 0."""
        taken = WallTimes()
        taken.add(self)
        self.loading = self.searching = 0.0
        self.parts.clear()
        self.recomputed = 0
        return taken
