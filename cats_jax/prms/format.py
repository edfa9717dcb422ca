"""How a process reward model reads a path, as data.

All formats share one skeleton. The question becomes ids by the tokenizer's chat template. Each
step's text becomes ids by itself, and the tag's id is appended to them, as an id: text is never
joined and encoded again, and a tag is never looked for, so that nothing a step contains (the tag's
own characters, newlines, names of special tokens) can add or move one. Sequences only grow at the
end, which is what lets a step's keys and values be reused by every longer path. The score of step
t is read off at its tag, the last token of its chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cats_jax.errors import BadInputError


@dataclass(frozen=True, slots=True)
class TokenPair:
    """Read-out of a causal model: the softmax over the logits of two tokens.

    Attributes:
        positive: its probability is the score.
        negative: the other one.
    """

    positive: str
    negative: str


@dataclass(frozen=True, slots=True)
class PRMFormat:
    """One family of process reward models.

    Attributes:
        name: key in `PRM_FORMATS`.
        tag: the token that closes every step and carries its score.
        read_out: how the score follows from the model's output at the tag.
        last_layer: sets of stored tensor names, in order of preference: the first set that a
            checkpoint has is its last layer (a tied head is stored as the embedding only).
    """

    name: str
    tag: str
    read_out: TokenPair
    last_layer: tuple[tuple[str, ...], ...]


WORLD = PRMFormat(
    name="world",
    tag="\n\n",
    read_out=TokenPair(positive="+", negative="-"),
    last_layer=(("lm_head.weight",), ("model.embed_tokens.weight",)),
)
"""The embedded world's PRMs: the blank line that closes a step says whether it is right."""

PRM_FORMATS: dict[str, PRMFormat] = {WORLD.name: WORLD}


def prm_format(name: str) -> PRMFormat:
    """The format of this name.

    Raises:
        BadInputError: there is none.
    """
    if name not in PRM_FORMATS:
        known = ", ".join(sorted(PRM_FORMATS))
        raise BadInputError(f"PRM format {name!r} is unknown: use one of {known}")
    return PRM_FORMATS[name]


class StepEncoder:
    """A format's text-to-ids rules with one tokenizer's ids.

    Args:
        prm_format: the format.
        tokenizer: the PRM's own, a transformers tokenizer.

    Attributes:
        tag_id, positive_id, negative_id: of the format's tokens.

    Raises:
        BadInputError: one of the format's tokens is not a single token of the tokenizer.
    """

    def __init__(self, prm_format: PRMFormat, tokenizer: Any):
        self._tokenizer = tokenizer

        def single(token: str) -> int:
            ids = tokenizer(token, add_special_tokens=False)["input_ids"]
            if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
                raise BadInputError(
                    f"PRM format {prm_format.name!r} needs {token!r} as one token, the tokenizer "
                    f"makes {len(ids)} of it: choose the format the PRM was trained with"
                )
            return int(ids[0])

        self.tag_id = single(prm_format.tag)
        self.positive_id = single(prm_format.read_out.positive)
        self.negative_id = single(prm_format.read_out.negative)

    def step_ids(self, text: str) -> tuple[int, ...]:
        """A step's chunk: the ids of its text, then the tag's.

        Names of special tokens inside the text are spelled out, not taken for the tokens.
        """
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        return (*encoded["input_ids"], self.tag_id)
