"""Base of policies that send prompts of their own, as questions, to another policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ..protocols import (
    AnswerGeneration,
    Generation,
    Question,
    Step,
    StepGenerator,
    StepRequest,
    StepSample,
    TokenUsage,
    seconds_of,
)
from .calls import can_read, generate
from .proxies import GeneratorProxy


@dataclass(frozen=True, slots=True)
class Made:
    """What one request to a policy gave and cost."""

    samples: list[StepSample]
    usage: TokenUsage
    seconds: float
    sample_usage: list[TokenUsage] | None = None


def parts_of(
    made: Generation | AnswerGeneration, samples: Sequence[list[StepSample]]
) -> Iterator[Made]:
    """What each request of a call gave and cost."""
    each = made.sample_usage or [None] * len(samples)
    return map(Made, samples, made.usage, seconds_of(made), each)


class PromptProxy(GeneratorProxy[StepGenerator]):
    """A policy that sends another one prompts of its own beside the questions."""

    def ask(
        self, requests: Sequence[StepRequest], known: set[Question]
    ) -> tuple[list[Made], float]:
        """What each request gives, in one call of the policy, and the seconds inside it.

        The questions of the search, `known`, fit; all others are prompts.
        """
        fits = [
            i
            for i, request in enumerate(requests)
            if request.question in known or can_read(self._model, request.question)
        ]
        asked = [requests[i] for i in fits]
        try:
            made = generate(self._model, asked) if asked else Generation([], [], 0.0)
        finally:
            for question in dict.fromkeys(request.question for request in asked):
                if question not in known:
                    self._model.keep_only(question, ())
        found = dict(zip(fits, parts_of(made, made.samples), strict=True))
        cut, free = StepSample(Step("", ()), "context", 0.0), TokenUsage()
        return [
            found.get(i) or Made([cut] * (n := len(request.seeds)), free, 0.0, [free] * n)
            for i, request in enumerate(requests)
        ], made.inside_seconds


def as_question(question: Question, text: str) -> Question:
    """A prompt as a question; its id differs from those of all open questions and prompts."""
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return Question(f"prompt for {question.id}: {digest}", text, question.system)
