"""A policy's prompt and end tokens as ids, by a format and one tokenizer.

The chat template is applied once, to the question; a partial answer goes on behind it as the token
ids that were sampled. So a continued turn has no second header and no end-of-turn token, and no
text is ever encoded again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...errors import BadInputError
from .chat import QUESTION, ChatError, ChatTemplate, Ids
from .policy_format import PolicyFormat

# The template is filled in once per question, not once per path of it.
_REMEMBERED = 1 << 12


class PromptEncoder:
    """A format's rules with one tokenizer's ids.

    Args:
        policy_format: of the policy.
        tokenizer: its own, a transformers tokenizer.

    Attributes:
        end_ids: of the format's end tokens, as far as the tokenizer has them.

    Raises:
        BadInputError: format and tokenizer, or its chat template, do not go together.
    """

    def __init__(self, policy_format: PolicyFormat, tokenizer: Any):
        self._format = policy_format
        self._chat = ChatTemplate(tokenizer)
        system = [("system", policy_format.system)] if policy_format.system else []
        prompt = policy_format.prompt.replace("{question}", QUESTION)
        try:
            text = self._chat.render([*system, ("user", prompt)], answer=True)
            self._trims = self._chat.trims()
        except ChatError as error:
            raise self._misfit(str(error)) from error
        if text.count(QUESTION) != 1:
            raise self._misfit("its chat template does not show the user's message once")
        self._items = self._chat.cut(text)
        special = self._chat.special
        self.end_ids = frozenset(
            special[name] for name in policy_format.end_tokens if name in special
        )
        self.prompt_ids: Callable[[str], Ids] = functools.lru_cache(_REMEMBERED)(self._prompt_ids)

    def _prompt_ids(self, question: str) -> Ids:
        """The question as a user's turn, with the assistant's turn opened."""
        left, right = self._format.prompt.split("{question}")
        if self._trims:
            question = question if left else question.lstrip()
            question = question if right else question.rstrip()
        return self._chat.ids(self._items, {QUESTION: question})

    def _misfit(self, reason: str) -> BadInputError:
        return BadInputError(
            f"policy format {self._format.name!r} does not fit the tokenizer: {reason}"
        )
