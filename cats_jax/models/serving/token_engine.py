"""Interfaces of serving engines: token ids in, token ids or scores out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
        log_probs: whether the log-probability of each token is asked for.
    """

    prompt: tuple[int, ...]
    seeds: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    stop_ids: tuple[int, ...]
    log_probs: bool = False


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sample.

    Attributes:
        ids: token ids of the sample; if `stopped`, the last one is a stop id.
        stopped: whether a stop id ended the sample; False if it was cut at `max_tokens`.
        log_prob: summed log-probability of the tokens at temperature 1, untruncated, in nats.
        cached: number of prompt tokens that the engine did not compute for this sample.
        log_probs: the log-probability of each token, if the request asks for them.
    """

    ids: tuple[int, ...]
    stopped: bool
    log_prob: float
    cached: int
    log_probs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Classified:
    """The score of one prompt, read off at its last token.

    Attributes:
        score: score of the prompt; the caller checks that it is in [0, 1].
        cached: number of prompt tokens that the engine did not compute.
    """

    score: float
    cached: int


class Sampler(Protocol):
    """A generating engine."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sampled]]:
        """All samples of all requests, in order; one call fills the engine's batch."""
        ...


class Classifier(Protocol):
    """A scoring engine."""

    def classify(self, prompts: Sequence[tuple[int, ...]]) -> list[Classified]:
        """The score of every prompt, in order; one call fills the engine's batch."""
        ...
