"""Connections of a server: their largest number, and how long a silent one stays open.

These limits apply before a client has authenticated itself, so that silent connections can't block
the server.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import BadInputError

_LOG = logging.getLogger(__name__)

SILENT_SECONDS = 10
"""Seconds in which a client must send the headers of a request, or read the last response."""

_MOST_OTHERS = 1024
"""Largest number of connections in addition to those of searches."""

_LEAST_OTHERS = 16
"""Least number of connections for refusals, health checks and metrics."""

_RESERVED, _RESERVED_SHARE = 64, 4
"""File descriptors reserved for models and files: at least 64, and at least a quarter."""

_SECONDS_BETWEEN_WARNINGS = 60


def most_connections(searches: int) -> int:
    """Largest number of connections, below the process's limit of file descriptors.

    `searches` is the largest number of searches at a time, including those that wait.

    Raises:
        BadInputError: the limit is too low for so many searches.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return searches + _MOST_OTHERS
    others = limit - max(_RESERVED, limit // _RESERVED_SHARE) - searches
    if others < _LEAST_OTHERS:
        raise BadInputError(
            f"--in-flight and --max-waiting allow {searches} searches, for which the limit of "
            f"{limit} open files is too low: lower them, or raise the limit (`ulimit -n`)"
        )
    return searches + min(_MOST_OTHERS, others)


class RareWarnings:
    """Logs a warning at most once a minute, because clients can cause it at will."""

    def __init__(self) -> None:
        self._last = -float("inf")

    def warn(self, message: str) -> None:
        """Log the warning, unless there was one within the last minute."""
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_WARNINGS:
            self._last = now
            _LOG.warning(message)


class Connections:
    """Makes the protocol of each connection, and closes silent ones beyond `most`, at least 1."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._warnings = RareWarnings()
        # Ordered by the time at which they last began to wait for their client.
        self._open: dict[Connection, None] = {}

    def __call__(self, **settings: Any) -> Connection:
        """The protocol of a new connection; uvicorn calls this."""
        return Connection(self, **settings)

    def wait_for_client(self, connection: Connection) -> None:
        """Note that a connection waits for its client from now on, and make room if needed."""
        self._open.pop(connection, None)
        self._open[connection] = None
        if len(self._open) > self._most:
            self._warnings.warn(
                f"there are {self._most} connections, which is the most: the one that has been "
                "silent longest is closed for each new one"
            )
            next((each for each in self._open if each.is_silent), connection).abort()

    def forget(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        self._open.pop(connection, None)


class Connection(H11Protocol):
    """A connection that is closed when no request is in progress for `SILENT_SECONDS`.

    Bytes do not extend that time: a client that sends one now and then is closed as well.
    """

    def __init__(self, all_of_them: Connections, **settings: Any) -> None:
        super().__init__(**settings)
        self._all = all_of_them
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the server waits for the client to send a request or the rest of one."""
        return not self._in_progress or self.cycle.more_body

    @property
    def _in_progress(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_client()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait_for_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._all.forget(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._all.forget(self)
        self.transport.abort()

    def _wait_for_client(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(SILENT_SECONDS, self._end_if_silent)
        self._all.wait_for_client(self)

    def _end_if_silent(self) -> None:
        # A request that has begun to arrive belongs to the application, which has its own
        # deadlines.
        if not self._in_progress:
            self.abort()
