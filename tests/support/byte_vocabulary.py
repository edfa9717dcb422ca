"""A tokenizer of bytes and some longer tokens, as GPT-2's is."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<s>", "</s>")
"""The first two ids."""


def byte_tokenizer(words=()):
    """A byte-level BPE tokenizer of SPECIAL, all bytes, and tokens of the given bytes or texts.

    Without merges, so that a text is encoded byte by byte: a newline is one token and a blank line
    two, as in all vocabularies with GPT-2's splitting rule.
    """
    backend = Tokenizer(models.BPE(vocabulary(words), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        chat_template="<s>{{ messages[0]['content'] }}",
    )


def vocabulary(words=()):
    """Token -> id, the bytes written by GPT-2's letters."""
    letters = _letters()
    named = ["".join(letters[b] for b in _bytes(word)) for word in words]
    tokens = [*SPECIAL, *letters.values(), *named]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


def token_id(word, words=()):
    """Id of a token of the given bytes or text."""
    letters = _letters()
    return vocabulary(words)["".join(letters[b] for b in _bytes(word))]


def _bytes(word):
    return word if isinstance(word, bytes) else word.encode()


def _letters():
    """GPT-2's letter for each byte."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {b: chr(b) for b in printed} | {b: chr(256 + i) for i, b in enumerate(others)}
