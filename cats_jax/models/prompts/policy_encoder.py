"""A policy's prompt and end tokens as ids, by a format and one tokenizer.

The chat template is applied to the question once. A partial answer follows the prompt as the token
ids that were sampled, so a continued turn has no second header and no end-of-turn token, and no
text is encoded twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .chat_template import QUESTION, STEP, SYSTEM, ChatError, ChatTemplate, Ids, Run, trimmed
from .policy_format import PolicyFormat

# The template is filled in once per question, not once per path of it.
_REMEMBERED = 1 << 12


class PromptEncoder:
    """Prompts of a policy format as ids of one tokenizer.

    Args:
        policy_format, tokenizer: format of the policy, and its transformers tokenizer.

    Attributes:
        end_ids: ids of those end tokens of the format that the tokenizer has.
        prompt_ids: cached function from a question's text, and a system message in place of the
            format's or None, to the ids of the prompt. With "" the prompt has no system message but
            the template's own. It raises BadInputError if the chat template does not show the
            system message.

    Raises:
        BadInputError: the format does not fit the tokenizer or its chat template.
    """

    def __init__(self, policy_format: PolicyFormat, tokenizer: Any):
        self._format = policy_format
        switch = policy_format.enable_thinking
        switches = {} if switch is None else {"enable_thinking": switch}
        name = f"policy format {policy_format.name!r}"
        self._chat = ChatTemplate(tokenizer, name, switches=switches)
        self._prompt = policy_format.prompt
        system = policy_format.system
        if system and not self._shows_system(system):
            system, self._prompt = "", f"{system}\n\n{self._prompt}"
        self._system = system
        self._items_of = functools.cache(self._conversation)
        self._items = self._items_of(system, self._prompt)
        self._trims = self._chat.trims()
        vocabulary = {**tokenizer.get_vocab(), **self._chat.special}
        self.end_ids = frozenset(
            vocabulary[name] for name in policy_format.end_tokens if name in vocabulary
        )
        self.prompt_ids: Callable[..., Ids] = functools.lru_cache(_REMEMBERED)(self._prompt_ids)

    def _shows_system(self, system: str) -> bool:
        """Whether the chat template shows a system message beside the user's."""
        try:
            text = self._chat.render([("user", QUESTION)], answer=True, system=system)
        except ChatError:
            return False
        return system.strip() in text and text.count(QUESTION) == 1

    def _conversation(self, system: str, prompt: str) -> list[int | Run]:
        """The conversation with a place for the question; "" means no system message."""
        user = prompt.replace("{question}", QUESTION)
        text = self._chat.render([("user", user)], answer=True, system=system)
        if text.count(QUESTION) != 1:
            raise self._chat.misfit("its chat template does not show the user's message once")
        if system == SYSTEM and text.count(SYSTEM) != 1:
            raise self._chat.misfit("its chat template does not show a system message")
        return self._chat.cut(text)

    @functools.cached_property
    def opening(self) -> Ids:
        """Ids that every prompt begins with, up to the run of text that holds the question."""
        places = [isinstance(item, tuple) and QUESTION in item for item in self._items]
        return self._chat.ids(self._items[: places.index(True)])

    def _prompt_ids(self, question: str, system: str | None = None) -> Ids:
        """Ids of the question as a user's turn and of the beginning of the assistant's turn."""
        prompt, items = self._prompt, self._items
        if system is not None:
            prompt = self._format.prompt
            items = self._items_of(SYSTEM if system else "", prompt)
        question = trimmed(question, prompt, self._trims, self._trims)
        return self._chat.ids(items, {QUESTION: question, SYSTEM: system or ""})

    def answered_ids(self, question: str, answer: str) -> Ids:
        """Ids of the prompt and of an answer; none if the chat template refuses the answer."""
        turns = [("user", self._prompt.replace("{question}", QUESTION)), ("assistant", STEP)]
        try:
            text = self._chat.render(turns, answer=False, system=self._system)
        except ChatError:
            return ()
        shown, place, _ = text.partition(STEP)
        return self._chat.ids(self._chat.cut(shown + place), {QUESTION: question, STEP: answer})

    def text_ids(self, text: str) -> Ids:
        """Ids of a text within an answer; names of special tokens in it are these tokens."""
        return self._chat.ids(self._chat.cut(text, behind=True))
