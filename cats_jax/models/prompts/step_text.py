"""The rules, common to all policy bridges, for the end and the text of a sampled step."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...errors import BadInputError
from ...protocols import Finish, StepRequest


class TextModel(Protocol):
    """A model's tokenizer and end tokens, which are known without its weights."""

    name: str
    vocab_size: int

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included."""
        ...

    def end_ids(self) -> list[int]:
        """Ids that end an answer."""
        ...


class StepText:
    r"""The tokens that end a step or an answer, and the text of the tokens before them.

    Args:
        model: model whose tokenizer and end tokens are used.
        separator: text that closes a step. Every token whose text contains it closes a step
            (".\n\n" is one token in many vocabularies); two tokens that only together make the
            separator do not.

    Attributes:
        separators: ids of the tokens that close a step, ascending.
        ends: ids of the tokens that end an answer, ascending.

    Raises:
        BadInputError: the separator is empty or in no token, or no token ends an answer.
    """

    def __init__(self, model: TextModel, separator: str):
        if not separator:
            raise BadInputError("step_separator must not be empty: use '\\n\\n'")
        texts = {i: model.decode([i]) for i in range(model.vocab_size)}
        found = {i: text for i, text in texts.items() if separator in text}
        if not found:
            raise BadInputError(
                f"no token of {model.name!r} contains the step separator {separator!r}: choose a "
                f"step_separator that is in the tokenizer's vocabulary"
            )
        self.separators = sorted(found)
        self.ends = sorted(model.end_ids())
        if not self.ends:
            raise BadInputError(
                f"{model.name!r} names no end-of-text token: set eos_token_id in its config.json"
            )
        self._pure = {i for i, text in found.items() if text == separator}
        self._model = model
        self._separator = separator

    def text(self, ids: Sequence[int], finish: Finish) -> str:
        """A step's text: without its end token, or without the separator and what follows it.

        Args:
            ids: token ids of the step, including the token that ended it.
            finish: why sampling of the step stopped.
        """
        if finish in ("length", "context"):
            return self._model.decode(ids)
        head = self._model.decode(ids[:-1])
        if finish == "end" or ids[-1] in self._pure:
            return head
        # The last token brings text of its own before the separator, as ".\n\n" does, or after it.
        # Look for the separator in the last token only: what stands further left is the step's.
        text = self._model.decode(ids)
        start = 0
        while start < min(len(head), len(text)) and head[start] == text[start]:
            start += 1
        return text[:start] + text[start:].partition(self._separator)[0]


@dataclass(frozen=True, slots=True)
class Piece:
    """A step of an answer: the ids `start` to `end`, and why it finished."""

    start: int
    end: int
    finish: Finish


def cut_answer(
    ids: Sequence[int],
    finish: Finish,
    *,
    separators: Container[int],
    max_steps: int,
    max_step_tokens: int,
) -> list[Piece]:
    """The steps of an answer that was sampled without stopping at separators.

    Args:
        ids: token ids of the answer, including its end token.
        finish: why sampling stopped: "end", "length" or "context".
        separators: ids of the tokens that close a step.
        max_steps: largest number of steps; the last one is all that is left.
        max_step_tokens: largest number of tokens of a step that a separator closes.

    Returns:
        The steps in order. A step that is too long is cut there and is the last. What follows the
        last separator of an answer that was cut at the limit for answers is left out, unless it is
        too long for a step: it may still become one.
    """
    pieces: list[Piece] = []
    start = 0
    for place, token in enumerate(ids):
        if len(pieces) == max_steps - 1:
            break
        if place - start == max_step_tokens:
            pieces.append(Piece(start, place, "length"))
            return pieces
        if token in separators:
            pieces.append(Piece(start, place + 1, "step"))
            start = place + 1
    too_long = len(pieces) < max_steps - 1 and len(ids) - start >= max_step_tokens
    if start < len(ids) and (finish != "length" or too_long):
        pieces.append(Piece(start, len(ids), finish))
    return pieces


def check_parameters(request: StepRequest) -> None:
    """Raise BadInputError if a sampling parameter is outside its range."""
    where = f"request for question {request.question.id!r}"
    if not (0 <= request.temperature < float("inf")):
        raise BadInputError(f"{where}: temperature must be >= 0, got {request.temperature}")
    if not (0 < request.top_p <= 1):
        raise BadInputError(f"{where}: top_p must be in (0, 1], got {request.top_p}")
    if request.top_k < 0:
        raise BadInputError(f"{where}: top_k must be >= 0, got {request.top_k}")
    if any(not 0 <= seed < 1 << 64 for seed in request.seeds):
        raise BadInputError(f"{where}: seeds must be in 0..2**64 - 1")
