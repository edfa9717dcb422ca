"""Interfaces of serving engines: token ids in, token ids or scores out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...protocols import TokenUsage, total_usage
from ..prompts.step_text import StepEnd

NO_EFFECT = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Sampling parameters without effect; vLLM takes others from generation_config.json by default."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Samples that continue one prompt with the same parameters.

    Attributes:
        prompt: token ids of the prompt.
        seeds: in 0..2**64 - 1, one per sample.
        temperature: >= 0; 0 is greedy.
        top_p: in (0, 1].
        top_k: >= 0; 0 switches it off.
        max_tokens: largest number of tokens of a sample, >= 1.
        stop_ids: tokens that end a sample; the sample includes the token that ended it.
        certain: whether to report the certainty "top" of each token, see `TokenCertainty`; True
            only for an engine with `reports_top`.
        step_end: the rule by which a step ends; None samples on. An engine may ignore it and waste
            tokens: the caller cuts a sample where it closes, and continues one that ended too
            early.
    """

    prompt: tuple[int, ...]
    seeds: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    stop_ids: tuple[int, ...]
    step_end: StepEnd | None = None
    certain: bool = False


@dataclass(frozen=True, slots=True)
class TokenSample:
    """One sample.

    Attributes:
        ids: token ids of the sample; if `stopped`, the last one is a stop id, or one that
            completes the separator of steps.
        stopped: whether that ended the sample; False if it was cut at `max_tokens`.
        log_probs: log-probability of each token at temperature 1, untruncated, in nats; or None.
        cached: number of prompt tokens that the engine did not compute for this sample; all
            computed tokens in a copy of a greedy sample.
        certainties: certainty of each token; None if the request did not ask for it.
    """

    ids: tuple[int, ...]
    stopped: bool
    log_probs: tuple[float, ...] | None
    cached: int
    certainties: tuple[float, ...] | None = None

    def copies(self, prompt: Sequence[int], number: int) -> list[TokenSample]:
        """This greedy sample several times, which the engine computed once."""
        copy = dataclasses.replace(self, cached=len(prompt) + len(self.ids) - 1)
        return [self, *[copy] * (number - 1)]


@dataclass(frozen=True, slots=True)
class Classified:
    """The score of one prompt at its last token, unchecked, and the number of cached tokens."""

    score: float
    cached: int


@dataclass(frozen=True, slots=True)
class ClassifiedSteps:
    """The scores at several positions of one prompt, and the usage of its tokens.

    A score is None at a position that the engine read from its cache.
    """

    scores: list[float | None]
    usage: TokenUsage


def by_beginnings(
    classify: Callable[[Sequence[tuple[int, ...]]], list[Classified]],
    prompts: Sequence[tuple[int, ...]],
    ends: Sequence[Sequence[int]],
) -> list[ClassifiedSteps]:
    """`Classifier.classify_steps` by one call of `classify` with all beginnings.

    Equal beginnings are one prompt, whose tokens count for the first that has it.
    """
    asked: dict[tuple[int, ...], int] = {}  # beginning -> the prompt that pays for it
    for i, (prompt, places) in enumerate(zip(prompts, ends, strict=True)):
        for end in places:
            asked.setdefault(prompt[:end], i)
    found = dict(zip(asked, classify(list(asked)), strict=True))
    usage: list[list[TokenUsage]] = [[] for _ in prompts]
    for (beginning, i), answer in zip(asked.items(), found.values(), strict=True):
        computed = len(beginning) - answer.cached
        usage[i].append(TokenUsage(computed=computed, cached=answer.cached))
    return [
        ClassifiedSteps([found[prompt[:end]].score for end in places], total_usage(usage[i]))
        for i, (prompt, places) in enumerate(zip(prompts, ends, strict=True))
    ]


class Sampler(Protocol):
    """A generating engine.

    If an attribute `reports_top` is true, it reports the certainty "top" of tokens. If `concurrent`
    is true, several threads may call it at a time, and their requests share batches.
    """

    concurrent: bool

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[TokenSample]]:
        """All samples of all requests, in order; one call fills the engine's batch."""
        ...


class Classifier(Protocol):
    """A scoring engine; `concurrent` as for a `Sampler`."""

    concurrent: bool

    def classify(self, prompts: Sequence[tuple[int, ...]]) -> list[Classified]:
        """The score of every prompt, in order; one call fills the engine's batch."""
        ...

    def classify_steps(
        self, prompts: Sequence[tuple[int, ...]], ends: Sequence[Sequence[int]]
    ) -> list[ClassifiedSteps]:
        """The scores of several beginnings of every prompt, in order, in one call.

        Args:
            prompts: token ids.
            ends: numbers of tokens of the beginnings of each prompt, ascending; the last one is
                that of the whole prompt.
        """
        ...
