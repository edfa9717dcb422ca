"""Results of searches as OpenAI's objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..live.ledger import Ledger
from ..live.results import SearchResult
from .engine import SearchProgress
from .offer import Settings

MEDIA_TYPE = "text/event-stream"


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


def details(result: SearchResult, settings: Settings, ignored: Sequence[str]) -> dict[str, Any]:
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


@dataclass(frozen=True)
class CompletionReply:
    """The reply to a request: a completion, or server-sent events in their order.

    Attributes:
        about: `id` of the request, `model` (its name) and `created` (seconds since 1970).
        settings: the settings of the search.
        ignored: parameters of the request that are ignored.
        include_usage: whether the events end with the usage.
    """

    about: Mapping[str, Any]
    settings: Settings
    ignored: Sequence[str]
    include_usage: bool

    def completion(self, result: SearchResult) -> dict[str, Any]:
        """The answer of a search as a chat completion."""
        message = {"role": "assistant", "content": content(result), "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason(result),
        }
        return {
            **self.about,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage(result.ledger),
            "cats_jax": details(result, self.settings, self.ignored),
        }

    def begin(self) -> str:
        """The first event, which names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def progress(self, progress: SearchProgress) -> str:
        """An event without text that states the progress of the search."""
        return self._chunk({}, cats_jax=asdict(progress))

    def answer(self, result: SearchResult) -> Iterator[str]:
        """The events of the answer: its text, the end, and the usage if it is requested."""
        if text := content(result):
            yield self._chunk({"content": text})
        about = details(result, self.settings, self.ignored)
        yield self._chunk({}, finish_reason(result), cats_jax=about)
        if self.include_usage:
            yield self._event(choices=[], usage=usage(result.ledger))
        yield "data: [DONE]\n\n"

    def _chunk(
        self, delta: dict[str, Any], finish_reason: str | None = None, **more: dict[str, Any]
    ) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._event(choices=[choice], **more)

    def _event(self, **more: Any) -> str:
        return as_event({**self.about, "object": "chat.completion.chunk", **more})


def as_event(value: Mapping[str, Any]) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(value, allow_nan=False)}\n\n"
