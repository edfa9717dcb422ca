"""The policy on a serving engine: one call per tick, token ids in and out."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from ...errors import BadInputError
from ...protocols import (
    Answer,
    AnswerGeneration,
    Finish,
    Generation,
    Path,
    Question,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
    total_usage,
)
from ..huggingface.policy import StepOptions, StepPolicy
from ..prompts.step_text import StepEnd, check_parameters
from ..stored_model import check_complete, num_parameters
from .shared_time import SharedTime
from .step_samples import Drawn, draw
from .token_engine import Sampler, SampleRequest


class EngineGenerator(StepPolicy):
    r"""`StepGenerator` on a serving engine (`vllm_engine.py`, `http_engine.py`).

    A prompt is the chat template's ids followed by the ids of the steps as they were sampled; no
    text is encoded a second time. Samples have the same distribution as those of
    `HuggingFaceGenerator` but are other draws; greedy samples are the same token for token. Another
    batch may change the last bits of a logit and, rarely, a token.

    Args:
        path: model folder: configuration, tokenizer with a chat template, headers of safetensors.
        start: makes the engine, given the largest number of tokens in a sequence.
        max_model_len: that number; None: the model's own.
        asked: `format`, `step_separator`, `max_step_tokens`, `max_answer_tokens` of `StepPolicy`.

    Raises:
        BadInputError: folder or setting can't work (before the start), or the engine does not
        start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        start: Callable[[int], Sampler],
        *,
        max_model_len: int | None = None,
        **asked: Unpack[StepOptions],
    ):
        # Tokenizer and configuration only: the weights are the engine's.
        super().__init__(path, device="cpu", dtype="float32", **asked)
        self._model.limit_context(max_model_len)
        check_complete(pathlib.Path(path), self._model.config)
        self._ends = frozenset(self._text.ends)
        headless = bool(self._model.config.tie_word_embeddings)
        self.num_parameters = num_parameters(path, self._model.config, headless=headless)
        self._engine = start(self._model.context)
        self._time = SharedTime()
        self._tokenizing = threading.Lock()  # a tokenizer can't encode in two threads at a time

    @property
    def concurrent(self) -> bool:
        """Whether several threads may call it at a time, see `Sampler`."""
        return self._engine.concurrent

    @property
    def certainties(self) -> frozenset[str]:
        """Kinds of token certainty that it reports; none of a thought, which has tokens put in."""
        known = getattr(self._engine, "reports_top", False) and not self.adds_tokens
        return frozenset(["top"] if known else [])

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Does nothing: an engine drops the least recently used blocks of its cache by itself."""

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Samples every request in one call of the engine; see `StepGenerator.generate`.

        `usage[i].cached` counts the prompt tokens that the engine reports as cached, 0 if it
        reports none, and all tokens of a copy of a greedy sample. `inside_seconds` is the time of
        the call to the engine, which includes scheduling and transfer; calls that overlap share it.

        Raises:
            BadInputError: a sampling parameter outside its range, or a sampled token outside the
                vocabulary.
        """
        return self._with_thoughts(requests, self._generate)

    def _generate(self, requests: Sequence[StepRequest]) -> Generation:
        answers, usage, inside = self._sample(requests)
        samples = [
            [_step_sample(each, self._step_end(request)) for each in answer]
            for request, answer in zip(requests, answers, strict=True)
        ]
        return Generation(samples, [total_usage(each) for each in usage], inside, usage)

    def generate_answers(self, requests: Sequence[StepRequest], max_depth: int) -> AnswerGeneration:
        """Samples whole answers in one call of the engine; see `AnswerGenerator`.

        Usage and time are those of `generate`. An answer has one seed for all its steps.

        Raises:
            BadInputError: a sampling parameter outside its range, or a sampled token outside the
                vocabulary.
        """
        if self._thoughts is None:
            return self._generate_answers(requests, max_depth)
        return self._thoughts.answers(requests, max_depth, self._generate, self._generate_answers)

    def _generate_answers(
        self, requests: Sequence[StepRequest], max_depth: int
    ) -> AnswerGeneration:
        sampled, usage, inside = self._sample(requests, whole=True)
        answers = [
            [self._answer_of(each, request.path, max_depth) for each in answer]
            for request, answer in zip(requests, sampled, strict=True)
        ]
        return AnswerGeneration(answers, [total_usage(each) for each in usage], inside, usage)

    def _answer_of(self, sample: Drawn, path: Path, max_depth: int) -> Answer:
        assert sample.finish is not None
        return self._answer(
            sample.ids,
            sample.finish,
            sample.log_probs,
            path,
            max_depth,
            certainties=sample.certainties,
        )

    def _sample(
        self, requests: Sequence[StepRequest], *, whole: bool = False
    ) -> tuple[list[list[Drawn]], list[list[TokenUsage]], float]:
        """Samples of the engine, the usage of each, and seconds of the call.

        Requests that differ only in their seeds, as of a particle drawn twice, are one to the
        engine.
        """
        # One step at least fits in an answer.
        answer = max(self._max_answer_tokens, self._max_step_tokens)
        limits = [answer if whole else self._limit(request) for request in requests]
        asked: dict[tuple[str, SampleRequest], list[int]] = {}
        for i, request in enumerate(requests):
            check_parameters(request)
            prompt = self._prompt(request.question, request.path)
            room = self._model.context - len(prompt)
            if room < 1:
                continue  # every sample finishes with "context", empty
            rule = self._step_end(request) if self._by_steps(request) and not whole else None
            separators = () if rule is None else rule.text.separators
            same = SampleRequest(
                prompt=prompt,
                seeds=(),
                temperature=request.temperature,
                top_p=request.top_p,
                top_k=request.top_k,
                max_tokens=min(limits[i], room),
                stop_ids=(*self._text.ends, *separators),
                step_end=rule,
                certain=request.certainty is not None,
            )
            asked.setdefault((request.question.id, same), []).append(i)
        joined = [
            dataclasses.replace(same, seeds=tuple(s for i in places for s in requests[i].seeds))
            for (_, same), places in asked.items()
        ]
        number = sum(len(request.seeds) for request in joined)
        with self._time.call(max(1, number)) as share:
            found = draw(self._engine, joined, self._ends) if joined else []
        self._check_ids(token for row in found for each in row for token in each.ids)

        empty = Drawn((), "context", (), TokenUsage(), ())
        answers = [[empty] * len(request.seeds) for request in requests]
        for places, request, samples in zip(asked.values(), joined, found, strict=True):
            rest = iter(samples)
            room = self._model.context - len(request.prompt)
            for i in places:
                at_limit: Finish = self._at_limit(requests[i]) if limits[i] <= room else "context"
                answers[i] = [
                    each
                    if each.finish in ("step", "end")
                    else dataclasses.replace(each, finish=at_limit)
                    for each in itertools.islice(rest, len(requests[i].seeds))
                ]
        usage = [[each.usage for each in row] for row in answers]
        return answers, usage, share.seconds

    def _check_ids(self, ids: Iterable[int]) -> None:
        """Raise BadInputError at a token outside the logits of the folder's model."""
        largest, size = max(ids, default=0), self._model.vocab_size
        if largest >= size:
            raise BadInputError(
                f"policy {self.name!r}: the engine sampled token {largest}, but the vocabulary of "
                f"the model folder ends at {size}: serve the model of this folder"
            )

    def _prompt(self, question: Question, path: Path) -> tuple[int, ...]:
        with self._tokenizing:
            prompt = self._model.prompt_ids(question)
        return (*prompt, *(t for step in path for t in step.token_ids))


def _step_sample(sample: Drawn, rule: StepEnd) -> StepSample:
    assert sample.finish is not None
    step = Step(rule.text.text(sample.ids, sample.finish, rule.rest), sample.ids)
    log_probs = sample.log_probs
    known = None if log_probs is None else sum(log_probs)
    return StepSample(step, sample.finish, known, sample.certainties)
