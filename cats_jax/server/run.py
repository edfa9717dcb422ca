"""The process of a server: its address, its start, and its orderly end."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ..errors import BadInputError
from .connections import SILENT_SECONDS, Connections, RareWarnings
from .engine import Engine

_CLOSING_SECONDS = 5
"""Seconds for the last bytes of responses, after the searches have ended."""

_ACCEPTED_AT_ONCE = 8
"""Most connections that asyncio accepts before it serves those that are open."""

_BACKLOG = 2048
"""Most connections that the operating system keeps until they are accepted."""


def bind(host: str, port: int, token: str | None) -> socket.socket:
    """A socket at an address, to which nothing can connect before the server runs.

    The port is in 0..65535; 0 takes a free one.

    Raises:
        BadInputError: the address is not available, or others could reach it without a token.
    """
    if not 0 <= port < 1 << 16:
        raise BadInputError(f"--port {port}: must be in 0..65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, protocol, _, address = found[0]
        if token is None and not ipaddress.ip_address(address[0]).is_loopback:
            raise BadInputError(
                f"--host {host}: others can reach it, so the server needs a token: give "
                "--token-file or CATS_JAX_TOKEN, or leave --host at 127.0.0.1"
            )
        # Without the protocol asyncio does not see that it is TCP, and leaves Nagle's delay on.
        made = socket.socket(family, socket.SOCK_STREAM, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
        except OSError:
            made.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is too long
        reason = getattr(error, "strerror", None) or error
        raise BadInputError(
            f"--host {host} --port {port}: {reason}: choose another address or port"
        ) from error
    return made


def url(sock: socket.socket) -> str:
    """The base URL that clients are given."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


class Server(uvicorn.Server):
    """Serves until a signal, then until the searches have ended or `grace` seconds are over.

    A second signal ends it at once.
    """

    def __init__(
        self,
        app: ASGIApp,
        engine: Engine,
        *,
        connections: int,
        grace: float,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up; nothing is served yet.

        Args:
            app, engine: the application, and the engine, which is drained and stopped at the end.
            connections: most connections at a time, see `connections.most_connections`.
            grace: most seconds between the signal and the end of the searches.
            ready: called once clients can connect.
        """
        super().__init__(
            uvicorn.Config(
                app,
                http=Connections(connections),  # type: ignore[arg-type]  # it is called only
                ws="none",
                log_level="error",  # clients can cause warnings at will
                access_log=False,
                server_header=False,
                backlog=_ACCEPTED_AT_ONCE,
                timeout_keep_alive=SILENT_SECONDS,
                timeout_graceful_shutdown=_CLOSING_SECONDS,
            )
        )
        self._engine = engine
        self._grace = grace
        self._ready = ready
        self._warnings = RareWarnings()
        self._signals = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal."""
        self._signals += 1

    def end(self) -> None:
        """Do what a signal does; any thread may call this."""
        self.handle_exit(signal.SIGTERM, None)

    def run_until_signal(self, sock: socket.socket) -> None:
        """Serve on a socket until the end."""
        asyncio.run(self._run_all(sock))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then call `ready`.

        Raises:
            BadInputError: another process listens at the address.
        """
        for sock in sockets or []:
            try:
                sock.listen(_ACCEPTED_AT_ONCE)
            except OSError as error:  # two processes may bind one address before either listens
                raise BadInputError(
                    f"{url(sock)}: {error.strerror}: choose another address or port"
                ) from error
        await super().startup(sockets)
        # asyncio has one number for both queues, which must differ here.
        for sock in sockets or []:
            sock.listen(_BACKLOG)
        self._ready()

    async def _run_all(self, sock: socket.socket) -> None:
        asyncio.get_running_loop().set_exception_handler(self._note_failure)
        serving = asyncio.create_task(self.serve(sockets=[sock]))
        last: float | None = None
        while not serving.done():
            await asyncio.wait([serving], timeout=0.1)
            if self._signals and last is None:
                self._engine.drain()
                last = time.monotonic() + self._grace
            over = last is not None and time.monotonic() >= last
            if last is not None and (over or self._signals > 1 or self._engine.is_idle()):
                break
        # The remaining searches are refused, so that their responses end.
        await asyncio.to_thread(self._engine.stop)
        self.should_exit = True
        await serving

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a failure of the loop; failures to accept a connection are logged rarely."""
        error = context.get("exception")
        if isinstance(error, OSError) and "accept" in context["message"]:
            self._warnings.warn(f"a connection can't be accepted: {error.strerror}")
        else:
            loop.default_exception_handler(context)
