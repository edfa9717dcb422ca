"""Engines behind a server: OpenAI's completions and vLLM's `/classify`, token ids in and out.

Start one with, for example,

    python -m vllm.entrypoints.openai.api_server --model FOLDER --enable-prompt-tokens-details

A call is repeated if the connection fails, the server is busy or restarting, or the reply is
broken. Samples have seeds, so a repeated call requests the same samples. When `patience` has run
out, the run stops; a new start continues it. A failure that another try would not change is an
error at once: a status such as 401 or 404, or a reply that shows that the server is of another
kind.
"""

from __future__ import annotations

import email.utils
import json
import math
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx
import tenacity

from ...errors import BadInputError, ModelContractError, RunStoppedError, quoted
from ...specs.models import ModelSpec
from ...storage.reading import parse_json
from ..backend import read_api_key
from .call_threads import CallThreads
from .token_engine import (
    NO_EFFECT,
    Classified,
    ClassifiedSteps,
    SampleRequest,
    TokenSample,
    by_beginnings,
)

_PROMPTS_PER_CALL = 64
"""Largest number of prompts in one call for scores."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 15.0
"""Seconds before the second try, and the longest time between later tries."""

MOST_BYTES = 1 << 26
"""Largest number of bytes of a reply: 64 MiB."""

_MOST_TOKENS = 1 << 31
"""Every valid count of tokens is below this."""

_TRIES = 3
"""Least number of tries before a call is given up, however long they take."""

_SHOWN_MODELS = 10
"""Largest number of names of models in a message; a gateway may list hundreds."""

_BUSY = (408, 425, 429)
"""Statuses below 500 after which a call is repeated."""

_NEVER = (501, 505)
"""Statuses from 500 that another try would not change."""

_LEAST_SECRET = 16
"""An API key of at least this many characters is treated as a secret."""

_UNPAID = 402

_NO_KEY = (401, 403)
"""Statuses of a server that requires an API key, or another key."""

_KEPT_BY_SGLANG = 7
"""Tokens of its context that SGLang keeps to itself.

It refuses a prompt of its context less 6 tokens, see `max_req_input_len` in its tp_worker.py.
"""

_WANTED = (
    "a policy's server must be vLLM 0.10.2 or later, or another one whose /v1/completions takes "
    "token ids and honours return_token_ids, n, seed and stop_token_ids; vLLM is started with "
    "--runner generate"
)

NO_LOG_PROBS = "gives no log-probabilities (most searches also run with log_probs: false)"

_COMPRESSED = ("gzip", "deflate", "br", "zstd")
"""Content encodings that httpx may decode.

Only gzip is accepted: 64 KiB in brotli, zstd or two encodings may inflate to gigabytes.
"""

_GLANCE = 0.5
"""Seconds after which a thread that waits sees that there is no use in waiting."""

_SPARE = 10.0
"""Seconds in which a thread must have read a late reply, once this is seen."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Route(Generic[T]):
    """A route of a server, and how its replies are read.

    Attributes:
        path: path of the route.
        read: `(reply, body) -> value`, where `body` is the body as posted. It raises KeyError,
            TypeError, IndexError or ValueError for a broken reply, after which the call is
            repeated, and `UnfitServerError` for a reply that another try would not change.
        hint: requirements on the server, for error messages.
        final: statuses after which a call is not repeated, even if it is repeated elsewhere.
    """

    path: str
    read: Callable[[Any, dict[str, Any]], T]
    hint: str
    final: Container[int] = ()


class ServerClient:
    """Calls to one server, many at a time.

    Args:
        url: address of the server without a path, such as "http://localhost:8000".
        model: name of the model on the server; None: the only model served.
        api_key_env: name of the environment variable that holds the server's API key; None: the
            server requires no key. The key appears in no message and no manifest.
        context: largest number of tokens in a sequence that this package sends.
        concurrency: largest number of calls at a time, each on its own connection.
        timeout: limit in seconds for each network operation of a call, and for a whole reply.
        patience: least number of seconds of tries before a call is given up.

    Attributes:
        url: address of the server, without a slash at the end.
        model: name of the model on the server.
        card: entry of the model in the server's `/v1/models`; empty if it was not read.

    Raises:
        BadInputError: the server can't be reached, does not serve the model, or serves it with less
            context. Also, the server serves several models and `model` is None, or the key is
            missing.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key_env: str | None = None,
        context: int,
        concurrency: int = 64,
        timeout: float = 600.0,
        patience: float = 300.0,
    ):
        if not url.startswith(("http://", "https://")):
            raise BadInputError(f"server {url!r}: must begin with http:// or https://")
        # Addresses for clients of OpenAI's API end in /v1.
        self.url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        self._api_key_env = api_key_env
        self._key = None if api_key_env is None else read_api_key(api_key_env)
        self._patience = patience
        self._timeout = timeout
        self._given_up_at = -math.inf
        self._fatal: str | None = None
        self._ends: dict[int, float] = {}  # of threads that read a reply: when it must have failed
        self._late: dict[float, float] = {}  # of such times that have passed: when this was seen
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        headers = {"Accept-Encoding": "gzip"}
        headers |= {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        try:
            self._client = httpx.Client(
                base_url=self.url, headers=headers, timeout=timeout, limits=limits
            )
        except httpx.InvalidURL as error:
            raise BadInputError(f"server {url!r} is not an address: {error}") from error
        self._pool = CallThreads(concurrency)
        self.card: dict[str, Any] = {}
        # Closes also when nothing refers to this server any more, such as after a change of PRM.
        self._closing = weakref.finalize(self, _close, self._client, self._pool)
        try:
            self.model = self._check(model, context)
        except BaseException:
            self._pool.abandoned.set()  # nothing to wait for
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._closing()

    @property
    def is_sglang(self) -> bool:
        """Whether the server says that it is SGLang, in its `/v1/models`."""
        return self.card.get("owned_by") == "sglang"

    def post_all(self, route: Route[T], bodies: Sequence[dict[str, Any]]) -> list[T]:
        """Post JSON objects concurrently and return the values read from the replies, in order.

        Raises:
            BadInputError: the server refuses a call, or a reply shows that it does not fit.
            RunStoppedError: a call failed until `patience` had run out.
        """
        asked_at = time.monotonic()
        return self._map(lambda body: self._post(route, body, asked_at), bodies)

    def _map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The values of `function(item)` for all items, called concurrently, in order.

        Raises:
            RunStoppedError: the headers of a reply do not end, or calls are abandoned.
        """
        begun = time.monotonic()
        try:
            return self._pool.map(function, items, self._check_headers)
        except ModelContractError:
            raise
        except BaseException as error:
            if isinstance(error, RefusedCallError) and self._is_of_one(error):
                raise
            # A call may have ended because of another one's error, which says more.
            first = self._fatal if self._given_up_at > begun else None
            if isinstance(error, RunStoppedError) and first is not None:
                raise BadInputError(first) from None
            self._give_up(error)
            raise

    def _is_of_one(self, error: RefusedCallError, final: Container[int] = ()) -> bool:
        """Whether a refusal concerns its own question or try only, and not the run."""
        status = error.status
        return status is not None and (status in self._of_question or status in final)

    def _give_up(self, error: BaseException) -> None:
        """Make no call any more that waits for its turn or for its next try."""
        # Not the error itself, whose traceback would keep this object alive.
        self._fatal = str(error) if isinstance(error, BadInputError) else None
        self._given_up_at = time.monotonic()

    def _check_headers(self) -> None:
        # httpx limits the time of each read, of which endless headers need any number. A process
        # that was stopped for a while first reads what has arrived.
        now = time.monotonic()
        ends = list(self._ends.values())
        self._late = {end: self._late.get(end, now) for end in ends if now > end}
        if any(now - seen > min(_SPARE, self._timeout) for seen in self._late.values()):
            self._pool.abandoned.set()
            raise RunStoppedError(
                f"server {self.url}: the headers of a reply did not end in {2 * self._timeout:.0f} "
                "s: check the server and start again, nothing is lost"
            )

    def _post(self, route: Route[T], body: dict[str, Any], asked_at: float) -> T:
        def given_up() -> bool:
            """Whether calls are abandoned, or one has failed for good since this was asked."""
            return self._pool.abandoned.is_set() or self._given_up_at > asked_at

        failed_at: list[float] = []
        errors: list[BaseException | None] = []
        turns = [0.0]  # seconds of waiting for a turn, which cost no patience

        def attempt() -> T:
            if not given_up():
                turns[0] += self._wait_for_turn(given_up)
            if given_up():
                raise errors[-1] if errors and errors[-1] else self.stopped_waiting()
            return self._post_once(route, body, given_up)

        def tried(state: tenacity.RetryCallState) -> bool:
            # One try that hangs may outlast the patience, so a number of tries must be reached.
            failed_at.append(time.monotonic() - turns[0])
            errors.append(state.outcome and state.outcome.exception())
            return state.attempt_number >= _TRIES and failed_at[-1] - failed_at[0] >= self._patience

        pause = tenacity.wait_exponential_jitter(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((httpx.RequestError, TryAgainError)),
            wait=lambda state: max(pause(state), _asked_wait(state)),
            stop=lambda state: tried(state) or given_up() or _asked_wait(state) > self._patience,
            sleep=lambda seconds: wait_unless(given_up, seconds),
            reraise=True,
        )
        try:
            return retrying(attempt)
        except (httpx.RequestError, TryAgainError) as error:
            stopped = RunStoppedError(
                f"server {self.url}: no good reply from {route.path} in "
                f"{failed_at[-1] - failed_at[0]:.0f} s ({self.without_key(error)}): check the "
                "server and start again, nothing is lost"
            )
            if not given_up():
                self._give_up(stopped)
            raise stopped from error
        except (BadInputError, RunStoppedError) as error:
            of_one = isinstance(error, RefusedCallError) and self._is_of_one(error, route.final)
            if not of_one and not given_up():
                self._give_up(error)
            raise

    _of_question: Container[int] = ()
    """Statuses by which a request fails that concern its question only."""

    def _wait_for_turn(self, given_up: Callable[[], bool]) -> float:
        """Wait until a call may be sent; returns the seconds."""
        return 0.0

    def _post_once(self, route: Route[T], body: dict[str, Any], given_up: Callable[[], bool]) -> T:
        path, hint = route.path, route.hint
        status, headers, content = self._whole_reply("POST", path, hint, body)
        if status != 200:
            after = _seconds(headers.get("Retry-After"))
            raise self.refusal(route, status, content.decode(errors="replace"), after)
        if content.lstrip()[:1] == b"<":
            raise BadInputError(f"server {self.url} answers {path} with a web page: {hint}")
        try:
            return route.read(parse_json(content), body)
        except UnfitServerError as error:
            ways = error.way_out or hint
            raise BadInputError(f"server {self.url} {self.without_key(error)}: {ways}") from error
        except (BadInputError, TryAgainError):
            raise
        # The content may cause KeyError, TypeError, OverflowError, RecursionError and more.
        except Exception as error:
            raise TryAgainError(f"an incomplete reply ({self.without_key(error)})") from error

    def stopped_waiting(self) -> RunStoppedError:
        """The error of a call that is not made, because another one has failed for good."""
        return RunStoppedError(
            f"server {self.url}: stopped waiting for it: check the server and start again"
        )

    def refusal(
        self, route: Route[Any], status: int, text: str, after: float = 0.0
    ) -> TryAgainError | RefusedCallError:
        """The error of a call that was refused with a status other than 200.

        Args:
            text: what the server says of it.
            after: seconds that it requests before the next try, 0 if it names no time.
        """
        passes = status in _BUSY or (status >= 500 and status not in _NEVER)
        if passes and status not in route.final:
            asked = f", try again in {after:.0f} s" if after else ""
            return TryAgainError(f"status {status}{asked}", after=after)
        way_out = route.hint
        if status in _NO_KEY:
            way_out = self._way_to_a_key()
        elif status == _UNPAID:
            way_out = "it wants to be paid: add credit to the account and start again"
        return RefusedCallError(
            f"server {self.url} refuses {route.path} with status {status} "
            f"({self.without_key(text.strip() or 'no text')}): {way_out}",
            status,
        )

    def _whole_reply(
        self, method: str, path: str, hint: str, body: dict[str, Any] | None = None
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and content of the reply to one call, within bounds of size and time."""
        until = time.monotonic() + self._timeout
        self._ends[threading.get_ident()] = until + self._timeout
        content = bytearray()
        try:
            with self._client.stream(method, path, json=body) as response:
                encodings = response.headers.get_list("Content-Encoding", split_commas=True)
                coded = [each.strip().lower() for each in encodings]
                if [each for each in coded if each in _COMPRESSED] not in ([], ["gzip"]):
                    raise BadInputError(
                        f"server {self.url} answers {path} in a content encoding other than gzip: "
                        f"{hint}"
                    )
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > MOST_BYTES:
                        raise BadInputError(
                            f"server {self.url} answers {path} with more than "
                            f"{MOST_BYTES >> 20} MiB: {hint}"
                        )
                    # A server that sends a byte now and then stays within each operation's limit.
                    if time.monotonic() > until:
                        raise httpx.ReadTimeout(f"no whole reply in {self._timeout:.0f} s")
        finally:
            del self._ends[threading.get_ident()]
        return response.status_code, response.headers, bytes(content)

    def get(self, path: str, read: Callable[[Any], T], hint: str) -> T:
        """The value read from the reply to one call without a body, which is not repeated.

        Args:
            path: path of the route.
            read: reads the value from the reply; any error says that the server can't be used.
            hint: requirements on the server, for the error message.

        Raises:
            BadInputError: there is no reply, or not the expected one; or `read` raises it.
            RunStoppedError: the headers of the reply do not end.
        """
        try:
            ((status, _, content),) = self._map(
                lambda path: self._whole_reply("GET", path, hint), [path]
            )
            if status in _NO_KEY:
                raise BadInputError(
                    f"server {self.url} refuses {path} with status {status}: {self._way_to_a_key()}"
                )
            if status != 200:
                raise ValueError(f"status {status}")
            return read(parse_json(content))
        except (BadInputError, RunStoppedError):
            raise
        except Exception as error:
            raise BadInputError(
                f"server {self.url} can't be used ({self.without_key(error)}): {hint}"
            ) from error

    def _check(self, model: str | None, context: int) -> str:
        served = self.get(
            "/v1/models",
            lambda reply: {str(entry["id"]): dict(entry) for entry in reply["data"]},
            "check the address, and that it serves OpenAI's API",
        )
        names = ", ".join([*list(served)[:_SHOWN_MODELS], *["..."] * (len(served) > _SHOWN_MODELS)])
        if model is None and len(served) > 1:
            raise BadInputError(
                f"server {self.url} serves {len(served)} models, {names}: name the one to use by "
                "served_name"
            )
        if model is None and served:
            model = next(iter(served))
        if model not in served:
            raise BadInputError(
                f"server {self.url} does not serve {model or 'a model'!r}: it has "
                f"{names or 'none'}; served_name names one of its models"
            )
        self.card = served[model]
        # The card of an adapter may leave the context out.
        base = served.get(str(self.card.get("parent")), {})
        length = self.card.get("max_model_len") or base.get("max_model_len")
        if type(length) is int and length > 0:
            self._check_context(str(model), length, context)
        return str(model)

    def _check_context(self, model: str, length: int, needed: int) -> None:
        length -= _KEPT_BY_SGLANG if self.is_sglang else 0
        if length >= needed:
            return
        # Servers refuse an option above the context of the model that they serve.
        kept, option = "", f"--max-model-len {needed}, if its model has that context"
        if self.is_sglang:
            kept = f" (SGLang keeps {_KEPT_BY_SGLANG} tokens of its context)"
            option = "a longer --context-length if the model has one"
        raise BadInputError(
            f"server {self.url} serves {model!r} with a context of {length} tokens, {needed} are "
            f"needed: set max_model_len to {length} in the recipe{kept}, or start it with {option}"
        )

    def _way_to_a_key(self) -> str:
        """What to do about a server that refuses the API key, or the lack of one."""
        if self._api_key_env is None:
            return "set api_key_env to the name of the environment variable that holds its API key"
        return f"check the API key in the environment variable {self._api_key_env}"

    def without_key(self, text: object) -> str:
        """A text in one line, without the API key, which some servers quote.

        The text of an error without a message is the name of its class.
        """
        said = str(text).strip() or type(text).__name__
        return _one_line(said if self._key is None else said.replace(self._key, "***"))

    def masked(self, sample: str) -> str:
        """A sampled text with asterisks in place of the API key, unless the key is short.

        A text may contain a short key, such as the "1" or "EMPTY" of a private server, by chance.
        """
        secret = self._key is not None and len(self._key) >= _LEAST_SECRET
        return sample.replace(str(self._key), "***") if secret else sample


def client_settings(spec: ModelSpec) -> dict[str, Any]:
    """The settings of a recipe's model that a `ServerClient` takes, if they are given."""
    found = {"api_key_env": spec.api_key_env, "timeout": spec.max_reply_seconds}
    return {name: value for name, value in found.items() if value is not None}


class HTTPSampler:
    """`Sampler` on a server's `/v1/completions`, with vLLM's additions for token ids.

    All samples of a prompt are one call with one seed, from which the server derives the seed of
    each sample, so the first samples do not depend on the number of samples.

    Args:
        server: the server of the policy.
        log_probs: whether requests include log-probabilities.
    """

    concurrent = True
    _route, _wanted = "/v1/completions", _WANTED

    def __init__(self, server: ServerClient, *, log_probs: bool = True):
        self._server = server
        self._log_probs = log_probs
        self._honours_n = False

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[TokenSample]]:
        """All samples of all requests, in order."""
        bodies = [self._body(request) for request in requests]
        answers = self._server.post_all(Route(self._route, self._read, self._wanted), bodies)
        # Greedy samples are all the same; servers refuse requests for more than one.
        return [
            answer[0].copies(request.prompt, len(request.seeds))
            if request.temperature == 0
            else answer
            for request, answer in zip(requests, answers, strict=True)
        ]

    def _body(self, request: SampleRequest) -> dict[str, Any]:
        completion = _completion(request, log_probs=self._log_probs)
        return {"model": self._server.model, **completion}

    def _read(self, reply: Any, body: dict[str, Any]) -> list[TokenSample]:
        choices = sorted(reply["choices"], key=lambda choice: choice["index"])
        # A server that has honoured n before may still lose a sample.
        if len(choices) == 1 < body["n"] and not self._honours_n:
            raise UnfitServerError(f"gives 1 sample where {body['n']} were asked for (n)")
        if len(choices) != body["n"]:
            raise ValueError(f"{len(choices)} of {body['n']} samples")
        if [choice["index"] for choice in choices] != list(range(body["n"])):
            raise UnfitServerError("does not number its samples from 0 (index)")
        self._honours_n |= body["n"] > 1
        details = (reply.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = min(len(body["prompt"]), token_count(details.get("cached_tokens") or 0))
        return [_sampled(choice, body, cached) for choice in choices]


class HTTPClassifier:
    """`Classifier` on vLLM's `/classify`.

    Args:
        server: the server of the PRM.
        overrides: value that the server's `--hf-overrides` must have, see
            `vllm_engine.classifier_overrides`; quoted in error messages.
    """

    concurrent = True
    _route = "/classify"

    def __init__(self, server: ServerClient, overrides: dict[str, Any]):
        self._server = server
        self._wanted = (
            "start it with --runner pooling --convert classify --hf-overrides "
            f"'{json.dumps(overrides, ensure_ascii=False)}'"
        )

    def classify(self, prompts: Sequence[tuple[int, ...]]) -> list[Classified]:
        """The score of every prompt, in order."""
        parts = [
            list(map(list, prompts[start : start + _PROMPTS_PER_CALL]))
            for start in range(0, len(prompts), _PROMPTS_PER_CALL)
        ]
        bodies = [self._body(part) for part in parts]
        replies = self._server.post_all(Route(self._route, self._read, self._wanted), bodies)
        return [classified for reply in replies for classified in reply]

    def classify_steps(
        self, prompts: Sequence[tuple[int, ...]], ends: Sequence[Sequence[int]]
    ) -> list[ClassifiedSteps]:
        """The scores of several beginnings of every prompt; see `Classifier`."""
        return by_beginnings(self.classify, prompts, ends)

    def _body(self, prompts: list[list[int]]) -> dict[str, Any]:
        return {"model": self._server.model, "input": prompts}

    def _read(self, reply: Any, body: dict[str, Any]) -> list[Classified]:
        if "data" not in reply or any("probs" not in entry for entry in reply["data"]):
            raise UnfitServerError("gives no 'probs' to /classify")
        data = sorted(reply["data"], key=lambda entry: entry["index"])
        if [entry["index"] for entry in data] != list(range(len(body["input"]))):
            raise ValueError(f"{len(data)} of {len(body['input'])} scores")
        for entry in data:
            if len(entry["probs"]) != 1:
                raise UnfitServerError(
                    f"gives {len(entry['probs'])} numbers for a path, not a score"
                )
        return [Classified(number(entry["probs"][0]), 0) for entry in data]


class UnfitServerError(RuntimeError):
    """A reply that another try would not change; the message says what the server does wrong.

    Attributes:
        way_out: what to do about it; None: what the route requires of a server.
    """

    def __init__(self, message: str, *, way_out: str | None = None):
        super().__init__(message)
        self.way_out = way_out


class RefusedCallError(BadInputError):
    """A server has refused a call by its status, which is None while a copy is unpickled."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


class TryAgainError(RuntimeError):
    """A call failed, and another try may succeed.

    Attributes:
        after: seconds that the server requests before the next try, 0 if it names no time; None
            unless the server has refused the call by its status.
    """

    def __init__(self, message: str, *, after: float | None = None):
        super().__init__(message)
        self.after = after


def wait_unless(given_up: Callable[[], bool], seconds: float) -> None:
    """Wait, but no longer than until there is no use in waiting."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not given_up():
        time.sleep(min(left, _GLANCE))


def _completion(request: SampleRequest, *, log_probs: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt": list(request.prompt),
        "n": 1 if request.temperature == 0 else len(request.seeds),
        "seed": request.seeds[0] >> 1,  # the server's seeds are signed
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        **NO_EFFECT,
        "max_tokens": request.max_tokens,
        "stop_token_ids": list(request.stop_ids),
        "ignore_eos": True,  # stop_token_ids has all stops
        "return_token_ids": True,
    }
    if request.step_end is not None and request.step_end.is_split:
        # Several tokens may spell the separator, so the server looks for it in their text.
        body |= {
            "stop": list(request.step_end.text.texts),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
        }
    return body | {"logprobs": 0} if log_probs else body


def _sampled(choice: dict[str, Any], body: dict[str, Any], cached: int) -> TokenSample:
    """One sample of a reply; see `checked_sample` for the errors."""
    if choice.get("token_ids") is None:
        raise UnfitServerError("gives no 'token_ids' with its samples (return_token_ids)")
    log_probs = None
    if "logprobs" in body:
        if choice.get("logprobs") is None:
            raise UnfitServerError(NO_LOG_PROBS)
        log_probs = choice["logprobs"]["token_logprobs"]
    sample = checked_sample(
        choice["token_ids"], choice["finish_reason"], log_probs, cached, body, body["max_tokens"]
    )
    if sample.stopped and "stop" not in body and sample.ids[-1] not in body["stop_token_ids"]:
        raise UnfitServerError(
            "ends a sample at a token that was not requested, or leaves out the one that was "
            "(stop_token_ids)"
        )
    if not sample.stopped and len(sample.ids) < body["max_tokens"]:
        raise UnfitServerError(
            f"ends a sample at {len(sample.ids)} of {body['max_tokens']} tokens",
            way_out="max_new_tokens in generation_config.json limits samples on some releases of "
            "vLLM, which are then started with --generation-config vllm; if the server's context "
            "is too short, set a smaller max_model_len in the recipe",
        )
    return sample


def checked_sample(
    ids: Any, finish: Any, log_probs: Any, cached: int, asked: dict[str, Any], max_tokens: int
) -> TokenSample:
    """A sample of a server's reply, checked against the request.

    Args:
        ids: token ids; they and the next two values are as the server gave them.
        finish: why the sample ended.
        log_probs: log-probabilities of the tokens; None if they were not requested.
        cached: see `TokenSample`.
        asked: `stop_token_ids` of the request, and `stop` if stop texts were requested.
        max_tokens: largest number of tokens.

    Raises:
        UnfitServerError: the server has not honoured the request.
        TypeError, ValueError: the sample is broken.
    """
    ids = tuple(ids)
    if not all(type(token) is int and 0 <= token < 1 << 31 for token in ids):
        raise ValueError("a token id is not an integer of the vocabulary")
    if not ids or finish not in ("stop", "length"):
        raise ValueError(f"a sample of {len(ids)} tokens that ends with {finish!r}")
    if len(ids) > max_tokens or not set(ids[:-1]).isdisjoint(asked["stop_token_ids"]):
        raise UnfitServerError("samples beyond max_tokens or stop_token_ids")
    if log_probs is not None:
        log_probs = tuple(map(number, log_probs))
        if len(log_probs) != len(ids):
            raise ValueError(f"{len(log_probs)} log-probabilities of {len(ids)} tokens")
    return TokenSample(ids, finish == "stop", log_probs, cached)


def number(value: Any) -> float:
    """A number of a reply; TypeError for another value, such as the text of a number."""
    if type(value) not in (int, float):
        raise TypeError(f"{quoted(value)} is not a number")
    return float(value)


def token_count(value: Any) -> int:
    """A number of tokens in a reply; ValueError for another value."""
    if type(value) is not int or not 0 <= value < _MOST_TOKENS:
        raise ValueError(f"{quoted(value)} is not a number of tokens")
    return value


def _asked_wait(state: tenacity.RetryCallState) -> float:
    """Seconds that the server requests before the next try, 0 by default."""
    error = None if state.outcome is None else state.outcome.exception()
    return (error.after or 0.0) if isinstance(error, TryAgainError) else 0.0


def _seconds(retry_after: str | None) -> float:
    """The seconds of a header Retry-After, a number or a date; 0 if it is missing or unreadable."""
    try:
        found = float(retry_after or 0)
    except ValueError:
        try:
            at = email.utils.parsedate_to_datetime(str(retry_after)).timestamp()
        except (ValueError, OverflowError, OSError):
            return 0.0
        found = at - time.time()
    return found if found > 0 else 0.0  # also for NaN


def _close(client: httpx.Client, pool: CallThreads) -> None:
    pool.close()
    client.close()


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:197] + "..."
