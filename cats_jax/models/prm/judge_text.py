"""The prompt of a language model as judge, with question and path inserted in its places.

Question and steps are treated as hostile text. Each stands between two tags, and its text can't
contain such a tag. A line that the read-out would accept as a verdict gets a bar before it, so that
a judge that repeats the line states no verdict. Names of special tokens are ordinary text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from ...errors import BadInputError
from ...grading.thinking import TAGS
from ..prompts.chat_template import Ids, has_switch
from ..prompts.policy_encoder import PromptEncoder
from ..prompts.policy_format import POLICY_FORMATS, PolicyFormat
from .encoder import check_pair, token_id
from .format import PRMFormat, TokenPair
from .verdict import BAR, WrittenVerdict

_PLACES = re.compile(r"\{(question|path|step)\}")
_TAGS = re.compile(r"<(?=[\s/]{0,8}(?:question|step))", re.IGNORECASE)


def judge_text(prm_format: PRMFormat, question: str, steps: Sequence[str]) -> str:
    """The user's message for judging the newest of the `steps`, one or more."""
    tags = [f"step_{number}" for number in range(1, len(steps) + 1)]
    parts = [_fenced(prm_format, *each) for each in zip(tags, steps, strict=True)]
    texts = {
        "question": _fenced(prm_format, "question", question),
        "path": "\n".join(parts),
        "step": parts[-1],
    }
    # In one pass: inserted texts are not searched for places.
    return _PLACES.sub(lambda place: texts[place[1]], prm_format.prompt)


def _fenced(prm_format: PRMFormat, tag: str, text: str) -> str:
    text = _TAGS.sub("&lt;", text)
    verdict = prm_format.read_out
    if isinstance(verdict, WrittenVerdict):
        shown = [
            line if verdict.of_line(line) is None else f"{BAR} {line}" for line in text.split("\n")
        ]
        text = "\n".join(shown)
    return f"<{tag}>\n{text}\n</{tag}>"


def judge_policy_format(prm_format: PRMFormat) -> PolicyFormat:
    """The policy format of a judge: the message unchanged, and the end tokens of all families."""
    ends = (token for known in POLICY_FORMATS.values() for token in known.end_tokens)
    return PolicyFormat(
        prm_format.name, system=prm_format.system, end_tokens=tuple(dict.fromkeys(ends))
    )


class JudgeEncoder:
    """Token ids of the prompts of a judge whose score is the probability of its next token.

    Args:
        prm_format: format with the layout "judge" and two tokens as read-out.
        tokenizer: the model's transformers tokenizer.

    Attributes:
        tag_id: id of the last token of every prompt, at which the score is read.
        pair_ids: ids of the positive and the negative token.

    Raises:
        BadInputError: the format does not fit the tokenizer, or is that of a judge that writes, or
            the chat template opens a thought, which no switch `enable_thinking` closes.
    """

    def __init__(self, prm_format: PRMFormat, tokenizer: Any):
        pair = prm_format.read_out
        if isinstance(pair, WrittenVerdict) or not isinstance(pair, TokenPair):
            raise BadInputError(
                f"PRM format {prm_format.name!r} is that of a judge that writes critiques: load it "
                "by ModelFolders().prm, or make a JudgeScorer of a policy"
            )
        self._format = prm_format
        asked = judge_policy_format(prm_format)
        # The next token must be the answer, not the beginning of a thought.
        if has_switch(tokenizer, "enable_thinking"):
            asked = dataclasses.replace(asked, enable_thinking=False)
        self._prompts = PromptEncoder(asked, tokenizer)
        # A system message before the question may name the tags.
        shown = tokenizer.decode(list(self._prompts.prompt_ids("?"))).rpartition("?")[2]
        if any(shown.rfind(start) > shown.rfind(end) for start, end in TAGS):
            raise BadInputError(
                f"PRM format {prm_format.name!r} reads the next token, and the chat template opens "
                "a thought before it: take a judge that writes, such as judge-critique"
            )
        if not self._prompts.opening:
            raise BadInputError(
                f"PRM format {prm_format.name!r} does not fit the tokenizer: its chat template "
                "does not begin with a special token"
            )
        positive = self._answer_id(tokenizer, pair.positive)
        self.pair_ids = (positive, self._answer_id(tokenizer, pair.negative))
        check_pair(prm_format, self.pair_ids)
        self.tag_id = self._prompts.prompt_ids("?")[-1]

    def chunks(self, question: str, steps: Sequence[str]) -> list[Ids]:
        """The ids of a prompt in two chunks: the beginning that all prompts share, and the rest."""
        ids = self._prompts.prompt_ids(judge_text(self._format, question, steps))
        begin = len(self._prompts.opening)
        return [ids[:begin], ids[begin:]]

    def _answer_id(self, tokenizer: Any, word: str) -> int:
        """Id of a word as the model would answer it, such as Mistral's with a space before it.

        A token that is given by its name, or that the chat template does not show, is as it is.
        """
        prompt = self._prompts.prompt_ids("?")
        answered = self._prompts.answered_ids("?", word)
        more = list(answered[len(prompt) :])
        is_one = answered[: len(prompt)] == prompt and len(more) == 1
        if is_one and tokenizer.decode(more).strip() == word.strip():
            return more[0]
        return token_id(self._format, tokenizer, word)
