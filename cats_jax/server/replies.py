"""Results of searches as OpenAI's objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ..live.ledger import Ledger
from ..live.results import SearchResult
from .engine import Progress
from .offer import Settings

MEDIA_TYPE = "text/event-stream"


def completion(
    result: SearchResult,
    settings: Settings,
    ignored: Sequence[str] = (),
    *,
    id: str,
    model: str,
    created: int,
) -> dict[str, Any]:
    """The answer of a search as a chat completion.

    `id` is the request's, `model` the model's name, and `created` the seconds since 1970; `ignored`
    are parameters of the request that were ignored.
    """
    message = {"role": "assistant", "content": content(result), "refusal": None}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason(result),
    }
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage(result.ledger),
        "cats_jax": details(result, settings, ignored),
    }


def content(result: SearchResult) -> str:
    """The steps of the path that gave the answer, with a blank line between them; "" if none."""
    return "" if result.chosen is None else "\n\n".join(result.paths[result.chosen].steps)


def finish_reason(result: SearchResult) -> str:
    """`stop` for a search that ended by itself, `length` for one that a limit or failure ended."""
    return "stop" if result.status in ("answered", "no_answer") else "length"


def usage(ledger: Ledger) -> dict[str, Any]:
    """Tokens of the policy as OpenAI counts them, and the whole ledger.

    Prompt tokens are all that the policy read in all its calls, those from its cache included.
    """
    prompt = ledger.prompt_computed + ledger.prompt_cached
    return {
        "prompt_tokens": prompt,
        "completion_tokens": ledger.generated,
        "total_tokens": prompt + ledger.generated,
        "prompt_tokens_details": {"cached_tokens": ledger.prompt_cached},
        "cats_jax": ledger.as_dict(),
    }


def details(
    result: SearchResult, settings: Settings, ignored: Sequence[str] = ()
) -> dict[str, Any]:
    """Details of a search for which a chat completion has no field."""
    path = None if result.chosen is None else result.paths[result.chosen]
    return {
        "answer": result.answer,
        "status": result.status,
        "reason": result.reason,
        "path_score": None if path is None else path.path_score,
        "step_scores": None if path is None else path.step_scores,
        "steps": result.steps,
        "finished_paths": len(result.paths),
        "strategy": settings.strategy,
        "num_candidates": settings.num_candidates,
        "budget": settings.budget,
        "price": settings.price,
        "seed": settings.seed,
        "ignored": list(ignored),
        "guarantee": None if settings.guarantee is None else settings.guarantee.as_dict(),
    }


class Chunks:
    """The server-sent events of one streamed answer."""

    def __init__(self, *, id: str, model: str, created: int) -> None:
        self._common = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }

    def begin(self) -> str:
        """The first event, which names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def progress(self, progress: Progress) -> str:
        """An event without text that states the progress of the search."""
        return self._chunk({}, cats_jax={
            "step": progress.step,
            "candidates": progress.candidates,
            "tokens": progress.tokens,
        })  # fmt: skip

    def answer(
        self,
        result: SearchResult,
        settings: Settings,
        ignored: Sequence[str] = (),
        *,
        include_usage: bool,
    ) -> Iterator[str]:
        """The events of the answer: its text, the end, and the usage if it is requested."""
        if text := content(result):
            yield self._chunk({"content": text})
        yield self._chunk({}, finish_reason(result), cats_jax=details(result, settings, ignored))
        if include_usage:
            yield _event({**self._common, "choices": [], "usage": usage(result.ledger)})
        yield "data: [DONE]\n\n"

    def error(self, error: dict[str, Any]) -> str:
        """The event of a search that the server could not finish."""
        return _event(error)

    def _chunk(
        self, delta: dict[str, Any], finish_reason: str | None = None, **more: dict[str, Any]
    ) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event({**self._common, "choices": [choice], **more})


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, allow_nan=False)}\n\n"
