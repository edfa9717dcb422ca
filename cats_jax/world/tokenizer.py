r"""The world's tokenizer: single characters, the blank line and ``\boxed{`` as one token each.

No token spans the border between two steps, so a path can grow by appending ids: those of a step
and that of the separator. Policies and PRMs share this vocabulary.
"""

from __future__ import annotations

import re

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from .task import STEP_SEPARATOR

PAD, BOS, EOS, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
BOX_OPEN = "\\boxed{"
VOCABULARY = (PAD, BOS, EOS, UNKNOWN, STEP_SEPARATOR, BOX_OPEN, "}", *"0123456789+-*/%()=?")
"""All tokens, in the order of their ids."""

TOKEN_IDS = {token: index for index, token in enumerate(VOCABULARY)}
PAD_ID, BOS_ID, EOS_ID = TOKEN_IDS[PAD], TOKEN_IDS[BOS], TOKEN_IDS[EOS]
SEPARATOR_ID = TOKEN_IDS[STEP_SEPARATOR]
PLUS_ID, MINUS_ID = TOKEN_IDS["+"], TOKEN_IDS["-"]

# A run of newlines is split into pairs from its end: a newline that ends a step stays in the step.
_SPLIT = r"\\boxed\{|\n\n(?=(?:\n\n)*(?!\n))|\n|[^\n]"
_TOKENS = re.compile(_SPLIT)

# The world has no system prompt; a user's turn is the question, and the answer follows it.
_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ message['content'] }}{{ '\n\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}{% endif %}"
    "{% endfor %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer saved in every model folder of the world.

    It adds no special token: a prompt's ``<s>`` comes from the chat template or from the caller.
    Characters outside the vocabulary become ``<unk>``.
    """
    tokenizer = Tokenizer(models.WordLevel(TOKEN_IDS, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )


def encode(text: str) -> list[int]:
    """Ids of a text as by `build_tokenizer()`, but faster; ValueError for unknown characters."""
    try:
        return [TOKEN_IDS[token] for token in _TOKENS.findall(text)]
    except KeyError as error:
        raise ValueError(
            f"{error.args[0]!r} in {text[:80]!r} is not in the world's vocabulary"
        ) from None


def decode(ids: list[int]) -> str:
    """Text of ids; padding, ``<s>`` and ``</s>`` are dropped."""
    return "".join(VOCABULARY[i] for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID))


def prompt_ids(question_text: str) -> list[int]:
    """The ids that a policy continues: ``<s>``, the question, the separator."""
    return [BOS_ID, *encode(question_text), SEPARATOR_ID]


def path_ids(question_text: str, steps: list[str] | tuple[str, ...]) -> list[int]:
    """The ids that a PRM reads: the prompt, then each step closed by the separator."""
    ids = prompt_ids(question_text)
    for step in steps:
        ids += [*encode(step), SEPARATOR_ID]
    return ids
