r"""Canonical spelling of answers, by text replacement without parsing.

Two spellings become the same text only if they are the same answer in any context. Units, currency
and the percent sign are dropped, because the question fixes them: 90^\circ is 90, and 5\% is 5, not
0.05.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from .plain_numbers import plain_number

_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "⋅": r"\cdot ",
    "·": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/", "√": r"\sqrt ", "∞": r"\infty ",
    "°": r"^\circ ", "º": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ",
    "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "λ": r"\lambda ", "μ": r"\mu ",
    "φ": r"\phi ", "ω": r"\omega ", "σ": r"\sigma ", "∠": r"\angle ", "⌊": r"\lfloor ",
    "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "“": "", "”": "", "’": "'", "…": r"\ldots ",
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")

_TEXT_COMMAND = r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|mathrm|mathbf|mathit|operatorname|rm)\b"
_UNITS = (
    "cm|mm|km|dm|nm|ft|in|inch|inches|feet|foot|yd|yards?|miles?|meters?|metres?|kilometers?|"
    "centimeters?|millimeters?|kg|mg|lbs?|oz|grams?|kilograms?|pounds?|ounces?|tons?|ml|mL|"
    "liters?|litres?|gallons?|cups?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|"
    "months?|years?|mph|kmh|kph|degrees?|deg|radians?|dollars?|cents?|euros?|USD|units?|"
    "square|sq|cubic|percent|points?|people|ways|per"
)
# These words turn the number before them into another number or a formula.
_NUMBER_WORDS = frozenset((
    "pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "inf",
    "infinity", "and", "or", "base", "mod", "hundred", "thousand", "million", "billion",
    "trillion", "hundreds", "thousands", "millions", "billions", "trillions", "dozen", "dozens",
    "half", "halves", "third", "thirds", "quarter", "quarters", "fourths", "fifths", "sixths",
    "sevenths", "eighths", "ninths", "tenths", "hundredths", "thousandths", "times", "over", "plus",
    "minus", "frac", "squared", "cubed", "to", "out",
))  # fmt: skip

_SPACING = re.compile(
    r"\\!\s*|(?<!\\)\\[,;: ]|\\(?:q?quad|thinspace|displaystyle|textstyle|limits)(?![a-zA-Z])|~"
)
# `\left.` and `\right.` are invisible; the full stop belongs to them.
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|middle)(?![a-zA-Z])(?:\s*\.)?")
_FRACTIONS = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\{[^{}]*\}|\d|[a-zA-Z])\s*(\{[^{}]*\}|\d|[a-zA-Z])")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\d|[a-zA-Z](?![a-zA-Z]))")
_ROOT_PARENTHESES = re.compile(r"\\sqrt\s*\(([^()]*)\)")
_ROOT_NUMBER = re.compile(r"√\s*(\d+(?:\.\d+)?)")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degrees?\b")
_CURRENCY = re.compile(r"\\?\$|[€£¥₹]|\bUSD\b|\\(?:pounds|euro)\b")
_PERCENT = re.compile(r"\\?%")
# Names and powers of plain text, such as `2pi` and `x**2`.
_NAME = re.compile(r"(?<![\\a-zA-Z])(pi|infinity|log(?!\d)|ln|sin|cos|tan)(?![a-zA-Z])")
_POWER = re.compile(
    r"(?<=[\w)\]}])(?:\*\*| \*\* )(?:\(([^()]*)\)|(-?\d+(?:\.\d+)?|[a-zA-Z](?![a-zA-Z])))"
)
_THOUSANDS_BRACES = re.compile(r"\{\s*,\s*\}")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])")
_SINGLE_BRACES = re.compile(r"([\^_])\s*\{\s*([0-9a-zA-Z])\s*\}")
_AND_OR = re.compile(rf",?\s*(?:{_TEXT_COMMAND}\s*\{{\s*(?:and|or)\s*\}}|\b(?:and|or)\b)\s*")
# 4m for any integer m; 2n+1, where n is an integer; k\pi, k \in \mathbb{Z}
_QUALIFICATION = re.compile(
    rf"(?<=\S)(?:,? ?{_TEXT_COMMAND} ?\{{ ?,?|,| ) ?(?:"
    r"(?:for|where|with) (?:any|all|every|each|some)\b"
    rf"|(?:for|where|with) ?\}}? ?\$?[a-zA-Z]\$? ?(?:{_TEXT_COMMAND} ?\{{ ?)?(?:is )?(?:an?|any) "
    r"|(?:(?<=,)|(?<=, )|(?:for|where|with) ?\}? ?)\$?[a-zA-Z] ?\\in ?\\mathbb ?\{?[A-Z]).*$"
)
_CONDITION = re.compile(r"[<>=]|\\(?:le|ge|leq|geq|lt|gt|ne|neq)(?![a-zA-Z])")
_TRAILING_TEXT = re.compile(
    rf"(?<=\S)\s*{_TEXT_COMMAND}\s*\{{[^{{}}]*\}}(?:\s*/\s*{_TEXT_COMMAND}\s*\{{[^{{}}]*\}})?"
    r"\s*(?:\^\s*\{?\s*-?\d\s*\}?)?\s*$"
)
_TEXT = re.compile(rf"{_TEXT_COMMAND}\s*\{{([^{{}}]*)\}}")
_UNIT = re.compile(
    rf"(?<=[\d}})\] ])(?:{_UNITS})\b\.?(?: ?\^ ?\{{? ?[23] ?\}}?)?(?: ?/ ?(?:{_UNITS}|s|h)\b)?$"
)
_TRAILING_WORDS = re.compile(r"(?<=[\d }])([a-zA-Z]{2,}(?: [a-zA-Z]+)*)$")
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip
_BASE_IN_WORDS = re.compile(
    rf"_\s*\{{?\s*(?:{_TEXT_COMMAND}\s*\{{)?\s*(?:base\s*)?(\d+|{'|'.join(_BASES)})\s*\}}*$"
    rf"|\s+(?:in\s+)?base\s+(\d+|{'|'.join(_BASES)})$"
)
_ASSIGNMENT = re.compile(
    r"(?:\\?[a-zA-Z]+|[a-zA-Z])(?:_(?:\{[^{}]*\}|\w))?(?:\([a-zA-Z, ]*\))?\s*=(?!=)\s*(?=[^=]+$)"
)
_MEMBERSHIP = re.compile(r"[a-zA-Z]\s*\\in(?![a-zA-Z])\s*(?=\S)")
_CHOICE = re.compile(r"\(?([A-Z])\)?")
_LIST_SPACE = re.compile(r"(?<=\d),\s+(?=\d{3}(?!\d))")
_INNER_SPACE = re.compile(r"(?<![a-zA-Z0-9])\s+|\s+(?![a-zA-Z0-9])")
_COMMAND_SPACE = re.compile(r"(\\[a-zA-Z]+) (?=\d)|(?<=\d) (?=[a-zA-Z])")
_LETTERS = re.compile(r"\\[a-zA-Z]+|[^a-zA-Z]+")
_WORD = re.compile(r"[a-zA-Z][a-zA-Z' \-]{3,}")
# Shorter words are products of variables, except for these.
_SHORT_WORDS = frozenset(("yes", "no", "odd", "all"))
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_VALUE_ENDS = (*"0123456789", "}", ")", "]")
_ENDS = ".,;:"


def canonical(answer: str) -> str:
    r"""The canonical spelling of an answer, "" if nothing remains; idempotent.

    The caller bounds the length of the text.
    """
    text = _plain_characters(answer)
    # A round may uncover something that the next round can remove: `$5\text{ cm}.$`
    for _ in range(4):
        before = text
        text = _one_round(text)
        if text == before:
            break
    if match := _CHOICE.fullmatch(text):
        return match[1]
    return text.lower() if is_word(text) else text


def is_word(text: str) -> bool:
    """Whether a canonical text consists of words, not mathematics, such as `even` or `east`."""
    return _WORD.fullmatch(text) is not None or text.lower() in _SHORT_WORDS


def _one_round(text: str) -> str:
    # Each run of blanks becomes one, so that no pattern can try many ways to divide a run.
    text = " ".join(_unwrapped(text).split())
    text = _SPACING.sub(lambda match: "" if match[0].startswith(r"\!") else " ", text)
    text = " ".join(text.split())
    text = _SIZES.sub("", text)
    text = _FRACTIONS.sub(r"\\frac", text)
    text = _THOUSANDS_BRACES.sub(",", text)
    text = _BASE_IN_WORDS.sub(_base, text)
    text = _without_qualification(text)
    text = _AND_OR.sub(";", text) if _has_list_word(text) else text
    text = _DEGREES.sub("", text)
    text = _CURRENCY.sub("", text)
    text = _PERCENT.sub("", text)
    text = _without_unit(text)
    text = _TEXT.sub(lambda match: match[1], text)
    # Words have no case, and so have names in them.
    text = _NAME.sub(_command, text.lower() if _WORD.fullmatch(text) else text)
    if not text.startswith("**"):  # emphasis
        text = _POWER.sub(lambda match: f"^{{{match[1] or match[2] or ''}}}", text)
    text = _SHORT_FRACTION.sub(_braced_fraction, text)
    text = _ROOT_PARENTHESES.sub(r"\\sqrt{\1}", text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    text = " ".join(_SINGLE_BRACES.sub(r"\1\2", text).split())
    text = _SPACED_THOUSANDS.sub(lambda match: match[0].replace(" ", ""), text)
    text = _LIST_SPACE.sub(";", text)
    text = _COMMAND_SPACE.sub(lambda match: match[1] or "", _INNER_SPACE.sub("", text))
    text = _MEMBERSHIP.sub("", text, count=1) if _MEMBERSHIP.match(text) else text
    text = _without_assignment(text.strip().rstrip(_ENDS).strip())
    # An accent that was after a blank is now after a letter.
    return unicodedata.normalize("NFKC", text)


def _plain_characters(text: str) -> str:
    text = _ROOT_NUMBER.sub(r"\\sqrt{\1}", text)
    parts: list[str] = []
    raised = lowered = ""
    for character in text:
        now_raised = character in "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ"
        now_lowered = character in "₀₁₂₃₄₅₆₇₈₉"
        if raised and not now_raised:
            parts.append(f"^{{{raised.translate(_RAISED)}}}")
            raised = ""
        if lowered and not now_lowered:
            parts.append(f"_{{{lowered.translate(_LOWERED)}}}")
            lowered = ""
        if now_raised:
            raised += character
        elif now_lowered:
            lowered += character
        else:
            parts.append(_plain_character(character))
    parts.append(f"^{{{raised.translate(_RAISED)}}}" if raised else "")
    parts.append(f"_{{{lowered.translate(_LOWERED)}}}" if lowered else "")
    # Normalising may create one of `_SYMBOLS`, for example from a micro sign, or from an equals
    # sign and a stroke through it.
    return "".join(map(_plain_character, unicodedata.normalize("NFKC", "".join(parts))))


def _plain_character(character: str) -> str:
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    if unicodedata.category(character) == "No" and "VULGAR" in unicodedata.name(character, ""):
        value = Fraction(unicodedata.numeric(character)).limit_denominator(100)
        return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    return " " if unicodedata.category(character) in ("Cc", "Cf", "Zs") else character


def _unwrapped(text: str) -> str:
    text = text.strip().rstrip(_ENDS).strip()
    for opening, closing in _DELIMITERS:
        if text.startswith(opening) and text.endswith(closing):
            inside = text[len(opening) : -len(closing)]
            if len(text) >= len(opening) + len(closing) and opening not in inside:
                return inside.strip()
    match = re.match(r"\\(?:boxed|fbox)\s*\{", text)
    if match and text.endswith("}") and _closes_at_end(text, match.end()):
        return text[match.end() : -1].strip()
    match = re.match(rf"{_TEXT_COMMAND}\s*\{{", text)
    if match and text.endswith("}") and _closes_at_end(text, match.end()):
        return text[match.end() : -1].strip()
    return text


def _closes_at_end(text: str, start: int) -> bool:
    """Whether the group whose content begins at `start` ends with the text."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position == len(text) - 1
    return False


def _base(match: re.Match[str]) -> str:
    base = match[1] or match[2]
    return f"_{{{_BASES.get(base, base)}}}"


def _without_qualification(text: str) -> str:
    """Drop a remark that a variable is arbitrary; a condition on it belongs to the answer."""
    match = _QUALIFICATION.search(text)
    if match is None or _CONDITION.search(match[0]):
        return text
    head = text[: match.start()]
    return head if all(head.count(a) == head.count(b) for a, b in ("()", "[]", "{}")) else text


def _has_list_word(text: str) -> bool:
    return ("and" in text or "or" in text) and not _WORD.fullmatch(text)


def _command(match: re.Match[str]) -> str:
    return r"\infty" if match[1] == "infinity" else rf"\{match[1]}"


def _braced_fraction(match: re.Match[str]) -> str:
    above, below = (part if part.startswith("{") else f"{{{part}}}" for part in match.groups())
    return rf"\frac{above}{below}"


def _without_unit(text: str) -> str:
    """Drop units: texts after a value, units after a number, words after a plain number."""
    shorter = _TRAILING_TEXT.sub("", text)
    if shorter.strip() and not shorter.rstrip().endswith(("^", "_", "=", "{", "(", ",")):
        text = shorter
    shorter = text
    for _ in range(4):  # `square meters per second`
        shorter = _UNIT.sub("", shorter).rstrip()
    if shorter.endswith(_VALUE_ENDS):
        text = shorter
    match = _TRAILING_WORDS.search(text)
    if match and plain_number(text[: match.start()].strip()) is not None:
        words = match[1].lower().split()
        if not _NUMBER_WORDS.intersection(words):
            text = text[: match.start()]
    return text


def _without_assignment(text: str) -> str:
    """`x = 5` is 5, and so are `f(1) = 5` and `a_1 = 5`; `y = 2x` stays an equation."""
    match = _ASSIGNMENT.match(text)
    if match is None:
        return text
    value = text[match.end() :]
    variables = [part for part in _LETTERS.sub(" ", value).split() if part != "i"]
    return text if variables else value
