"""Whole answers in one request, for strategies that throw no path away.

Such a strategy needs each of its paths to the end. Asking for a step at a time would cost a request
for each, and each tick would wait for its longest step. Here the first request of a question asks
for whole answers, and those of later steps are answered with what is already there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import search

from ..protocols import (
    Answer,
    AnswerGeneration,
    AnswerGenerator,
    Generation,
    Path,
    Question,
    StepGenerator,
    StepRequest,
    StepSample,
    TokenUsage,
    shared_seconds,
)


def whole_answers(
    policy: StepGenerator, strategy: search.Strategy, *, max_depth: int, limited: bool
) -> StepGenerator:
    """The policy, which samples whole answers where a strategy needs them all and a policy can.

    Args:
        policy: policy of the search.
        strategy: search strategy.
        max_depth: number of reasoning steps.
        limited: whether a question may be cut short by a limit on candidates, tokens or seconds.
            Its steps are then sampled one by one, so that it pays for none beyond the limit.
    """
    whole = strategy.keeps_all_paths or strategy.ignores_num_candidates
    if whole and not limited and isinstance(policy, AnswerGenerator):
        return WholeAnswers(policy, max_depth)
    return policy


class WholeAnswers:
    """`StepGenerator` whose samples are the first steps of whole answers.

    All tokens of an answer are charged when it is sampled; its later steps cost nothing. Where an
    answer was cut at the limit for answers, the rest of it is asked for in the same way. The
    answers of a request are a function of the request, and the first of them do not depend on their
    number.

    Args:
        policy: policy that can sample whole answers.
        max_depth: number of reasoning steps; the last one runs to the end of the answer.
    """

    def __init__(self, policy: AnswerGenerator, max_depth: int) -> None:
        self._policy = policy
        self._max_depth = max_depth
        self.name = policy.name
        self.num_parameters = policy.num_parameters
        # The rests of answers that are sampled and not asked for yet: question -> path -> rests.
        self._rests: dict[str, dict[Any, deque[Answer]]] = {}

    def check_question(self, question: Question) -> None:
        """Check the question by the wrapped policy; see `StepGenerator.check_question`."""
        self._policy.check_question(question)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Free a question's cached state except prefixes of `paths`; without paths, all of it."""
        if not paths:
            self._rests.pop(question.id, None)
        self._policy.keep_only(question, paths)

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Sample every request; see `StepGenerator.generate`."""
        parts: dict[int, _Part] = {}
        answers: list[int] = []
        last_steps: list[int] = []
        for i, request in enumerate(requests):
            known = self._known(request)
            if known is not None:
                free = [TokenUsage()] * len(known)
                parts[i] = _Part(known, TokenUsage(), free, 0.0)
            else:
                (last_steps if request.to_end else answers).append(i)
        inside = 0.0
        if answers:
            whole = self._policy.generate_answers([requests[i] for i in answers], self._max_depth)
            inside += whole.inside_seconds
            samples = [
                [self._first(requests[i].question, requests[i].path, each) for each in found]
                for i, found in zip(answers, whole.answers, strict=True)
            ]
            parts |= zip(answers, _parts(whole, samples), strict=True)
        if last_steps:
            generation = self._policy.generate([requests[i] for i in last_steps])
            inside += generation.inside_seconds
            parts |= zip(last_steps, _parts(generation, generation.samples), strict=True)
        found = [parts[i] for i in range(len(requests))]
        each = [part.sample_usage for part in found if part.sample_usage is not None]
        return Generation(
            samples=[part.samples for part in found],
            usage=[part.usage for part in found],
            inside_seconds=inside,
            sample_usage=each if len(each) == len(found) else None,
            seconds=[part.seconds for part in found],
        )

    def _known(self, request: StepRequest) -> list[StepSample] | None:
        """The next step of an answer that goes on from the request's path; None if there is none.

        Answers with the same beginning are served in the order in which they were sampled.
        """
        rests = self._rests.get(request.question.id, {}).get(_key(request.path))
        if not rests or len(request.seeds) != 1:
            return None
        rest = rests.popleft()
        return [self._first(request.question, request.path, rest)] if rest else None

    def _first(self, question: Question, path: Path, answer: Answer) -> StepSample:
        """The first step of an answer or of its rest; what follows is kept for later requests."""
        first, *rest = answer
        if first.finish == "step":
            rests = self._rests.setdefault(question.id, {})
            # A cut answer has an empty rest, which keeps its place among others.
            rests.setdefault(_key((*path, first.step)), deque()).append(tuple(rest))
        return first


@dataclass(frozen=True, slots=True)
class _Part:
    """What belongs to one request."""

    samples: list[StepSample]
    usage: TokenUsage
    sample_usage: list[TokenUsage] | None
    seconds: float


def _parts(
    made: Generation | AnswerGeneration, samples: Sequence[list[StepSample]]
) -> Iterator[_Part]:
    """The parts of a call of the policy."""
    each = made.sample_usage or [None] * len(samples)
    seconds = made.seconds or shared_seconds(made.usage, made.inside_seconds)
    return map(_Part, samples, made.usage, each, seconds)


def _key(path: Path) -> tuple[tuple[int, ...], ...]:
    return tuple(step.token_ids for step in path)
