"""The HTTP side: routes, tokens, limits of bodies, streams, and clients that disconnect."""

from __future__ import annotations

import asyncio
import functools
import hmac
import ipaddress
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..live.results import SearchResult
from ..protocols import Question
from .engine import Engine, Event, SearchProgress, Ticket
from .metrics import ServerMetrics
from .offer import Offer
from .refusals import RefusedRequestError
from .replies import MEDIA_TYPE, CompletionReply, as_event
from .requests import parse_request

T = TypeVar("T")


def _gone() -> RefusedRequestError:
    return RefusedRequestError(499, "dropped", "the client went away", ended=True)


_BODY_SECONDS = 30
"""Seconds within which the body of a request must arrive."""

_BYTES_PER_CHARACTER, _BYTES_BESIDE = 24, 1 << 16
"""Largest body: 24 bytes per character (two messages, 12 bytes an escape), and 64 KiB."""

_DISCARDED = 1 << 24
"""Most bytes that are read of a body that is too large, so that the client reads the refusal."""


def make_app(
    offer: Offer,
    engine: Engine,
    metrics: ServerMetrics,
    token: str | None,
    *,
    host: str,
) -> Starlette:
    """The application.

    Args:
        offer, engine, metrics: strategies and limits, the started engine, and the counters.
        token: bearer token that every request except `/healthz` must have. With None no token is
            needed, and a request is answered only if its header `Host` is `host`, "localhost" or a
            loopback address.
        host: name or address at which the server listens.
    """
    web = _Web(offer, engine, metrics)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", web.chat, methods=["POST"]),
            Route("/v1/models", web.models),
            Route("/v1/models/{name:path}", web.model),
            Route("/healthz", web.health),
            Route("/metrics", web.metrics),
        ],
        middleware=[Middleware(_Guard, token=token, host=host, metrics=metrics)],
        exception_handlers={
            RefusedRequestError: web.refused,
            HTTPException: _no_such_route,
            Exception: _broken,
        },
    )


class _Web:
    """The endpoints."""

    def __init__(self, offer: Offer, engine: Engine, metrics: ServerMetrics) -> None:
        self._offer, self._engine, self._metrics = offer, engine, metrics
        self._created = int(time.time())

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        limit = _BYTES_PER_CHARACTER * self._offer.max_prompt_characters + _BYTES_BESIDE
        parsed = parse_request(await _body(request, limit), self._offer.ignore_sampling)
        asked, options = parsed.request, parsed.request.stream_options
        settings = self._offer.settings(asked)
        events: asyncio.Queue[Event] = asyncio.Queue()
        ticket = Ticket(
            question=Question(f"chatcmpl-{uuid.uuid4().hex}", asked.question, asked.system),
            settings=settings,
            notify=_into(events, asyncio.get_running_loop()),
        )
        self._engine.submit(ticket)
        end = functools.partial(self._engine.drop, ticket)
        reply = CompletionReply(
            {"id": ticket.id, "model": self._offer.name, "created": int(time.time())},
            settings,
            parsed.ignored,
            include_usage=bool(options and options.include_usage),
        )
        try:
            if not asked.stream:
                result = await _unless_gone(request, _result(events))
                return JSONResponse(reply.completion(result))
            # A refusal has its own status, which is sent before the stream.
            await _unless_gone(request, _first(events))
        except BaseException:
            end()
            raise
        return _Stream(_answer(events, reply), end)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/NAME`."""
        name = request.path_params["name"]
        if name != self._offer.name:
            raise RefusedRequestError(
                404, "not_found", f"model {name[:60]!r} is not served: see /v1/models"
            )
        return JSONResponse(self._model())

    def _model(self) -> dict[str, object]:
        return {
            "id": self._offer.name,
            "object": "model",
            "created": self._created,
            "owned_by": "cats-jax",
            "cats_jax": {
                "strategies": self._offer.strategies,
                "max_candidates": self._offer.max_candidates,
                "max_prompt_characters": self._offer.max_prompt_characters,
                "ignored_parameters": self._offer.ignore_sampling,
            },
        }

    async def health(self, request: Request) -> Response:
        """`GET /healthz`: 200 while searches are accepted, else 503."""
        state = self._engine.state
        content = {
            "status": state,
            "in_flight": self._engine.in_flight,
            "waiting": self._engine.waiting,
        }
        return JSONResponse(content, status_code=200 if state == "ready" else 503)

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def refused(self, request: Request, error: Exception) -> Response:
        """The response to a request that is refused."""
        assert isinstance(error, RefusedRequestError)
        if not error.ended:
            self._metrics.rejected(error.reason)
        return _refusal(error)


class _Guard:
    """Admits requests with the token; without a token, those that name this machine in `Host`.

    Otherwise a page in a browser on this machine could reach the server by DNS rebinding: by a name
    of its own that resolves to this machine.
    """

    def __init__(self, app: ASGIApp, token: str | None, host: str, metrics: ServerMetrics) -> None:
        self._app, self._host, self._metrics = app, host.lower(), metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/healthz":
            error = self._refusal(Headers(scope=scope))
            if error is not None:
                self._metrics.rejected(error.reason)
                await _refusal(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> RefusedRequestError | None:
        if self._token is None:
            name = _host_name(headers.get("host", "").lower())
            if name in ("localhost", self._host) or _is_loopback(name):
                return None
            return RefusedRequestError(
                403,
                "host",
                "without a token this server answers to localhost and the address of --host only",
            )
        kind, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token)
        if kind.lower() == "bearer" and right:
            return None
        return RefusedRequestError(
            401,
            "invalid_api_key",
            "the bearer token is missing or wrong: give the server's token as the API key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _host_name(host: str) -> str:
    """The name or address of a header `Host`, without its port and the brackets of IPv6."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def _body(request: Request, limit: int) -> bytes:
    """The body of a request.

    Raises:
        RefusedRequestError: its header does not declare JSON, it is too large or slow, or the
            client leaves.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A page in a browser can't send this type to another site's server without its permission.
        raise RefusedRequestError(
            415, "content_type", "the body must have Content-Type: application/json"
        )
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size <= limit:
                    parts.append(part)
                elif size > _DISCARDED:
                    break
    except ClientDisconnect:
        raise _gone() from None
    except TimeoutError as error:
        message = f"the body has not arrived within {_BODY_SECONDS} seconds"
        raise RefusedRequestError(408, "too_slow", message) from error
    if size > limit:
        raise RefusedRequestError(
            413, "too_large", f"the body has more than {limit} bytes: shorten the messages"
        )
    return b"".join(parts)


def _into(events: asyncio.Queue[Event], loop: asyncio.AbstractEventLoop) -> Callable[[Event], None]:
    """A function that puts an event into a queue of the loop, from any thread."""

    def notify(event: Event) -> None:
        # The loop is closed when the server has ended before its engine.
        if not loop.is_closed():
            loop.call_soon_threadsafe(events.put_nowait, event)

    return notify


class _Stream(StreamingResponse):
    """Server-sent events; `end` is called at their end, and when the client disconnects."""

    def __init__(self, events: AsyncIterator[str], end: Callable[[], None]) -> None:
        super().__init__(events, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-cache"})
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _answer(events: asyncio.Queue[Event], reply: CompletionReply) -> AsyncIterator[str]:
    """The server-sent events of a search."""
    yield reply.begin()
    while True:
        found = await events.get()
        if isinstance(found, SearchProgress):
            yield reply.progress(found)
        elif isinstance(found, RefusedRequestError):
            yield as_event(found.as_object())
            return
        elif isinstance(found, SearchResult):
            for chunk in reply.answer(found):
                yield chunk
            return


async def _result(events: asyncio.Queue[Event]) -> SearchResult:
    """The result of a search; a refusal is raised."""
    while True:
        event = await _first(events)
        if isinstance(event, SearchResult):
            return event


async def _first(events: asyncio.Queue[Event]) -> Event:
    """The next event; a refusal is raised."""
    event = await events.get()
    if isinstance(event, RefusedRequestError):
        raise event
    return event


async def _unless_gone(request: Request, wanted: Awaitable[T]) -> T:
    """The result of a coroutine.

    Raises:
        RefusedRequestError: the client leaves first; nobody reads the error.
    """
    working = asyncio.ensure_future(wanted)
    leaving = asyncio.ensure_future(_leaves(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _gone()
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(error: RefusedRequestError) -> Response:
    return JSONResponse(error.as_object(), status_code=error.status, headers=error.headers)


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = "not_found" if error.status_code == 404 else "method_not_allowed"
    message = f"{request.method} {request.url.path[:100]} is not there: see /v1/models"
    refusal = RefusedRequestError(error.status_code, reason, message, headers=error.headers)
    return _refusal(refusal)


async def _broken(request: Request, error: Exception) -> Response:
    return _refusal(RefusedRequestError(500, "internal", "this server has a fault: see its log"))
