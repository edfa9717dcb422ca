"""The rules, common to all policy bridges, for the end and the text of a sampled step."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...errors import BadInputError
from ...protocols import Finish, Path, StepRequest
from .separator_tokens import SeparatorTokens, separator_tokens

_REMEMBERED = 1 << 12
"""Number of steps whose ends are remembered: samples of a node are often equal."""

_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)+")


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


@dataclass(frozen=True, slots=True)
class Rest:
    """The last `length` characters of a closing token's text; the next step begins with them."""

    token: int
    length: int


class StepText:
    r"""Where a step or an answer ends, and the text of a step.

    A step closes with the first token at which the decoded text of the step contains the separator
    after something that is not blank, however many tokens spell it. Separators before that are
    skipped. The closing token's text after the separator (the "So" of "\n\nSo") begins the text of
    the next step. One token closes one step: further steps in its text belong to the closed step.

    Args:
        model: model whose tokenizer and end tokens are used.
        separator: text that closes a step.
        end: a second such text, which also closes a step of white space alone; None for no other.

    Attributes:
        separators: ids of the tokens that contain the separator, ascending.
        closers: ids of the tokens at which a step may close, ascending: `separators`, and the
            tokens that may complete a separator that others have begun.
        ends: ids of the tokens that end an answer, ascending.
        texts: the one or two texts that close a step.

    Raises:
        BadInputError: the separator is empty or can't be spelled, or no token ends an answer.
    """

    def __init__(self, model: TextModel, separator: str, end: str | None = None):
        texts = tuple(dict.fromkeys(text for text in (separator, end) if text is not None))
        found = [_separator_tokens(model, text) for text in texts]
        whole = {token: text for tokens in found for token, text in tokens.whole.items()}
        last = frozenset[int]().union(*(tokens.last for tokens in found))
        self.separators = sorted(whole)
        self.closers = sorted({*whole, *last})
        self.ends = sorted(model.end_ids())
        if not self.ends:
            raise BadInputError(
                f"{model.name!r} names no end-of-text token: set eos_token_id in its config.json"
            )
        self.texts = texts
        self._end = end
        self._pattern = re.compile("|".join(map(re.escape, texts)))
        self._model = model
        self._whole = whole
        self._is_closer = frozenset(self.closers)
        # If other tokens can begin the separator, any closing token may have text after it.
        self._may_leave_rest = frozenset(
            token
            for token in self.closers
            if last or self._pattern.split(whole[token], maxsplit=1)[1]
        )
        self._closing = functools.lru_cache(_REMEMBERED)(self._find_closing)

    def may_close(self, token: int) -> bool:
        """Whether a step may close at a token, by the token alone."""
        return token in self._is_closer

    def closes(self, ids: tuple[int, ...], rest: Rest | None = None) -> bool:
        """Whether the last of a step's tokens closes it, if none before it does.

        `ids` are the step's one or more token ids so far; for `rest` see `rest_of`.
        """
        return self.may_close(ids[-1]) and self._closing(ids, rest) is not None

    def text(self, ids: Sequence[int], finish: Finish, rest: Rest | None = None) -> str:
        """A step's text: without blank lines before it, and without its separator or end token.

        Args:
            ids: token ids of the step, including the token that ended it.
            finish: why sampling of the step stopped. With "step" the last token closes it, or the
                step was cut behind it.
            rest: what the step before it has left, see `rest_of`.
        """
        closing = self._closing(tuple(ids), rest) if finish == "step" else None
        if closing is not None:
            return closing[0]
        return self._begin(self._decode(ids[:-1] if finish == "end" else ids, rest))

    def rest_of(self, path: Path) -> Rest | None:
        """What the last step of a path has left for the next one; None if there is nothing."""
        begin = len(path)
        while begin > 0 and not self._may_leave_rest.isdisjoint(path[begin - 1].token_ids[-1:]):
            begin -= 1
        rest = None
        for step in path[begin:]:
            rest = self.rest(step.token_ids, rest)
        return rest

    def rest(self, ids: tuple[int, ...], rest: Rest | None = None) -> Rest | None:
        """What a step leaves for the next one; `rest` is what the one before it has left."""
        if self._may_leave_rest.isdisjoint(ids[-1:]):
            return None
        closing = self._closing(ids, rest)
        return Rest(ids[-1], closing[1]) if closing is not None and closing[1] > 0 else None

    def _find_closing(self, ids: tuple[int, ...], rest: Rest | None) -> tuple[str, int] | None:
        """Text of a step that its last token closes, and number of characters behind it."""
        found = self._cut(self._decode(ids, rest))
        held = self._whole.get(ids[-1])
        if found is None and held is not None:
            # Byte fallback: a byte that makes no character spoils the newline behind it, too.
            found = self._cut(self._decode(ids[:-1], rest) + held)
        return found

    def _cut(self, text: str) -> tuple[str, int] | None:
        text = self._begin(text)
        stop, start = None, 0
        for found in self._pattern.finditer(text):
            if found[0] == self._end or text[start : found.start()].strip():
                stop = found
            start = found.end()
        return None if stop is None else (text[: stop.start()], len(text) - stop.end())

    def _begin(self, text: str) -> str:
        return _without_blank_steps(text, self._pattern, self._end)

    def _decode(self, ids: Sequence[int], rest: Rest | None) -> str:
        if rest is None:
            return self._model.decode(ids)
        # Decoded together, because the closing token may have only some of a character's bytes.
        whole = self._model.decode((rest.token, *ids))
        return whole[len(self._model.decode((rest.token,))) - rest.length :]


def _separator_tokens(model: TextModel, separator: str) -> SeparatorTokens:
    if not separator:
        raise BadInputError("step_separator must not be empty: use '\\n\\n'")
    tokens = separator_tokens(model.decode, model.vocab_size, separator)
    if not (tokens.whole or tokens.last):
        raise BadInputError(
            f"no token of {model.name!r} contains the step separator {separator!r}, and no "
            "sequence of its tokens spells it, so no step could end: choose a step_separator "
            "that the tokenizer can write"
        )
    return tokens


def without_beginning(text: str, separator: str) -> str:
    """A text without blank steps and blank lines before it."""
    return _without_blank_steps(text, re.compile(re.escape(separator)), None)


def _without_blank_steps(text: str, separators: re.Pattern[str], end: str | None) -> str:
    start = 0
    for found in separators.finditer(text):
        if found[0] == end or text[start : found.start()].strip():
            break
        start = found.end()
    lines = _BLANK_LINES.match(text, start)
    return text[start if lines is None else lines.end() :]


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The rule by which one step ends, for an engine that samples it.

    Attributes:
        text, rest: the policy's rules, and what the step before it has left.
        begun: token ids of the step that are part of the prompt.
    """

    text: StepText
    rest: Rest | None = None
    begun: tuple[int, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether several tokens can spell the separator."""
        return len(self.text.closers) > len(self.text.separators)

    def place(self, ids: Sequence[int], start: int = 0) -> int | None:
        """Number of tokens up to the one that closes the step; None if none does.

        `ids` follow those that are begun; the first `start` of them are known not to close it.
        """
        for end in range(start + 1, len(ids) + 1):
            if self.text.may_close(ids[end - 1]) and self.text.closes(
                (*self.begun, *ids[:end]), self.rest
            ):
                return end
        return None


@dataclass(frozen=True, slots=True)
class Piece:
    """A step of an answer: the ids `start` to `end`, why it finished, and its text."""

    start: int
    end: int
    finish: Finish
    text: str


def cut_answer(
    text: StepText,
    ids: tuple[int, ...],
    finish: Finish,
    *,
    rest: Rest | None,
    max_steps: int,
    max_step_tokens: int,
) -> list[Piece]:
    """The steps of an answer that was sampled without stopping at separators.

    Args:
        text, ids: the policy's rules for steps, and the answer's token ids with its end token.
        finish: why sampling stopped: "end", "length" or "context".
        rest: what the step before the answer has left.
        max_steps: largest number of steps; the last one is all that is left.
        max_step_tokens: largest number of tokens of a step that a separator closes.

    Returns:
        The steps in order. A step that is too long is cut there and is the last. Of an answer that
        was cut at the limit for answers, the text after the last separator may still become a step:
        it is left out unless it is too long for one, or `max_steps` is 1.
    """
    pieces: list[Piece] = []
    start = 0

    def add(end: int, finish: Finish) -> None:
        pieces.append(Piece(start, end, finish, text.text(ids[start:end], finish, rest)))

    for place in range(len(ids)):
        if len(pieces) == max_steps - 1:
            break
        if place - start == max_step_tokens:
            add(place, "length")
            return pieces
        if text.may_close(ids[place]) and text.closes(ids[start : place + 1], rest):
            add(place + 1, "step")
            rest = text.rest(ids[start : place + 1], rest)
            start = place + 1
    too_long = len(pieces) < max_steps - 1 and len(ids) - start >= max_step_tokens
    if start < len(ids) and (finish != "length" or too_long or max_steps == 1):
        add(len(ids), finish)
    return pieces


def check_parameters(request: StepRequest) -> None:
    """Raise BadInputError if a sampling parameter is outside its range."""
    where = f"request for question {request.question.id!r}"
    if not (0 <= request.temperature < float("inf")):
        raise BadInputError(
            f"{where}: temperature must be a finite number >= 0, got {request.temperature}"
        )
    if not (0 < request.top_p <= 1):
        raise BadInputError(f"{where}: top_p must be in (0, 1], got {request.top_p}")
    if request.top_k < 0:
        raise BadInputError(f"{where}: top_k must be >= 0, got {request.top_k}")
    if any(not 0 <= seed < 1 << 64 for seed in request.seeds):
        raise BadInputError(f"{where}: seeds must be in 0..2**64 - 1")
