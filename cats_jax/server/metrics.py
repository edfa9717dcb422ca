"""Counts and times of a server in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..live.results import SearchResult

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
"""Upper bounds of the histogram's buckets: seconds from a request to its answer."""


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._in_flight = Gauge(
            "cats_jax_searches_in_flight", "Searches that have a place", registry=registry
        )
        self._waiting = Gauge(
            "cats_jax_searches_waiting", "Searches that wait for a place", registry=registry
        )
        self._finished = Counter(
            "cats_jax_searches_finished",
            "Searches that ended by themselves",
            ["status"],
            registry=registry,
        )
        self._dropped = Counter(
            "cats_jax_searches_dropped", "Searches whose client went away", registry=registry
        )
        self._tokens = Counter(
            "cats_jax_tokens",
            "Tokens of finished searches: sampled by the policy, computed by the PRM",
            ["model"],
            registry=registry,
        )
        self._candidates = Counter(
            "cats_jax_candidates", "Candidates of finished searches", registry=registry
        )
        self._seconds = Histogram(
            "cats_jax_search_seconds",
            "Seconds from a request to the end of its search",
            buckets=_SECONDS,
            registry=registry,
        )
        self._rejected = Counter(
            "cats_jax_requests_rejected", "Requests without a search", ["reason"], registry=registry
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

    def rejected(self, reason: str) -> None:
        """Count a request that was refused, by the reason in one word."""
        self._rejected.labels(reason).inc()

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        return generate_latest(self._registry)
