"""Bodies of `POST /v1/chat/completions`, read and checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError, from_json

from .refusals import bad_request

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

_SHOWN = 60
"""Most characters of a request's own text in an error message."""


class StreamOptions(BaseModel):
    """Options of a streamed answer.

    Attributes:
        include_usage: whether a chunk with the usage ends the stream.
        include_obfuscation: OpenAI's option to pad chunks, which has no effect here.
    """

    model_config = _STRICT

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def _joined(content: Any) -> Any:
    """The text of a list of content parts, with nothing added between them."""
    if not isinstance(content, list):
        return content
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            shown = kind[:_SHOWN] if isinstance(kind, str) else None
            raise PydanticCustomError(
                "part_type",
                "a search reads text only, and a content part has the type {type}: give parts of "
                "the type 'text'",
                {"type": repr(shown)},
            )
        if set(part) != {"type", "text"} or not isinstance(part["text"], str):
            raise PydanticCustomError(
                "part_text",
                "a content part of type 'text' must have the one field 'text', a string",
            )
        texts.append(part["text"])
    return "".join(texts)


class Message(BaseModel):
    """One message: a text, or a list of texts to be joined; lm-evaluation-harness adds `type`."""

    model_config = _STRICT

    role: Literal["system", "developer", "user"]
    content: Annotated[str, BeforeValidator(_joined)]
    type: Literal["text"] | None = None


class ChatRequest(BaseModel):
    """The request of a client; None stands for the server's default.

    Attributes:
        model: name of the served model.
        messages: one user message, after at most one system message.
        stream: whether the answer is sent as server-sent events.
        stream_options: options of the stream.
        strategy: label of a strategy.
        num_candidates: N, cap on the candidates of a step.
        budget: cap on the candidates of the search.
        price: price in units of a right answer, see `offer.Settings`.
        seed: seed of the search.
        user, metadata, safety_identifier, prompt_cache_key: labels of the client, which are not
            read.
    """

    model_config = _STRICT

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=2)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    strategy: str | None = None
    num_candidates: Annotated[int, Field(ge=1, le=256)] | None = None
    budget: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    price: Annotated[float, Field(ge=0, le=1e6)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def question(self) -> str:
        """Text of the user message."""
        return self.messages[-1].content

    @property
    def system(self) -> str | None:
        """The system message without white space around it; None without one or if it is blank."""
        return self.messages[0].content.strip() or None if len(self.messages) == 2 else None


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (False, True),
    "prediction": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "web_search_options": (),
}
"""Parameters that request another kind of reply, with the values that request nothing."""

_SAMPLING: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "max_completion_tokens": (),
    "max_tokens": (),
    "min_p": (0,),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "stop": ([],),
    "temperature": (1,),
    "top_k": (-1, 0),
    "top_p": (1,),
    "verbosity": (),
}
"""Sampling parameters, which the strategy decides, with the values that request nothing."""

SAMPLING = tuple(_SAMPLING)
"""Parameters that a server can be set to ignore: without them the reply is of the same kind."""


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request, and the parameters of it that are ignored although their values request something.

    The names are in the request's order.
    """

    request: ChatRequest
    ignored: tuple[str, ...] = ()


def parse_request(body: bytes, ignore: Collection[str] = ()) -> ParsedRequest:
    """The request in a body; the values of `ignore`, names of `SAMPLING`, are not read.

    Raises:
        RefusedRequestError: the body is not a JSON object, or a parameter is unknown, unsupported
            or wrong.
    """
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise bad_request("the body must be a JSON object with 'model' and 'messages'")
    wanted = {name: value for name, value in content.items() if not _asks_for_nothing(name, value)}
    ignored = tuple(name for name in wanted if name in ignore)
    for name in wanted:
        if name not in ignored:
            _check_meaning(name)
    try:
        request = ChatRequest.model_validate(
            {name: value for name, value in wanted.items() if name not in ignored}
        )
    except ValidationError as error:
        raise _described(error) from error
    roles = [message.role for message in request.messages]
    if roles[-1] != "user" or "user" in roles[:-1]:
        raise bad_request(
            "messages must be one user message, after at most one system message: a search answers "
            "one question, so write the whole question into it",
            "messages",
        )
    return ParsedRequest(request, ignored)


def _asks_for_nothing(name: str, value: Any) -> bool:
    """Whether the request means the same without the parameter."""
    if name in ("model", "messages"):
        return False
    neutral = _NEUTRAL.get(name, ()) + _SAMPLING.get(name, ())
    return value is None or any(_same(value, each) for each in neutral)


def _check_meaning(name: str) -> None:
    """Refuse a parameter that has no meaning in a search."""
    if name in _SAMPLING:
        raise bad_request(
            f"{name} has no meaning in a search, whose strategy decides how steps are sampled: "
            f"leave it out, or start the server with --ignore-sampling {name}",
            name,
        )
    if name in _NEUTRAL:
        raise bad_request(
            f"{name} has no meaning in a search: leave it out; a search takes strategy, "
            "num_candidates, budget, price and seed",
            name,
        )


def _same(value: Any, neutral: Any) -> bool:
    # In Python True is 1.
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _described(error: ValidationError) -> Exception:
    """The refusal of the first error, described in a sentence."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part)[:_SHOWN] for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return bad_request(f"unknown parameter {where!r}: leave it out", where)
    if first["type"] == "missing":
        return bad_request(f"parameter {where!r} is missing: add it", where)
    if where == "messages" and first["type"] == "too_long":
        return bad_request(
            "messages must be one user message, after at most one system message: a search answers "
            "one question",
            where,
        )
    message = first["msg"][0].lower() + first["msg"][1:]
    return bad_request(f"parameter {where!r}: {message}", where)
