r"""Extraction of the final answer of a text: a box, "final answer is", or GSM8K's `####`."""

from __future__ import annotations

import re
from collections import deque

from .boxed_integer import extract_boxed

MAX_BARE_CHARS = 2000
"""Longest text without any mark that is taken for an answer."""

_FINAL = re.compile(r"\bfinal answer(?: is\b|\s*:)", re.IGNORECASE)
_ANSWER = re.compile(r"\banswer(?: is\b|\s*:)", re.IGNORECASE)
_HASHES = re.compile(r"^####[ \t]*(\S[^\n]{0,60})$", re.MULTILINE)
# The same mark begins a heading in Markdown, so it must be a number.
_NUMBER = re.compile(r"[-+]?\$?-?[\d.,]{1,50}\s?%?")
_LEAD = re.compile(r"[\s:*_]*(?:(?:is|equals)\b)?[\s:*_]*")
_FORMULAS = (
    ("$$", re.compile(r"\$\$")),
    ("$", re.compile(r"(?<!\\)\$")),
    (r"\(", re.compile(r"\\\)")),
    (r"\[", re.compile(r"\\\]")),
)
# A full stop ends the sentence unless a digit follows, as in 3.5.
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\*\*")


def final_answer(text: str) -> str | None:
    r"""The answer that a text marks as final, or None.

    The last closed box takes precedence over the last "final answer is ...", which takes precedence
    over the last line of the form `#### 42`. The time is linear in the length of the text.
    """
    boxed = extract_boxed(text)
    if boxed is not None:
        return boxed or None
    return _announced(text, _FINAL) or hash_answer(text)


def given_answer(text: str) -> str | None:
    """The answer of a text that is a whole solution or a bare answer, or None.

    The result is that of `final_answer`, otherwise the last "answer is ...", otherwise the text
    itself if it is one line of at most `MAX_BARE_CHARS` characters.
    """
    found = final_answer(text) or _announced(text, _ANSWER)
    if found is not None:
        return found
    bare = text.strip()
    return bare if bare and "\n" not in bare and len(bare) <= MAX_BARE_CHARS else None


def hash_answer(text: str) -> str | None:
    """The number in the last line of the form `#### NUMBER`, or None."""
    match = _last(_HASHES, text)
    number = match.group(1).strip() if match else ""
    return number if _NUMBER.fullmatch(number) else None


def _announced(text: str, announcement: re.Pattern[str]) -> str | None:
    """The text after the last announcement, up to the end of its formula or sentence, or None."""
    found = _last(announcement, text)
    if found is None:
        return None
    lead = _LEAD.match(text, found.end())
    start = lead.end() if lead else found.end()
    for opening, closing in _FORMULAS:
        if text.startswith(opening, start):
            inside = start + len(opening)
            end = closing.search(text, inside)
            # One dollar alone is a price.
            if end and "\n\n" not in (formula := text[inside : end.start()]) and formula.strip():
                return formula.strip()
    stop = text.find("\n", start)
    line = text[start:] if stop < 0 else text[start:stop]
    end_of_sentence = _SENTENCE_END.search(line)
    return (line[: end_of_sentence.start()] if end_of_sentence else line).strip() or None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None
