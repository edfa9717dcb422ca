"""Answers that are plain numbers, compared exactly and without any parser of mathematics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 1000
"""Longest text that is read as a number: longer ones are slow, or Python refuses them."""

_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_DECIMAL = re.compile(rf"([+-]?)({_UNSIGNED})")
_SCIENTIFIC = re.compile(r"([+-]?)(\d+(?:\.\d*)?)[eE]([+-]?\d{1,3})")
_QUOTIENT = re.compile(
    rf"([+-]?)(?:\\frac\{{([+-]?(?:{_UNSIGNED}))\}}\{{([+-]?(?:{_UNSIGNED}))\}}"
    rf"|({_UNSIGNED})/({_UNSIGNED}))"
)
_MIXED = re.compile(r"([+-]?)(\d+)(?:\\frac\{(\d+)\}\{(\d+)\}|[ ](\d+)/(\d+))")
_REPEATING = re.compile(r"([+-]?)(\d*)\.(\d*)\\(?:overline|bar|dot)(?:\{(\d+)\}|(\d))")
_SCALED = re.compile(rf"([+-]?)({_UNSIGNED}) ?(dozen|hundred|thousand|million|billion|trillion)s?")
_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12,
}  # fmt: skip
_BASED = re.compile(
    r"([+-]?)(\()?([0-9A-Fa-f]+(?:,\d{3})*(?:\.[0-9A-Fa-f]+)?)(?(2)\))_(?:\{\(?(\d{1,2})\)?\}|(\d))"
)


@dataclass(frozen=True, slots=True)
class BasedNumber:
    """A number written in a base, such as 52_8; equal if digits (with sign) and base are equal."""

    digits: str
    base: int


PlainNumber = Fraction | BasedNumber


def plain_number(text: str) -> PlainNumber | None:
    r"""The exact number that a canonical text denotes, or None.

    Numbers are integers with or without thousands separators, decimals, `5e3`, `a/b`,
    `\frac{a}{b}`, mixed numbers, repeating decimals as `0.\overline{3}`, `3million`, and digits
    with a base as subscript.
    """
    if len(text) > MAX_DIGITS:
        return None
    if match := _DECIMAL.fullmatch(text):
        return _signed(match[1], _fraction(match[2]))
    if match := _SCIENTIFIC.fullmatch(text):
        return _signed(match[1], _fraction(match[2]) * Fraction(10) ** int(match[3]))
    if match := _MIXED.fullmatch(text):
        above, below = match[3] or match[5], match[4] or match[6]
        if not int(below):
            return None
        return _signed(match[1], int(match[2]) + Fraction(int(above), int(below)))
    if match := _QUOTIENT.fullmatch(text):
        above, below = _fraction(match[2] or match[4]), _fraction(match[3] or match[5])
        return _signed(match[1], above / below) if below else None
    if match := _REPEATING.fullmatch(text):
        once, again = match[3], match[4] or match[5]
        end = Fraction(int(again), (10 ** len(again) - 1) * 10 ** len(once))
        return _signed(match[1], _fraction(f"{match[2]}.{once}0") + end)
    if match := _SCALED.fullmatch(text):
        return _signed(match[1], _fraction(match[2]) * _SCALES[match[3]])
    return _based(text)


def is_numeral(text: str) -> bool:
    """Whether a canonical text is a number in digits, such as 42 or -1,234.5, and not a formula."""
    return len(text) <= MAX_DIGITS and _DECIMAL.fullmatch(text) is not None


def _based(text: str) -> BasedNumber | None:
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    digits, base = match[3].replace(",", "").upper(), int(match[4] or match[5])
    # A_1 is a variable, not a number in base 1.
    if base <= 10 and not digits.replace(".", "").isdigit():
        return None
    return BasedNumber(match[1].strip("+") + (digits.lstrip("0") or "0"), base)


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace(",", "").removesuffix("."))
