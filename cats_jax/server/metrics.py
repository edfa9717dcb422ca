"""Counts and times of a server in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..live.results import SearchResult

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
"""Upper bounds of the histogram's buckets: seconds from a request to its answer."""


class ServerMetrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        shared: dict[str, Any] = {"namespace": "cats_jax", "registry": self._registry}
        self._in_flight = Gauge("searches_in_flight", "Searches that have a place", **shared)
        self._waiting = Gauge("searches_waiting", "Searches that wait for a place", **shared)
        self._finished = Counter(
            "searches_finished", "Searches that ended by themselves", ["status"], **shared
        )
        self._dropped = Counter("searches_dropped", "Searches whose client went away", **shared)
        stopped = "Searches that a shutdown or a failed model ended"
        self._stopped = Counter("searches_stopped", stopped, ["reason"], **shared)
        tokens = "Tokens of finished searches: sampled by the policy, computed by the PRM"
        self._tokens = Counter("tokens", tokens, ["model"], **shared)
        self._candidates = Counter("candidates", "Candidates of finished searches", **shared)
        seconds = "Seconds from a request to the end of its search"
        self._seconds = Histogram("search_seconds", seconds, buckets=_SECONDS, **shared)
        self._rejected = Counter(
            "requests_rejected", "Requests without a search", ["reason"], **shared
        )

    def watch(self, *, in_flight: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Read the numbers of searches from these functions whenever the metrics are requested."""
        self._in_flight.set_function(in_flight)
        self._waiting.set_function(waiting)

    def finished(self, result: SearchResult, seconds: float) -> None:
        """Count a search that ended by itself, `seconds` after its request."""
        self._finished.labels(result.status).inc()
        self._tokens.labels("policy").inc(result.ledger.generated)
        self._tokens.labels("prm").inc(result.ledger.prm_computed)
        self._candidates.inc(result.ledger.candidates)
        self._seconds.observe(seconds)

    def dropped(self) -> None:
        """Count a search whose client disconnected."""
        self._dropped.inc()

    def stopped(self, reason: str) -> None:
        """Count an accepted search that the server ended, by the reason in one word."""
        self._stopped.labels(reason).inc()

    def rejected(self, reason: str) -> None:
        """Count a request that was refused, by the reason in one word."""
        self._rejected.labels(reason).inc()

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        return generate_latest(self._registry)
