"""Conversations as token ids, with places to fill in.

A tokenizer's chat template renders a conversation once, with marks in the places of texts. The
rendered text is cut at special tokens, and each run between two of them is encoded by itself when
its places are filled in. A text gets the ids that it has in the rendered whole, except that names
of special tokens and of those that the conversation shows are ordinary text in it. Some tokenizers
put a space before the first text only, and some tokens, as those of Phi-3, take in the white space
beside them: a run says what stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import BadInputError
from ...grading.thinking import TAGS
from .bounded_template import render

Ids = tuple[int, ...]

Run = tuple[str, ...]
"""Pieces of the text between two special tokens; a place is a piece of its own."""

Blanks = str | None
"""Characters that are cut off a text, as `str.strip` takes them: None is all white space."""

# Noncharacters of Unicode, which no text contains, mark the places.
QUESTION, STEP, TAG, SYSTEM = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_PLACES = re.compile(f"([{QUESTION}{STEP}{SYSTEM}])")

# Two more mark the edges of a run: text behind a special token, and text beside a token that takes
# in white space.
_BEHIND, _BARE = "\ufdd4", "\ufdd5"

# Some templates of Llama write the day's date into the prompt unless they are given one, and no
# result may depend on the day. The other templates of Llama have this date as a constant. Templates
# that ask for the day by `strftime_now` get this one, too.
_VARIABLES = {"date_string": "26 Jul 2024"}


class ChatError(BadInputError):
    """A format does not fit a tokenizer or its chat template."""


class ChatTemplate:
    """A tokenizer's chat template and special tokens, which a format uses.

    Args:
        tokenizer: a transformers tokenizer.
        name, way_out: beginning and end of error messages: the format, and what the user can do.
        switches: further variables of the template.

    Attributes:
        special: ids of the special tokens, by their names.

    Raises:
        ChatError: the template does not mention a switch.
    """

    def __init__(
        self,
        tokenizer: Any,
        name: str,
        way_out: str = "",
        switches: Mapping[str, bool] | None = None,
    ):
        self._tokenizer = tokenizer
        self._name, self._way_out = name, way_out
        self._switches = switches or {}
        for switch in self._switches:
            if not has_switch(tokenizer, switch):
                raise self.misfit(f"its chat template has no switch {switch}: leave the key out")
        added = tokenizer.added_tokens_decoder
        self.special = {str(token): i for i, token in added.items()}
        self._bare_left = {str(token) for token in added.values() if token.lstrip}
        self._bare_right = {str(token) for token in added.values() if token.rstrip}
        thoughts = {tag for pair in TAGS for tag in pair}
        self._loose = {
            str(token): token
            for token in added.values()
            if not token.special and str(token).strip() and str(token) not in thoughts
        }
        self._inner = _without_first_space(tokenizer)

    def misfit(self, reason: str) -> ChatError:
        """An error that says why the format does not fit."""
        return ChatError(f"{self._name} does not fit the tokenizer: {reason}{self._way_out}")

    def render(self, turns: Sequence[tuple[str, str]], *, answer: bool, system: str = "") -> str:
        """The text of a conversation.

        Args:
            turns: (role, content) of each turn.
            system: system message before the turns; "" for none.
            answer: whether to append the beginning of the assistant's next turn.

        Raises:
            ChatError: there is no template, or it refuses these turns.
        """
        if (template := _template(self._tokenizer)) is None:
            several = " with the name default" if self._tokenizer.chat_template else ""
            raise self.misfit(f"it has no chat template{several}")
        turns = [("system", system), *turns] if system else turns
        variables = {
            **self._tokenizer.special_tokens_map,
            **_VARIABLES,
            "messages": [{"role": role, "content": content} for role, content in turns],
            "tools": None,
            "documents": None,
            "add_generation_prompt": answer,
            **self._switches,
        }
        try:
            return render(template, variables)
        except ValueError as error:
            reason = f"its chat template refuses these turns ({error!s:.300})"
            raise self.misfit(reason) from error

    def trims(self) -> Blanks:
        """What the template cuts off both ends of a user's message: all white space, or nothing."""
        return "" if f" {STEP} " in self.render([("user", f" {STEP} ")], answer=True) else None

    def cut(self, text: str, *, behind: bool = False) -> list[int | Run]:
        """A text as a list of ids of special tokens and of the runs between them, in order.

        `behind` says whether a token stands before the text.
        """
        parts = [text]
        if self.special:
            # Where one name begins another, the longer one is meant.
            names = sorted(self.special, key=len, reverse=True)
            parts = re.split("(" + "|".join(map(re.escape, names)) + ")", text)
        items: list[int | Run] = []
        for before, part, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
            if part in self.special:
                self.guard(part)
                items.append(self.special[part])
            elif part:
                is_behind = behind or before in self.special
                left = _BARE if before in self._bare_right else _BEHIND * is_behind
                right = _BARE if after in self._bare_left else ""
                pieces = (left, *_PLACES.split(part), right)
                items.append(tuple(piece for piece in pieces if piece))
        return items

    def guard(self, name: str) -> None:
        """Make an added token's name ordinary text in all texts, as special tokens' names are.

        Some tokenizers do not mark the tokens of turns as special. White space stays a token, and
        so do the tags of a thought, which a model may have to read.
        """
        if name not in self._loose:
            return
        token = self._loose.pop(name)
        token.special = True
        self._tokenizer.add_tokens([token], special_tokens=True)
        self._inner = _without_first_space(self._tokenizer)

    def ids(self, items: Sequence[int | Run], texts: Mapping[str, str] | None = None) -> Ids:
        """Token ids of the items that `cut` returned, with `texts` in their places."""
        found: list[int] = []
        for item in items:
            found += (item,) if isinstance(item, int) else self.encode(filled(item, texts or {}))
        return tuple(found)

    def encode(self, text: str) -> Ids:
        """Token ids of a text; names of special tokens in it are encoded as ordinary text."""
        is_behind = text.startswith((_BEHIND, _BARE))
        if is_behind:
            text = text[1:].lstrip() if text.startswith(_BARE) else text[1:]
        if text.endswith(_BARE):
            text = text[:-1].rstrip()
        if not text:
            return ()
        if is_behind and self._inner is not None:
            return tuple(self._inner.encode(text, add_special_tokens=False).ids)
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return tuple(encoded["input_ids"])


def has_switch(tokenizer: Any, name: str) -> bool:
    """Whether a tokenizer has a chat template that mentions a variable."""
    return name in (_template(tokenizer) or "")


def _template(tokenizer: Any) -> str | None:
    """The chat template, of several the one named "default"; None if there is none."""
    found = tokenizer.chat_template
    return found.get("default") if isinstance(found, dict) else found


def trimmed(question: str, prompt: str, left: Blanks, right: Blanks) -> str:
    """A question without the blanks that a template cuts off the ends of a whole message.

    `prompt` is the message, with {question} once.
    """
    before, after = prompt.split("{question}")
    question = question if before else question.lstrip(left)
    return question if after else question.rstrip(right)


def filled(run: Run, texts: Mapping[str, str]) -> str:
    """A run's text with `texts` in its places; inserted texts are not searched for places."""
    return "".join(texts.get(piece, piece) for piece in run)


def _without_first_space(tokenizer: Any) -> Any:
    """The backend for text behind a token, if the tokenizer puts a space before the first text.

    None for any other tokenizer, which encodes all texts alike.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or "prepend_scheme=first" not in repr(backend.pre_tokenizer):
        return None
    never = backend.to_str().replace('"prepend_scheme":"first"', '"prepend_scheme":"never"')
    found = type(backend).from_str(never)
    found.encode_special_tokens = True
    return found
