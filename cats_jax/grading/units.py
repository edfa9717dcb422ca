r"""Units and remarks behind a value, which `canonical` drops because the question fixes them.

Words that change the value stay: `3 million`, `5\text{ squared}` and `5\text{ or more}` are not 3
or 5.
"""

from __future__ import annotations

import re

from .plain_numbers import plain_number

TEXT_COMMAND = r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|mathrm|mathbf|mathit|operatorname|rm)\b"
"""Pattern of the commands of LaTeX whose argument is a text."""

# Without nm, which is also the product of n and m.
_UNITS = (
    "cm|mm|km|dm|ft|in|inch|inches|feet|foot|yd|yards?|miles?|meters?|metres?|kilometers?|"
    "centimeters?|millimeters?|kg|mg|lbs?|oz|grams?|kilograms?|pounds?|ounces?|tons?|ml|mL|"
    "liters?|litres?|gallons?|cups?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|"
    "months?|years?|mph|kmh|kph|degrees?|deg|radians?|dollars?|cents?|euros?|USD|units?|"
    "gal|mol|Hz|kHz|kPa|kN|kW|rpm|fps|yrs?|pts?|yen|pcs|"
    "square|sq|cubic|percent|points?|people|ways|per"
)
# These words turn the number before them into another number, a formula or a range.
_NUMBER_WORDS = frozenset((
    "pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "inf",
    "infinity", "and", "or", "base", "mod", "hundred", "thousand", "million", "billion",
    "trillion", "hundreds", "thousands", "millions", "billions", "trillions", "dozen", "dozens",
    "half", "halves", "third", "thirds", "quarter", "quarters", "fourths", "fifths", "sixths",
    "sevenths", "eighths", "ninths", "tenths", "hundredths", "thousandths", "over", "plus", "minus",
    "frac", "squared", "cubed", "factorial", "to", "out", "below", "root", "choose",
    "modulo", "remainder", "extraneous", "rejected", "impossible",
    "january", "february", "march", "april", "may", "june", "july", "august",
    "september", "october", "november", "december", "alpha", "beta", "gamma", "delta", "theta",
    "lambda", "omega", "sigma",
))  # fmt: skip
# Letters that `\mathrm` may set as a unit, and "I think"; others are variables, e and i.
_UNIT_LETTERS = frozenset("msghdlLNJWVACKFTI")

_TEXT = rf"{TEXT_COMMAND}\s*\{{([^{{}}]*)\}}"
_TRAILING_TEXT = re.compile(
    r"(?<=\S)\s*(?:/\s*|\\cdot\s*)?"
    rf"(?:{_TEXT}(?:\s*/\s*{_TEXT})?|\\frac ?\{{ ?{_TEXT} ?\}} ?\{{ ?{_TEXT}"
    r" ?(?:\^ ?\{? ?\d ?\}?)? ?\})\s*(?:\^\s*\{?\s*-?\d\s*\}?)?\s*$"
)
_VECTOR = re.compile(r"\s*\\(?:mathbf|mathit|operatorname)\b")
_UNIT = re.compile(
    rf"(?<=[\d}})\] ])(?:/ ?(?=[a-z]{{3}}))?(?:{_UNITS})\b\.?"
    rf"(?: ?\^ ?\{{? ?[23] ?\}}?)?(?: ?/ ?(?:{_UNITS}|s|h)\b)?$"
)
# 2 hours 30 minutes is neither 2 hours 30 seconds nor 30.
_SEVERAL_UNITS = re.compile(rf"(?<![\\a-zA-Z])(?:{_UNITS})\b[^\\a-zA-Z^]*\d")
# 2ab and 2 xyz are products; 2 eggs and 12 in all are remarks.
_TRAILING_WORDS = re.compile(r"(?<= )([a-zA-Z]{4,}|men|[a-zA-Z]{2,}(?: [a-zA-Z]+)+)$")
_NAME = re.compile(r"\s*[a-zA-Z](?:_\w)?\s*=\s*")
_NUMBER = re.compile(r"(?:[\d\s.,+\-*/^(){}$]|\\(?:\$|pi|sqrt|d?frac|times|cdot)(?![a-zA-Z]))+")
_ONE_UNIT = re.compile(rf"{_UNITS}|[{''.join(sorted(_UNIT_LETTERS))}]")
_RANGE = re.compile(r"\bat (?:the )?(?:most|least)\b", re.IGNORECASE)
_VALUE_ENDS = (*"0123456789", "}", ")", "]", r"\pi")


def without_unit(text: str) -> str:
    """Drop units: texts after a value, units after a number, words after a plain number."""
    if _SEVERAL_UNITS.search(text):
        return text
    match = _TRAILING_TEXT.search(text)
    if match and match[0].lstrip().startswith(("/", r"\cdot")):  # 5/\text{pound}
        of_number = _NUMBER.fullmatch(_NAME.sub("", text[: match.start()]))
        is_unit = match[0].lstrip()[0] == "/" or _ONE_UNIT.fullmatch((match[1] or "").strip())
        match = match if of_number and is_unit and not _VECTOR.search(match[0]) else None
    if match and not _VECTOR.match(match[0]) and all(map(_is_remark, match.groups(""))):
        shorter = text[: match.start()].rstrip()
        if not shorter.endswith(("^", "_", "=", "{", "(", ",")):
            text = shorter
    shorter = text
    for _ in range(4):  # `square meters per second`
        shorter = _UNIT.sub("", shorter).rstrip()
    if shorter.endswith(_VALUE_ENDS) or plain_number(shorter) is not None:
        text = shorter
    match = _TRAILING_WORDS.search(text)
    if match and plain_number(text[: match.start()].strip()) is not None and _is_remark(match[1]):
        text = text[: match.start()]
    return text


def _is_remark(words: str) -> bool:
    """Whether a text behind a value leaves the value as it is."""
    found = re.findall("[a-zA-Z]+", words)
    # 5 percent of x is no number, but 5 a day is.
    letters = {word for word in found if len(word) == 1 and (word != "a" or len(found) == 1)}
    if found in (["am"], ["pm"]) or _RANGE.search(words):
        return False
    return letters <= _UNIT_LETTERS and _NUMBER_WORDS.isdisjoint(map(str.lower, found))
