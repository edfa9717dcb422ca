"""Encoding of a question and steps as token ids, by a format and one tokenizer.

A path becomes chunks of ids: the prompt's, then one for each step. The score of a step is read at
the last token of its chunk. Tags and special tokens are appended as ids. A question or a step can't
add or move one, because their names in its text are encoded as ordinary text. The chunks of a path
are a prefix of those of every longer path, so that a model can keep what it computed for them.

Ordinary text gets the ids that it has in the joined text, as on the model cards: if no special
token stands between a step and the text before it, both are encoded together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BadInputError
from ..prompts.chat_template import QUESTION, STEP, TAG, ChatTemplate, Ids, Run, filled, trimmed
from .format import PRMFormat, TokenPair

REMEMBERED = 1 << 16
"""Texts whose ids are remembered: a path's earlier steps come again with every later one."""

SAMPLE = ("What is 1+1?", ("1+1 is 2.", "So 2 is the answer."))
"""A question and steps, for a first look at whether format and tokenizer go together."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Ids and runs before a step's run, the run that holds the step, and the ids up to the tag."""

    before: tuple[int | Run, ...]
    run: Run
    after: Ids


class StepEncoder:
    """Paths in a PRM format as ids of one tokenizer.

    Args:
        prm_format, tokenizer: format of the PRM, and its transformers tokenizer.

    Attributes:
        tag_id: id of the token that closes a step.
        pair_ids: ids of the read-out's positive and negative token; None for a head.

    Raises:
        BadInputError: a token that the format names is not one token of the tokenizer, or the
            format does not fit the tokenizer or its chat template.
    """

    def __init__(self, prm_format: PRMFormat, tokenizer: Any):
        self._format = prm_format
        self._tokenizer = tokenizer
        single = functools.partial(token_id, prm_format, tokenizer)
        self.tag_id = single(prm_format.tag)
        self.pair_ids: tuple[int, int] | None = None
        if isinstance(prm_format.read_out, TokenPair):
            pair = prm_format.read_out
            self.pair_ids = (single(pair.positive), single(pair.negative))
            check_pair(prm_format, self.pair_ids)
        self._chat = chat_template(prm_format, tokenizer)
        self._chat.guard(prm_format.tag)
        self._begin: Ids = ()
        self._trims = "" if prm_format.layout == "text" else self._chat.trims()
        first, later = self._texts()
        behind = prm_format.joined and prm_format.tag in self._chat.special
        self._first, self._later = self._unit(first), self._unit(later, behind=behind)
        self._first = replace(self._first, before=(*self._begin, *self._first.before))
        if not self._first.before:
            raise self._chat.misfit("its prompt does not begin with a special token")
        # What follows a tag that is ordinary text is encoded behind the text that makes the tag.
        self._anchor = prm_format.tag.removeprefix("▁")
        self._anchored = (
            prm_format.joined
            and prm_format.tag not in self._chat.special
            and not self._later.before
            and self._chat.encode(self._anchor) == (self.tag_id,)
        )
        self._prompt_chunks = functools.lru_cache(REMEMBERED)(self._encode_prompt)
        self._opening_chunks = functools.lru_cache(REMEMBERED)(self._encode_opening)
        self._step_chunk = functools.lru_cache(REMEMBERED)(self._encode_step)
        if prm_format.joined:
            self._check_sample(first, later)

    def chunks(self, question: str, steps: Sequence[str]) -> list[Ids]:
        """The ids of a path, cut into chunks whose computed state a model may cache.

        Args:
            steps: texts of the steps, one or more, none of them blank.

        Returns:
            The prompt's chunks, the first of which depends on the question alone, then one chunk
            for each step, which ends where its score is read. Concatenated, the chunks are the
            sequence; no chunk is empty. Text right before the first step belongs to that step's
            chunk if the step changes its ids.
        """
        later = [self._step_chunk(text) for text in steps[1:]]
        return [*self._opening_chunks(question, steps[0]), *later]

    def _encode_opening(self, question: str, step: str) -> tuple[Ids, ...]:
        """The chunks of the prompt and of the first step."""
        # A step follows the question in its message, unless the message is the whole prompt.
        right = self._trims if self._format.layout == "answer" else ""
        question = trimmed(question, self._format.prompt, self._trims, right)
        prompt, opening = self._prompt_chunks(question)
        whole = self._chat.encode(
            filled(self._first.run, {QUESTION: question, STEP: self._step_text(step)})
        )
        end = (*self._first.after, *self._tag_at("tag"))
        # The text before the step is a chunk of its own, unless the step changes its ids.
        if opening and whole[: len(opening)] == opening and (rest := whole[len(opening) :] + end):
            return prompt, opening, rest
        return prompt, whole + end

    def _encode_prompt(self, question: str) -> tuple[Ids, Ids]:
        """Ids before the run that holds the first step, and ids of that run up to the step."""
        run = self._first.run
        opening = filled(run[: run.index(STEP)], {QUESTION: question})
        before = self._chat.ids(self._first.before, {QUESTION: question})
        return before, self._chat.encode(opening)

    def _encode_step(self, step: str) -> Ids:
        """The chunk of a step that follows another."""
        text = filled(self._later.run, {STEP: self._step_text(step)})
        ids = self._chat.encode(self._anchor + text) if self._anchored else ()
        ids = ids[1:] if ids[:1] == (self.tag_id,) else self._chat.encode(text)
        before = self._tag_at("before") + self._chat.ids(self._later.before)
        return before + ids + self._later.after + self._tag_at("tag")

    def _tag_at(self, place: str) -> Ids:
        """The tag's id if the format reads scores at `place`, "tag" or "before"; else nothing."""
        return (self.tag_id,) if self._format.read_at == place else ()

    def _step_text(self, step: str) -> str:
        """The step as the model reads it."""
        if self._format.layout == "turns":
            # RLHFlow's code does so before it renders the chat. The template's own trimming would
            # leave the white space between the question and the first step.
            step = step.strip()
        newline = self._format.newline
        return step if newline is None else step.replace("\n", newline)

    # Once, when the encoder is made:

    def _texts(self) -> tuple[str, str]:
        """The text up to the first tag and the text from there to the second one, with places."""
        prm_format = self._format
        prompt = prm_format.prompt.replace("{question}", QUESTION)
        if prm_format.layout == "text":
            begin = self._tokenizer.bos_token
            if begin is None and prm_format.joined:
                raise self._chat.misfit("it has no token for the beginning of a text (bos_token)")
            # The families' tokenizers put it before the ids of the text.
            self._begin = () if begin is None else (self._tokenizer.bos_token_id,)
            return prompt + STEP, prm_format.between + STEP
        if prm_format.layout == "answer":
            text = self._chat.render([("user", prompt)], answer=True, system=prm_format.system)
            if text.count(QUESTION) != 1:
                raise self._chat.misfit("its chat template does not show the user's message once")
            return text + STEP, prm_format.between + STEP
        turns = [("user", prompt + STEP), ("assistant", TAG)]
        turns += [("user", STEP), ("assistant", TAG)] * 2
        text = self._chat.render(turns, answer=False, system=prm_format.system)
        first, *rest = text.split(TAG)
        if len(rest) != 3 or [part.count(STEP) for part in (first, *rest)] != [1, 1, 1, 0]:
            raise self._chat.misfit("its chat template does not show each of six turns once")
        if rest[0] != rest[1]:
            raise self._chat.misfit("its chat template writes the last turns unlike earlier ones")
        return first, rest[0]

    def _unit(self, text: str, *, behind: bool = False) -> _Unit:
        """Cuts a text at special tokens into the unit of the step in it."""
        items = self._chat.cut(text, behind=behind)
        (index,) = (i for i, item in enumerate(items) if isinstance(item, tuple) and STEP in item)
        before, run = items[:index], items[index]
        assert isinstance(run, tuple)
        if not self._format.joined:
            start = run.index(STEP)
            before, run = [*before, run[:start]] if start else before, run[start:]
        return _Unit(tuple(before), run, self._chat.ids(items[index + 1 :]))

    def _check_sample(self, first: str, later: str) -> None:
        """Raises BadInputError if a sample's chunks differ from the ids of its joined text."""
        question, steps = SAMPLE
        tag = self._format.tag if self._format.tag in self._chat.special else self._anchor
        tag = " " + tag if self._format.tag != self._anchor else tag
        text = first.replace(QUESTION, question).replace(STEP, steps[0])
        text += tag + later.replace(STEP, steps[1])
        text += tag if self._format.read_at == "tag" else ""
        joined = [*self._begin, *self._tokenizer(text, add_special_tokens=False)["input_ids"]]
        chunks = [token for chunk in self.chunks(question, steps) for token in chunk]
        if chunks != joined:
            raise self._chat.misfit(
                "a plain sample has other ids as one text than in its parts (if the PRM was "
                "trained on steps encoded one by one, joined: false says so)"
            )


def chat_template(prm_format: PRMFormat, tokenizer: Any, kind: str = "PRM") -> ChatTemplate:
    """The chat template that a format of a kind of model uses."""
    way_out = f"; choose the format the {kind} was trained with"
    return ChatTemplate(tokenizer, f"PRM format {prm_format.name!r}", way_out)


def check_pair(prm_format: PRMFormat, pair: tuple[int, int]) -> None:
    """Raise BadInputError if a read-out's two tokens are one, so that every score would be 1/2."""
    if pair[0] == pair[1]:
        raise BadInputError(
            f"PRM format {prm_format.name!r}: positive and negative of read_out are one token: "
            "name two"
        )


def token_id(prm_format: PRMFormat, tokenizer: Any, token: str) -> int:
    """The id of a token, given by its name in the vocabulary or by its text.

    Raises:
        BadInputError: the tokenizer makes no token or several of it.
    """
    found = tokenizer.convert_tokens_to_ids(token)
    if found is not None and found != tokenizer.unk_token_id:
        return int(found)
    ids = tokenizer(token, add_special_tokens=False)["input_ids"]
    if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
        return int(ids[0])
    # A text that is not one token may be cut into several, or be unknown in whole or in part.
    known = len(ids) > 1 and tokenizer.unk_token_id not in ids
    reason = f"makes {len(ids)} of it" if known else "has no such token"
    way_out = "choose the format the PRM was trained with; 'auto' finds those of known families"
    if prm_format.layout == "judge":
        way_out = "name two words in read_out that are tokens, in a .yaml file"
    raise BadInputError(
        f"PRM format {prm_format.name!r} needs {token!r} as one token, the tokenizer {reason}: "
        f"{way_out}"
    )
