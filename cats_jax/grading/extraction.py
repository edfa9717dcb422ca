r"""Extraction of the final answer of a text: boxes, "final answer is", or GSM8K's `####`."""

from __future__ import annotations

import re
from collections import deque

from .boxes import boxed_answer
from .canonical import OR, are_forms_of_one_number
from .thinking import without_thinking

MAX_BARE_CHARS = 2000
"""Longest text without any mark that is taken for an answer."""

# The answer will be the sum of both: a plan, which names no value.
_PLAN = (
    r"(?![\s*_]*(?:between\b|(?-i:an?|the|An|The)\s+(?!(?:and|or)\b)[a-z]{2}"
    r"(?![a-z]*\s+(?:\$|\\[(\[]|[-−]?\d))))"
)
# The answer is expected in degrees: its form.
_FORM = (
    r"(?![\s*_]*(?:expected|required|supposed|asked|(?:given|expressed)\s+in|"
    r"in\s+(?:an?|the\s+(?:form|box)|terms|simplest|lowest|degrees|radians)|"
    r"not\s+(?:affected|changed|yet|what|just|only|simply))\b)"
)
_IS = rf"(?:is|are|was|equals?|becomes)\b{_FORM}|(?:will|would|must|should) be\b{_PLAN}{_FORM}|:|="
# A remark about the answer follows, not the answer itself.
_REMARK = (
    r"(?![\s*_:]*(?:correct|incorrect|wrong|right|clear|obvious|reasonable|below|above|also|valid|"
    r"unique|consistent|verified|confirmed)\b)"
)
_ANSWERS = rf"answers?[*_]*\s*(?:(?:to|of|for)\s[^.:\n]{{1,60}}?\s)?(?:{_IS}){_REMARK}"
_FINAL = re.compile(rf"\bfinal\s+{_ANSWERS}", re.IGNORECASE)
_ANSWER = re.compile(rf"\b{_ANSWERS}", re.IGNORECASE)
_LEAD = re.compile(
    r"(?:[\s:*_=≈,]|\\approx(?![a-zA-Z])|(?:is|are|be|equals?(?: to)?|therefore|thus|hence|then|"
    r"so|simply|just|approximately|approx\.?|about|around|roughly|exactly|clearly|indeed|actually|"
    r"now|given by|option|choice)\b)*",
    re.IGNORECASE,
)
_FORMULAS = (
    ("$$", re.compile(r"\$\$")),
    ("$", re.compile(r"(?<!\\)\$(?!\d)")),  # $18, not $20
    (r"\(", re.compile(r"\\\)")),
    (r"\[", re.compile(r"\\\]")),
)
_NEXT_FORMULA = re.compile(r"\s*(?:,|;|,?\s*\b(?:and|or)\b)\s*(?=\$|\\\(|\\\[)")
# A full stop ends the sentence unless a digit follows, as in 3.5.
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\*\*|[?](?=\s|$)")
_REASON = re.compile(
    r"(?:\s*[,;:]|\s)\s*\(?(?:which|because|since|as|so|where|when|whereas|while|after|if|but|"
    r"not|rather|instead|making|giving|leaving|given|by|using|for|with|that|in total|in all|"
    r"altogether|as well|and\s+(?:the|so|it|its|we|this|that|these|hence|therefore|thus|not))\b"
    r"|\s+(?:[—–]|--?(?=\s+[a-zA-Z]{2}))\s.*"
    r"|\s+\((?=[a-zA-Z]{2,}[\s,])"
    r"|(?<=\d)\s+\((?!(?:hundred|thousand|(?:m|b|tr)illion|dozen|half|squared|cubed|binary|octal|hex)\w*\))"
    r"(?=[a-zA-Z]{4,}\))"
)
_OPENING, _CLOSING = "([{", ")]}"
# Tokens that some tokenizers leave at the end of a text.
_ENDS_OF_TEXT = re.compile(
    r"(?:\s|<\|(?:im_end|endoftext|eot_id|end_of_text|end)\|>|</s>|<end_of_turn>|<eos>"
    r"|<｜end▁of▁sentence｜>)*\Z"
)
_LONGEST_END = 200

_HASHES = re.compile(r"(?:^|(?<=\s))####(?!#)[ \t]*(\S[^\n]{0,200})$", re.MULTILINE)
# The same mark begins a heading in Markdown, so words may follow a number only as its unit.
_COUNT = re.compile(
    r"[-+−]?\s?[$€£¥]?\s?[-−]?(?:\d[\d.,]*\d|\d)(?:\s?/\s?\d+|\s\d+/\d+)?"
    r"\s?(?:[%°]|USD\b)?(?:/[a-z]+)?(?:\s[a-z°][a-z/²³^\d]*){0,6}"
)
_CLOCK = re.compile(r"\d{1,2}:[0-5]\d(?:\s?[aApP]\.?[mM]\.?)?")
_TITLE = re.compile(r"answer\s*:\s*", re.IGNORECASE)
_CLAIM = re.compile(r"\b(?:is|are|equals)\s+(?=\S)")
_CASE = re.compile(r"[=<>≤≥≠]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])")
_NUMBERING = re.compile(r"\(?\w{1,3}\)")
_WORD = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z]{2,}")
_FUNCTIONS = frozenset((
    "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "sqrt", "pi", "min", "max", "gcd",
    "lcm", "mod", "and", "or", "base",
))  # fmt: skip
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|mbox)\s*\{[^{}]*\}")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_CALCULATION = re.compile(
    r"(?:[\d\s.,+\-−*/×÷·()^{}$%]|\\(?:times|cdot|div|frac|dfrac|left|right))+"
)


def final_answer(text: str) -> str | None:
    r"""The answer that a text marks as final, or None; in linear time.

    Closed boxes take precedence over the last "final answer is ...", which takes precedence over
    the last line of the form `#### 42`. Thinking between tags is ignored.
    """
    return _final(_outside(text))


def given_answer(text: str) -> str | None:
    """The answer of a text that is a whole solution or a bare answer, or None.

    The first of these that exists: the result of `final_answer`; the last "answer is ..."; the text
    itself, if it is one line of at most `MAX_BARE_CHARS` characters; the last line or displayed
    formula, if it is a number or a formula without words.
    """
    text = _outside(text)
    found = _final(text) or _announced(text, _ANSWER)
    if found is not None:
        return found
    bare = text.strip()
    if "\n" not in bare:
        return bare if bare and len(bare) <= MAX_BARE_CHARS else None
    for opening, closing in ((r"\[", r"\]"), ("$$", "$$")):
        if bare.endswith(closing):
            start = bare.rfind(opening, 0, -2)
            return _value(" ".join(bare[start + 2 : -2].split())) if start >= 0 else None
    return _value(bare[bare.rfind("\n") + 1 :])


def hash_answer(text: str) -> str | None:
    """The value in the last line of the form `#### VALUE`, or None."""
    match = _last(_HASHES, text)
    title = _TITLE.match(match[1]) if match else None
    value = _value(match[1][title.end() if title else 0 :]) if match else None
    if match is None or value is None or _NUMBERING.fullmatch(value):
        return None
    # The heading of a case, such as `#### $n = 2$`, has text below it.
    if value.startswith(("$", "\\(")) and _CASE.search(value) and text[match.end() :].strip():
        return None
    return value if any(c.isnumeric() or c in "\\∞π" for c in value) else None


def _outside(text: str) -> str:
    """The text without thinking and without tokens at its end."""
    text = without_thinking([text]).rstrip()
    end = _ENDS_OF_TEXT.search(text, len(text) - _LONGEST_END)
    return text[: end.start()] if end else text


def _final(text: str) -> str | None:
    boxed = boxed_answer(text)
    if boxed is not None:
        return boxed or None
    return _announced(text, _FINAL) or hash_answer(text)


def _announced(text: str, announcement: re.Pattern[str]) -> str | None:
    """The text after the last announcement, up to the end of its formula or sentence, or None."""
    found = _last(announcement, text)
    if found is None:
        return None
    lead = _LEAD.match(text, found.end())
    start = lead.end() if lead else found.end()
    formula = _formula(text, start)
    if formula is not None:
        formulas, end, is_or = [formula[0]], formula[1], False
        # The roots are $2$ and $-3$.
        while (gap := _NEXT_FORMULA.match(text, end)) and (more := _formula(text, gap.end())):
            formulas.append(more[0])
            is_or, end = OR.search(gap[0]) is not None, more[1]
        if is_or and len(formulas) == 2:
            first, second = formulas
            if first == second or are_forms_of_one_number(first, second):
                return _result(first)
        return _result("; ".join(formulas))
    stop = text.find("\n", start)
    line = text[start:] if stop < 0 else text[start:stop]
    line = line[:MAX_BARE_CHARS]
    end_of_sentence = _SENTENCE_END.search(line)
    answer = _without_prose(line[: end_of_sentence.start()] if end_of_sentence else line)
    return _claimed(answer) or _result(answer)


def _claimed(answer: str) -> str | None:
    """The value at the end of a sentence: `216 cm` of `The volume of the cube is 216 cm`."""
    claim = _last(_CLAIM, answer)
    if claim is None or not _has_words(answer[: claim.start()]):
        return None
    return _value(answer[claim.end() :])


def _formula(text: str, start: int) -> tuple[str, int] | None:
    """The formula in delimiters that begins at `start`, and where it ends."""
    for opening, closing in _FORMULAS:
        if text.startswith(opening, start):
            inside = start + len(opening)
            end = closing.search(text, inside)
            # One dollar alone is a price.
            if end and "\n\n" not in (formula := text[inside : end.start()]) and formula.strip():
                return formula.strip(), end.end()
    return None


def _without_prose(sentence: str) -> str:
    """The answer at the beginning of a sentence: `84` of `84, in total, which is even`."""
    reason = _REASON.search(sentence, 1)
    answer = sentence[: reason.start()] if reason else sentence
    level = 0
    for position, character in enumerate(answer):
        level += (character in _OPENING) - (character in _CLOSING)
        if (
            character in ",;"
            and level == 0
            and _is_prose(answer[:position], answer[position + 1 :])
        ):
            return answer[:position].strip()
    return answer.strip()


def _is_prose(answer: str, rest: str) -> bool:
    """Whether the text after a comma is prose, not a further item of an answer."""
    item = re.sub(r"^\s*(?:and|or)\s", "", rest).strip()
    words = _WORD.findall(item.split(",")[0])
    if words and not _has_words(answer):
        return words[0] not in _FUNCTIONS and bool(re.match(r"(?:[aA]\s+)?[a-zA-Z]{2}", item))
    # A list of names continues with names.
    return len(words) > 2 or (len(words) == 1 and words[0].islower() and answer[:1].isupper())


def _has_words(text: str) -> bool:
    return not _FUNCTIONS.issuperset(_WORD.findall(_TEXT.sub("", text)))


def _value(line: str) -> str | None:
    """A whole line as an answer: a count with its unit, or a formula without words; else None."""
    if len(line) > MAX_BARE_CHARS:
        return None
    line = line.strip().strip("*_`= \t").rstrip(".,;:").rstrip("*_` \t").strip()
    if _COUNT.fullmatch(line) or _CLOCK.fullmatch(line):
        return line
    plain = _COMMAND.sub(" ", _TEXT.sub("", line))
    if _has_words(plain) or not re.search(r"[\w∞π]", line):
        return None
    return _result(line)


def _result(text: str) -> str | None:
    """The text, or only the result if it is a calculation in numbers: `56` of `7*8 = 56`."""
    before, _, after = text.rpartition("=")
    if after.strip() and all(_CALCULATION.fullmatch(part) for part in before.split("=")):
        text = after
    return text.strip() or None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None
