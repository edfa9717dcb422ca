"""Calls to an endpoint of OpenAI's chat completions, with limited cost and kept replies.

They use only what every such endpoint has: messages, `max_tokens`, `temperature`, `top_p`, `seed`,
`n`, `finish_reason` and `usage`. Broken calls are repeated as by `http_engine.ServerClient`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import httpx

from ...errors import BadInputError, quoted
from ...specs.models import PAID_KEYS, ModelSpec
from ...storage.durable import append, open_to_append, stopped, truncate, unwritable
from ...storage.reading import bounded_lines, parse_json, reading
from .http_engine import (
    MOST_BYTES,
    RefusedCallError,
    Route,
    ServerClient,
    TryAgainError,
    UnfitServerError,
    client_settings,
    token_count,
    wait_unless,
)
from .spending import Pace, Spending

_PATH = "/v1/chat/completions"

_FRAME_TOKENS = 256
"""Tokens that a chat template may add to the texts of a prompt, for the largest cost of a call."""

_TOKEN_BYTES = 1024
"""Largest number of bytes of a token's text."""

_LONGEST_LINE = 4 * MOST_BYTES
"""Most bytes of a line of a file of replies: characters of 2 bytes are escaped by 6."""

_FREE = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors of calls that never reached the endpoint."""

OF_QUESTION = (400, 413, 422)
"""Statuses by which endpoints refuse one request, such as a question that is too long."""

_MOST_RECENT = 4096
"""Largest number of replies that are kept in memory for a repeated batch."""

_START = b'{"key": "'
"""Beginning of each line of a file of replies."""

_ENDS = {
    **dict.fromkeys(("stop", "eos", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(
        ("length", "max_tokens", "content_filter", "tool_calls", "function_call"), "length"
    ),
    # Mistral's and Z.ai's names for the end of the context, and Z.ai's for a filter.
    **dict.fromkeys(("model_length", "model_context_window_exceeded", "sensitive"), "length"),
}
"""Endpoints' names for the end of a sample: by itself or at a stop text ("stop"), or cut."""

_WANTED = (
    "a policy with chat: true needs OpenAI's /v1/chat/completions with finish_reason and usage: "
    "check backend and served_name, or take another endpoint"
)

T = TypeVar("T")
R = TypeVar("R")


class ChatReply(NamedTuple):
    """The samples of one request, and the endpoint's own counts of tokens.

    Attributes:
        samples: (text, "stop" or "length") of each sample, at least one.
        prompt, cached: tokens of the prompt, and how many of them came from a cache.
        completion: sampled tokens of all samples together.
    """

    samples: tuple[tuple[str, str], ...]
    prompt: int
    cached: int
    completion: int


class ChatEndpoint(ServerClient):
    """Calls to one model behind `/v1/chat/completions`.

    Args:
        url: address of the endpoint, with or without "/v1".
        model: name of the model there.
        price, max_cost: see `Spending`; the cost includes that of the model's replies in `replies`.
        max_requests_per_minute: see `Pace`.
        replies: file of replies, see `ReplyFile`; None: they are not kept.
        keeps_recent: without a file, keep the newest replies in memory. A judge's batch is repeated
            if one of its requests is refused, and the others must not be paid for twice.
        server: `api_key_env`, `concurrency`, `timeout` and `patience` of the `ServerClient`.

    Raises:
        BadInputError: the address or the file can't be used, or there is no key.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        price: Mapping[str, float] | None = None,
        max_cost: float | None = None,
        max_requests_per_minute: float | None = None,
        replies: str | None = None,
        keeps_recent: bool = False,
        **server: Any,
    ):
        super().__init__(url, model=model, context=0, **server)
        self._spending = Spending(f"server {self.url}", price, max_cost)
        self._pace = Pace(max_requests_per_minute)
        self._replies = None if replies is None else kept_replies(replies)
        self._recent: OrderedDict[str, ChatReply] | None = OrderedDict() if keeps_recent else None
        self._payee = _digest([self.url, self.model])
        for reply in () if self._replies is None else self._replies.paid_to(self._payee):
            self._spending.spent += self.cost(reply.prompt, reply.completion)

    @classmethod
    def of(cls, spec: ModelSpec, **server: Any) -> ChatEndpoint:
        """The endpoint of a recipe's model; `server` are further settings."""
        settings = {name: getattr(spec, name) for name in PAID_KEYS} | client_settings(spec)
        return cls(spec.backend, str(spec.served_name), **settings, **server)

    def cost(self, prompt: int, completion: int) -> float:
        """What the endpoint charges for tokens, in the unit of `price`; 0 without prices."""
        return self._spending.cost(prompt, completion)

    def each(self, function: Callable[[T, float], R], items: Iterable[T]) -> list[R]:
        """The values of `function(item, asked_at)` for all items, called concurrently, in order.

        If a request is refused as one of a question, the error is raised when all others have their
        replies, so that a repeated batch finds them.
        """
        asked_at = time.monotonic()

        def answered(item: T) -> R | RefusedCallError:
            try:
                return function(item, asked_at)
            except RefusedCallError as error:
                if error.status not in OF_QUESTION:
                    raise
                return error

        values: list[R] = []
        for value in self._map(answered, items):
            if isinstance(value, RefusedCallError):
                raise value
            values.append(value)
        return values

    def ask(self, body: dict[str, Any], asked_at: float, final: Container[int] = ()) -> ChatReply:
        """The reply to one request, from the file of replies if it is there.

        Args:
            body: JSON object to post; the model's name is added.
            asked_at: time of the request, by `time.monotonic`.
            final: statuses that refuse the request, so that it is not repeated.

        Raises:
            BadInputError: the endpoint refuses the request (`RefusedCallError`), or is of another
                kind.
            RunStoppedError: the endpoint gave no good reply for too long, or `max_cost` is reached.
        """
        key = _digest([self.url, self.model, body])
        kept = self._recent if self._replies is None else self._replies
        known = None if kept is None else kept.get(key)
        if known is not None:
            return known
        posted = {"model": self.model, **body}
        found = self._post(Route(_PATH, self._read, _WANTED, final), posted, asked_at)
        if self._replies is not None:
            self._replies.add(key, found, self._payee)
        elif self._recent is not None:
            self._recent[key] = found
            if len(self._recent) > _MOST_RECENT:
                self._recent.popitem(last=False)
        return found

    def _check(self, model: str | None, context: int) -> str:
        # Gateways list hundreds of models, or none: the first request shows if the model is served.
        return str(model)

    _of_question = OF_QUESTION

    def _wait_for_turn(self, given_up: Callable[[], bool]) -> float:
        begun = time.monotonic()
        wait_unless(given_up, self._pace.seconds())
        return time.monotonic() - begun

    def _post_once(self, route: Route[T], body: dict[str, Any], given_up: Callable[[], bool]) -> T:
        prompt = len(json.dumps(body["messages"]).encode()) + _FRAME_TOKENS
        # The endpoint may charge sampled tokens even if no whole reply arrives.
        lost = ChatReply((), prompt, 0, body.get("n", 1) * body["max_tokens"])
        with self._spending.call(self.cost(lost.prompt, lost.completion)) as bill:
            if given_up():  # while it waited for other calls
                raise self.stopped_waiting()
            bill.cost = self.cost(lost.prompt, lost.completion)

            def booked(reply: Any, body: dict[str, Any]) -> T:
                nonlocal lost
                if (error := _error_in(reply)) is not None:
                    raise self.refusal(route, *error)
                lost = ChatReply((), *_counts(reply, body))
                bill.cost = self.cost(lost.prompt, lost.completion)
                return route.read(reply, body)

            try:
                return super()._post_once(dataclasses.replace(route, read=booked), body, given_up)
            except Exception as error:  # whatever it is, the tokens may be charged
                is_refused = isinstance(error, TryAgainError) and error.after is not None
                if is_refused or isinstance(error, (*_FREE, RefusedCallError)):
                    bill.cost = 0.0
                elif self._replies is not None:
                    self._replies.lose(lost, self._payee)
                raise

    def _read(self, reply: Any, body: dict[str, Any]) -> ChatReply:
        samples = [self._sample(choice, body) for choice in reply["choices"][: body.get("n", 1)]]
        if not samples:
            raise ValueError("no choices")
        return ChatReply(tuple(samples), *_counts(reply, body))

    def _sample(self, choice: dict[str, Any], body: dict[str, Any]) -> tuple[str, str]:
        finish = choice.get("finish_reason")
        if finish is None:
            raise UnfitServerError("does not say why an answer ended (finish_reason)")
        text = _text(choice["message"].get("content"))
        # A text of any length could make a row longer than those that can be read again.
        most = _TOKEN_BYTES * body["max_tokens"] + len(body["messages"][-1]["content"].encode())
        if (size := len(text.encode(errors="replace"))) > most:
            raise UnfitServerError(
                f"gives a text of {size} bytes where max_tokens allows {body['max_tokens']} tokens"
            )
        # vLLM and SGLang name the stop text in these entries, and others leave it in the text.
        for told in (choice.get("stop_reason"), choice.get("matched_stop")):
            if told in body.get("stop", ()) and not text.endswith(str(told)):
                text += str(told)
        if not isinstance(finish, str) or finish not in _ENDS:
            raise ValueError(f"finish_reason is {quoted(finish)}")
        # Lone surrogates are replaced, and the API key is masked before the text is kept.
        return self.masked(text.encode(errors="replace").decode()), _ENDS[finish]


class ReplyFile:
    """A file of replies, one per line, so that no request is paid for twice.

    A stopped run continues with all replies that were paid for, and a repeated run gives the same
    samples. A digest of address, model and body, which includes the seed, identifies a request. A
    digest of address and model, the payee, says who was paid; lines of earlier versions have none.
    The line of a request without a usable reply has no samples, and the tokens that were charged at
    most.

    Raises:
        BadInputError: the file can't be read or written.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, ChatReply] = {}
        self._paid: list[tuple[ChatReply, str | None]] = []  # with their payees
        try:
            self._file = open_to_append(path)
            # Closed, and unlocked, when nothing refers to this object any more. It stays open when
            # Python ends, for the replies of calls in progress.
            self.close = weakref.finalize(self, os.close, self._file)
            self.close.atexit = False
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise BadInputError(
                f"file of replies {str(path)!r} is in use by another process: wait for it, or give "
                "each its own"
            ) from error
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            truncate(path, self._read())
        except BaseException:
            self.close()
            raise

    def _read(self) -> int:
        """Read the replies of the file; returns the number of bytes of its whole lines."""
        whole = 0
        with reading(f"file of replies {str(self._path)!r}"):
            for line in bounded_lines(self._path, _LONGEST_LINE):
                if line.endswith(b"\n"):
                    self._take(parse_json(line))
                    whole += len(line)
                # A reply that was cut off is dropped. Any other line is an error.
                elif not line.startswith(_START) and not _START.startswith(line):
                    raise ValueError("it is not a file of replies")
        return whole

    def _take(self, entry: Any) -> None:
        counts = [entry[name] for name in ("prompt", "cached", "completion")]
        key, payee = str(entry["key"]), entry.get("payee")
        is_lost = entry["samples"] is None
        samples = tuple((str(text), str(finish)) for text, finish in entry["samples"] or ())
        if bool(samples) == is_lost or not all(finish in _ENDS for _, finish in samples):
            raise ValueError("a sample is broken")
        reply = ChatReply(samples, *map(token_count, counts))
        self._paid.append((reply, None if payee is None else str(payee)))
        if not is_lost:
            self._known[key] = reply

    def get(self, key: str) -> ChatReply | None:
        """The reply to a request, or None."""
        return self._known.get(key)

    def paid_to(self, payee: str) -> list[ChatReply]:
        """The replies of one model, and those that may be its own, lost ones included."""
        return [reply for reply, whose in self._paid if whose in (payee, None)]

    def add(self, key: str, reply: ChatReply, payee: str) -> None:
        """Keep a reply of the model `payee`.

        Raises:
            RunStoppedError: the file can't be written any more.
        """
        with self._lock:
            self._known[key] = reply
            self._paid.append((reply, payee))
            self._append({"key": key, "payee": payee, **reply._asdict()})

    def lose(self, reply: ChatReply, payee: str) -> None:
        """Keep the tokens of a request without a usable reply; raises the error of `add`."""
        with self._lock:
            self._paid.append((reply, payee))
            self._append({"key": "", "payee": payee, **reply._asdict(), "samples": None})

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            append(self._file, json.dumps(entry).encode() + b"\n")
        except OSError as error:
            raise stopped(self._path, error) from error


_OPEN: weakref.WeakValueDictionary[str, ReplyFile] = weakref.WeakValueDictionary()
"""The files of replies that this process has open, by their real paths."""


def kept_replies(path: str) -> ReplyFile:
    """The replies of a file, which all endpoints of this process share."""
    found = _OPEN.get(real := os.path.realpath(path))
    if found is None:
        _OPEN[real] = found = ReplyFile(pathlib.Path(path))
    return found


def _digest(value: Any) -> str:
    """SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _text(content: Any) -> str:
    """The text of a message: a text, null, or a list of parts, whose thoughts are left out."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part["type"] == "text")
    if not isinstance(content, str | None):
        raise TypeError(f"content is a {type(content).__name__}")
    return content or ""


def _error_in(reply: Any) -> tuple[int, str] | None:
    """Status and text of a refusal that a gateway sends with status 200; None without one."""
    error = reply.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if reply.get("choices") or type(code) is not int or not 400 <= code < 600:
        return None
    return code, f"{quoted(error)} in a reply with status 200"


def _counts(reply: Any, body: dict[str, Any]) -> tuple[int, int, int]:
    """Numbers of prompt tokens, of cached tokens among them, and of sampled tokens of all choices.

    Raises:
        UnfitServerError: the reply has no counts, or counts more tokens than could be sampled.
        KeyError, TypeError, ValueError: the reply is broken.
    """
    if not reply.get("choices"):
        raise ValueError(f"no choices, but {quoted(reply.get('error'))}")
    usage = reply.get("usage")
    if usage is None:
        raise UnfitServerError("does not count tokens (usage)")
    prompt = token_count(usage["prompt_tokens"])
    completion = token_count(usage["completion_tokens"])
    details = usage.get("prompt_tokens_details") or {}
    cached = min(prompt, token_count(details.get("cached_tokens") or 0))
    most = body.get("n", 1) * body["max_tokens"]
    if completion > 2 * most:  # a few may be counted beyond the limit
        raise UnfitServerError(f"counts {completion} sampled tokens where max_tokens allows {most}")
    return prompt, cached, completion
