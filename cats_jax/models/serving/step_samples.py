"""Samples that end by the text of a step, on engines that end them by tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from ...live.seeds import stable_seed
from ...protocols import Finish, TokenUsage, total_usage
from .token_engine import Sampler, SampleRequest, TokenSample


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """One sample; see `TokenSample` for `log_probs` and `certainties`.

    Attributes:
        ids: token ids.
        finish: why sampling stopped; "length" at the largest number of tokens, None if an engine
            has stopped at a token that closes nothing.
        usage: what the sample cost, with tokens behind its end that an engine has sampled.
    """

    ids: tuple[int, ...]
    finish: Finish | None
    log_probs: tuple[float, ...] | None
    usage: TokenUsage
    certainties: tuple[float, ...] | None


def draw(
    engine: Sampler, requests: Sequence[SampleRequest], ends: Collection[int]
) -> list[list[Drawn]]:
    """All samples of all requests, each up to the token at which its text closes the step.

    An engine that stops at a token that closes nothing, such as a separator behind white space
    alone, gets a request for the rest. Its seed follows from the sample's seed and number of
    tokens, so that a sample stays a function of its request. `ends` are the tokens that end an
    answer.

    Returns:
        The samples in order; none has the finish None.
    """
    drawn = _rows(engine, requests, ends)
    opened = [
        (row, j, _rest(request, request.seeds[j], each.ids))
        for request, row in zip(requests, drawn, strict=True)
        for j, each in enumerate(row)
        if not each.finish
    ]
    while opened:
        rests = _rows(engine, [request for *_, request in opened], ends)
        known, opened = opened, []
        for (row, j, request), (rest,) in zip(known, rests, strict=True):
            row[j] = _joined(row[j], rest)
            if not rest.finish:
                opened.append((row, j, _rest(request, request.seeds[0], rest.ids)))
    return drawn


def _rows(
    engine: Sampler, requests: Sequence[SampleRequest], ends: Collection[int]
) -> list[list[Drawn]]:
    return [
        [_drawn(request, sampled, ends) for sampled in samples]
        for request, samples in zip(requests, engine.sample(requests), strict=True)
    ]


def _drawn(request: SampleRequest, sampled: TokenSample, ends: Collection[int]) -> Drawn:
    ids, log_probs = sampled.ids, sampled.log_probs
    closed = None if request.step_end is None else request.step_end.place(ids)
    finish: Finish | None = None
    if closed is not None:
        finish = "step"
    elif sampled.stopped and ids[-1] in ends:
        finish = "end"
    elif not sampled.stopped or len(ids) >= request.max_tokens:
        finish = "length"
    # The last token is sampled but not fed to the model.
    fed = len(request.prompt) + len(ids) - 1
    usage = TokenUsage(computed=fed - sampled.cached, cached=sampled.cached, generated=len(ids))
    log_probs = None if log_probs is None else log_probs[:closed]
    certainties = None if sampled.certainties is None else sampled.certainties[:closed]
    return Drawn(ids[:closed], finish, log_probs, usage, certainties)


def _rest(request: SampleRequest, seed: int, ids: tuple[int, ...]) -> SampleRequest:
    """The request for what follows the first tokens of a sample."""
    assert request.step_end is not None
    begun = (*request.step_end.begun, *ids)
    return dataclasses.replace(
        request,
        prompt=(*request.prompt, *ids),
        seeds=(stable_seed(seed, len(ids)),),
        max_tokens=request.max_tokens - len(ids),
        step_end=dataclasses.replace(request.step_end, begun=begun),
    )


def _joined(first: Drawn, rest: Drawn) -> Drawn:
    def both(
        one: tuple[float, ...] | None, other: tuple[float, ...] | None
    ) -> tuple[float, ...] | None:
        return None if one is None or other is None else one + other

    return Drawn(
        first.ids + rest.ids,
        rest.finish,
        both(first.log_probs, rest.log_probs),
        total_usage([first.usage, rest.usage]),
        both(first.certainties, rest.certainties),
    )
