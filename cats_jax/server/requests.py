"""Bodies of `POST /v1/chat/completions`, read and checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from .refusals import bad_request

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

_SHOWN = 60
"""Most characters of a request's own text in an error message."""


class StreamOptions(BaseModel):
    """Options of a streamed answer.

    Attributes:
        include_usage: whether a chunk with the usage ends the stream.
        include_obfuscation: OpenAI's padding of chunks; there is none.
    """

    model_config = _STRICT

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Message(BaseModel):
    """One message of the conversation."""

    model_config = _STRICT

    role: Literal["system", "developer", "user"]
    content: str


class ChatRequest(BaseModel):
    """What a client asks for; None is the server's default.

    Attributes:
        model: name of the served model.
        messages: one user message, after at most one system message.
        stream: whether the answer is sent as server-sent events.
        stream_options: options of the stream.
        strategy: label of a strategy.
        num_candidates: N, cap on the candidates of a step.
        budget: cap on the candidates of the search.
        price: price of 100 candidates in units of a right answer.
        seed: seed of the search.
        user, metadata, safety_identifier, prompt_cache_key: labels of the client's, not read.
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
        """Text of the system message without white space around it, or None."""
        return self.messages[0].content.strip() if len(self.messages) == 2 else None


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "max_completion_tokens": (),
    "max_tokens": (),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (False, True),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "stop": ([],),
    "store": (False,),
    "temperature": (1,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1,),
    "verbosity": (),
    "web_search_options": (),
}
"""OpenAI's parameters that a search has no use for, with the values that ask for nothing."""


def parse_request(body: bytes) -> ChatRequest:
    """The request in a body.

    Raises:
        RefusedError: the body is no JSON object, or a parameter is unknown, unsupported or wrong.
    """
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise bad_request("the body must be a JSON object with 'model' and 'messages'")
    try:
        request = ChatRequest.model_validate(_without_neutral(content))
    except ValidationError as error:
        raise _described(error) from error
    roles = [message.role for message in request.messages]
    if roles[-1] != "user" or "user" in roles[:-1]:
        raise bad_request(
            "messages must be one user message, after at most one system message: a search answers "
            "one question, so write the whole question into it",
            "messages",
        )
    return request


def _without_neutral(content: dict[str, Any]) -> dict[str, Any]:
    """The parameters that ask for something."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if value is None and name not in ("model", "messages"):
            continue
        if name not in _NEUTRAL:
            found[name] = value
        elif not any(_same(value, neutral) for neutral in _NEUTRAL[name]):
            raise bad_request(
                f"{name} has no meaning in a search: leave it out; a search takes strategy, "
                "num_candidates, budget, price and seed",
                name,
            )
    return found


def _same(value: Any, neutral: Any) -> bool:
    # In Python True is 1.
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _described(error: ValidationError) -> Exception:
    """The first thing that is wrong, in a sentence."""
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
