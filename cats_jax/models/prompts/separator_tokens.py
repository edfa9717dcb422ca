"""The tokens of a vocabulary at which the separator of steps can be complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_CUT = "\ufffd"
"""What a decoder writes for bytes that are part of a character."""


@dataclass(frozen=True, slots=True)
class SeparatorTokens:
    """The tokens of one vocabulary that end with the separator or with a part of it.

    Attributes:
        whole: the tokens that contain the separator, each with its text.
        last: the tokens that may complete a separator which other tokens have begun; empty if no
            sequence of tokens spells it. A token in it need not complete one.
    """

    whole: dict[int, str]
    last: frozenset[int]


def separator_tokens(
    decode: Callable[[Sequence[int]], str], vocab_size: int, separator: str
) -> SeparatorTokens:
    """Finds the tokens at which a separator, a text that is not empty, can be complete.

    `decode` makes a text of token ids, of which there are `vocab_size`.
    """
    texts = {token: decode([token]) for token in range(vocab_size)}
    whole = {token: text for token, text in texts.items() if separator in text}
    if " " in separator:
        # Sentencepiece decoders drop the space before a token that comes first.
        behind = _texts_behind_another(decode, texts)
        whole = {token: text for token, text in behind.items() if separator in text} | whole
        last = _completing(behind, separator) | _completing(texts, separator)
        spelled = _is_spelled(decode, behind, separator)
    else:
        last = _completing(texts, separator)
        spelled = _is_spelled(decode, texts, separator)
    return SeparatorTokens(whole, frozenset(last - whole.keys()) if spelled else frozenset())


def _texts_behind_another(
    decode: Callable[[Sequence[int]], str], texts: dict[int, str]
) -> dict[int, str]:
    """What each token adds to the text of a token before it."""
    anchor = next((token for token, text in texts.items() if text.isalnum()), None)
    if anchor is None:
        return texts
    first = texts[anchor]
    both = {token: decode([anchor, token]) for token in texts}
    return {
        token: text.removeprefix(first) if text.startswith(first) else texts[token]
        for token, text in both.items()
    }


def _completing(texts: dict[int, str], separator: str) -> set[int]:
    """The tokens that begin with an end of the separator, bytes of its characters included."""
    ends = tuple(separator[k:] for k in range(1, len(separator)))
    ends += () if separator.isascii() else (_CUT,)
    return {token for token, text in texts.items() if text.startswith(ends)}


def _is_spelled(
    decode: Callable[[Sequence[int]], str], texts: dict[int, str], separator: str
) -> bool:
    """Whether several tokens make the separator together."""
    if not separator.isascii() and any(text == _CUT for text in texts.values()):
        return True  # a vocabulary of bytes
    size = len(separator)
    inner = {text: token for token, text in texts.items() if 0 < len(text) < size}
    # By a number of characters: tokens that end with so many of the separator's first ones, and a
    # token that begins with all behind them.
    ways: dict[int, tuple[int, ...]] = {}
    last: dict[int, int] = {}
    for token, text in texts.items():
        for k in range(1, size):
            if text.endswith(separator[:k]):
                ways.setdefault(k, (token,))
            if text.startswith(separator[k:]):
                last.setdefault(k, token)
    for k in range(1, size):
        if k not in ways:
            continue
        # Some decoders write spaces between tokens: the text decides.
        if k in last and separator in decode([*ways[k], last[k]]):
            return True
        for end in range(k + 1, size):
            if (token := inner.get(separator[k:end])) is not None:
                ways.setdefault(end, (*ways[k], token))
    return False
