"""Encoding of a question and a finished answer as token ids, for outcome models.

Both are turns of a conversation, as the model's chat template writes them. The score is read off at
the last token. Padding tokens at the end, which the configuration names, are left out first, as in
transformers' sequence classifiers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..prompts.chat_template import QUESTION, STEP, Blanks, Ids, filled, trimmed
from .encoder import REMEMBERED, SAMPLE, chat_template
from .format import PRMFormat

# White space that a chat template may cut off a message. The ideographic space is cut off only by
# templates that cut off all white space.
_BLANKS, _ANY_BLANK = " \t\n", "\u3000"


class AnswerEncoder:
    """Finished answers in the format of an outcome model as ids of one tokenizer.

    Args:
        prm_format: a format with the layout "conversation".
        tokenizer: the model's transformers tokenizer.
        padding: id of the padding token in the model's configuration; None without one.

    Attributes:
        tag_id: id of the last token of a sample, at which its score is read.
        pair_ids: None; the score is that of a head.

    Raises:
        BadInputError: the tokenizer has no chat template, or one that does not show the question
            and the answer once each, or a sample has other ids as one text.
    """

    pair_ids: None = None

    def __init__(self, prm_format: PRMFormat, tokenizer: Any, *, padding: int | None):
        self._format = prm_format
        self._padding = padding
        self._chat = chat_template(prm_format, tokenizer, "model")
        text = self._rendered(prm_format.prompt.replace("{question}", QUESTION), STEP)
        self._question_cut = self._cut_off(QUESTION, lambda text: (text, STEP))
        self._answer_cut = self._cut_off(STEP, lambda text: (QUESTION, text))
        if text.count(QUESTION) != 1 or text.count(STEP) != 1:
            reason = "its chat template does not show question and answer once each"
            raise self._chat.misfit(reason)
        items = self._chat.cut(text)
        (index,) = (i for i, item in enumerate(items) if isinstance(item, tuple) and STEP in item)
        run = items[index]
        assert isinstance(run, tuple)
        if not index:
            raise self._chat.misfit("its chat template does not begin with a special token")
        self._before, self._run, self._after = items[:index], run, items[index + 1 :]
        self._prompt = functools.lru_cache(REMEMBERED)(self._encode_prompt)
        question, steps = SAMPLE
        chunks = self.chunks(question, steps)
        self.tag_id = chunks[-1][-1]
        whole = text.replace(QUESTION, question).replace(STEP, prm_format.between.join(steps))
        joined = tuple(tokenizer(whole, add_special_tokens=False)["input_ids"])
        if self._without_padding(joined) != tuple(token for chunk in chunks for token in chunk):
            raise self._chat.misfit("a plain sample has other ids as one text than in its parts")

    def chunks(self, question: str, steps: Sequence[str]) -> list[Ids]:
        """The ids of a finished answer in two chunks.

        Args:
            steps: texts of all steps of the answer, one or more, none of them blank.

        Returns:
            The text up to the last special token before the answer, which depends on the question
            alone, and the rest. Neither is empty.
        """
        left, right = self._answer_cut
        answer = self._format.between.join(steps).lstrip(left).rstrip(right)
        question = trimmed(question, self._format.prompt, *self._question_cut)
        # Where no special token stands between the turns, both are encoded together.
        ids = self._chat.encode(filled(self._run, {QUESTION: question, STEP: answer}))
        return [self._prompt(question), self._without_padding(ids + self._chat.ids(self._after))]

    def _encode_prompt(self, question: str) -> Ids:
        return self._chat.ids(self._before, {QUESTION: question})

    def _without_padding(self, ids: Ids) -> Ids:
        end = len(ids)
        while end > 1 and ids[end - 1] == self._padding:
            end -= 1
        return ids[:end]

    def _rendered(self, question: str, answer: str) -> str:
        turns = [("user", question), ("assistant", answer)]
        return self._chat.render(turns, answer=False, system=self._format.system)

    def _cut_off(
        self, place: str, turns: Callable[[str], tuple[str, str]]
    ) -> tuple[Blanks, Blanks]:
        """The blanks that the template cuts off a message at its left and at its right.

        `place` is the message's mark; `turns` returns question and answer with a text for the
        message.
        """
        plain = self._rendered(*turns(place))

        def cut(text: Callable[[str], str]) -> Blanks:
            found = [
                each for each in _BLANKS + _ANY_BLANK if self._rendered(*turns(text(each))) == plain
            ]
            return None if _ANY_BLANK in found else "".join(found)

        return cut(lambda blank: blank + place), cut(lambda blank: place + blank)
