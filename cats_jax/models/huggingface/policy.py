"""The common part of the policy bridges: prompts, limits, and ends of steps."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TypedDict, Unpack

from ...errors import BadInputError
from ...protocols import (
    Answer,
    Finish,
    Generation,
    Path,
    Question,
    Step,
    StepRequest,
    StepSample,
)
from ..prompts.policy_format import AUTO, PolicyFormat
from ..prompts.step_text import StepEnd, StepText, cut_answer
from .model import CausalModel, LoadOptions
from .thoughts import PieceRequest, Sampling, Thoughts, check_closed


class StepOptions(TypedDict, total=False):
    """Arguments of `StepPolicy` on prompts and limits."""

    format: str | PolicyFormat
    step_separator: str | None
    max_step_tokens: int
    max_answer_tokens: int


class PolicyOptions(LoadOptions, StepOptions, total=False):
    """Arguments of `StepPolicy`."""


class StepPolicy:
    """The part of a `StepGenerator` that does not depend on where the model runs.

    Args:
        path: model folder.
        format: prompt and step separator of the policy: the name of a format, a .yaml file,
            "auto", or a `PolicyFormat`, see `choose_format`.
        step_separator: text that closes a step, in place of the format's; see `StepText`.
        max_step_tokens: largest number of tokens of a step; longer samples finish with "length".
        max_answer_tokens: largest number of tokens of a sample of a `to_end` request, and of an
            answer that is sampled whole.
        options: as for `CausalModel`.

    Attributes:
        may_think: whether a prompt may open a thought that the format does not know. This is for a
            judge, whose replies are read outside of thoughts.

    Raises:
        BadInputError: the folder or a setting can't work.
    """

    reads_system = True
    may_think = False

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        format: str | PolicyFormat = AUTO,
        step_separator: str | None = None,
        max_step_tokens: int = 256,
        max_answer_tokens: int = 2048,
        **options: Unpack[LoadOptions],
    ):
        check_positive(max_step_tokens=max_step_tokens, max_answer_tokens=max_answer_tokens)
        self._max_step_tokens = max_step_tokens
        self._max_answer_tokens = max_answer_tokens
        self._model = CausalModel(path, format=format, **options)
        separator = self._model.format.step_separator if step_separator is None else step_separator
        self._text = StepText(self._model, separator)
        self.name = self._model.name
        thinking = self._model.format.thinking
        self._thoughts = None if thinking is None else Thoughts(self._model, thinking)

    @property
    def adds_tokens(self) -> bool:
        """Whether steps have tokens that were not sampled, such as those that close a thought."""
        return self._thoughts is not None

    def check_question(self, question: Question) -> None:
        """Raises BadInputError if the prompt can't be continued by an answer.

        It is too short, leaves no room in the context, or opens a thought that the format lacks.
        """
        prompt = self._model.check_prompt(question)
        if self._thoughts is None and not self.may_think:
            check_closed(self._model, question)
        if self._thoughts is not None:
            self._thoughts.check_room(question, prompt, self._max_step_tokens, self._model.context)

    def _with_thoughts(self, requests: Sequence[StepRequest], sample: Sampling) -> Generation:
        """Samples of `sample`, which knows no thoughts, with the thoughts of the format."""
        if self._thoughts is None:
            return sample(requests)
        return self._thoughts.generate(requests, sample)

    def _pieces(self, path: Path) -> Path:
        """A path with each step as the pieces in which it is computed."""
        return path if self._thoughts is None else self._thoughts.pieces(path)

    @property
    def _closers(self) -> list[int]:
        """Tokens at which a step or a piece of a thought may close."""
        rules = [self._text, *(() if self._thoughts is None else self._thoughts.rules)]
        return sorted({token for rule in rules for token in rule.closers})

    def _step_end(self, request: StepRequest) -> StepEnd:
        """The rule by which the samples of a request end, if they end by steps."""
        rule = request.rule if isinstance(request, PieceRequest) else self._text
        return StepEnd(rule, rule.rest_of(request.path))

    def _by_steps(self, request: StepRequest) -> bool:
        """Whether a text ends the samples of a request."""
        return isinstance(request, PieceRequest) or not request.to_end

    def _at_limit(self, request: StepRequest) -> Finish:
        """Why a sample ends at its largest number of tokens."""
        return "step" if isinstance(request, PieceRequest) else "length"

    def _limit(self, request: StepRequest) -> int:
        """Largest number of tokens of a sample, whatever room the context leaves."""
        if isinstance(request, PieceRequest):
            return request.max_tokens
        return self._max_answer_tokens if request.to_end else self._max_step_tokens

    def _answer(
        self,
        ids: tuple[int, ...],
        finish: Finish,
        log_probs: Sequence[float] | None,
        path: Path,
        max_depth: int,
        *,
        certainties: tuple[float, ...] | None = None,
    ) -> Answer:
        """The steps of a whole answer; `log_probs` and `certainties` are those of its tokens."""
        if not ids:  # the path leaves no room in the context
            return (StepSample(Step("", ()), finish, 0.0, ()),)
        pieces = cut_answer(
            self._text,
            ids,
            finish,
            rest=self._text.rest_of(path),
            max_steps=max_depth - len(path),
            max_step_tokens=self._max_step_tokens,
        )
        return tuple(
            StepSample(
                Step(at.text, ids[at.start : at.end]),
                at.finish,
                None if log_probs is None else sum(log_probs[at.start : at.end]),
                None if certainties is None else certainties[at.start : at.end],
            )
            for at in pieces
        )


def check_positive(**settings: int) -> None:
    """Raise BadInputError if a setting is below 1."""
    for name, value in settings.items():
        if value < 1:
            raise BadInputError(f"{name} must be at least 1, got {value}")
