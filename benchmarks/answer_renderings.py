"""Gold answers as people write them, and answers that nearly are them: a labelled set.

Nothing is imported from the package: the labels must not depend on what they check. Every function
takes a gold answer and yields texts; a text that would be the gold answer letter for letter is left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

_INTEGER = re.compile(r"-?\d+")
_DECIMAL = re.compile(r"-?\d*\.\d+")
_FRACTION = re.compile(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}")
_BASED = re.compile(r"(\d+)_\{?(\d+)\}?")
_PAIR = re.compile(r"(?:\\left)?([(\[])(.+?)(?:\\right)?([)\]])")
_WORD = re.compile(r"\\text\{\(?([A-Za-z]+)\)?\}")
_VULGAR = {"1/2": "½", "1/3": "⅓", "2/3": "⅔", "1/4": "¼", "3/4": "¾", "1/5": "⅕", "1/8": "⅛"}


def renderings(gold: str) -> Iterator[tuple[str, str]]:
    """(kind, text): the same answer, written otherwise."""
    for kind, text in _renderings(gold):
        if text != gold:
            yield kind, text


def near_misses(gold: str) -> Iterator[tuple[str, str]]:
    """(kind, text): another answer."""
    for kind, text in _near_misses(gold):
        if text != gold:
            yield kind, text


def _renderings(gold: str) -> Iterator[tuple[str, str]]:
    yield "boxed", rf"So \boxed{{1}} is wrong and the answer is $\boxed{{{gold}}}$."
    yield "sentence", f"Final Answer: The final answer is ${gold}$. I hope it is correct."
    yield "dollars", f"${gold}$"
    yield "parentheses", rf"\({gold}\)"
    yield "display", rf"\[{gold}\]"
    yield "full stop", f"{gold}."
    yield "spaces", re.sub(r"([+=,]|(?<![eE^{(\[])-)", r" \1 ", gold) if "!" not in gold else gold
    yield "dfrac", re.sub(r"\\frac(?=\{)", r"\\dfrac", gold)
    yield "minus sign", gold.replace("-", "−")
    yield "pi sign", re.sub(r"\\pi(?![a-zA-Z])", "π", gold)
    yield "infinity sign", gold.replace(r"\infty", "∞")
    yield "root sign", re.sub(r"\\sqrt\{(\d+)\}", r"√\1", gold)
    yield "square brackets of a matrix", gold.replace("pmatrix", "bmatrix")
    if r"\left" not in gold and gold[:1] == "(" and gold[-1:] == ")" and gold.count("(") == 1:
        yield "left and right", rf"\left{gold[:-1]}\right)"
    if re.fullmatch(r".*\^\{?\\circ\}?", gold):
        value = re.sub(r"\^\{?\\circ\}?", "", gold)
        yield "degree sign", f"{value}°"
        yield "degrees", rf"{value}\text{{ degrees}}"
        yield "no degrees", value
    if _INTEGER.fullmatch(gold):
        yield "decimal zeros", f"{int(gold)}.00"
        yield "thousands", f"{int(gold):,}"
        yield "assignment", f"x = {gold}"
        yield "unit", rf"{gold} \text{{ cm}}^2"
        yield "unit word", f"{gold} apples"
        yield "percent", rf"{gold}\%"
        yield "fraction", rf"\frac{{{2 * int(gold)}}}{{2}}"
        yield "product", rf"1 \cdot {abs(int(gold))}" if int(gold) >= 0 else gold
    if _DECIMAL.fullmatch(gold):
        yield "decimal zeros", f"{gold}0"
        value = Fraction(gold)
        yield "fraction", f"{value.numerator}/{value.denominator}"
    if match := _FRACTION.fullmatch(gold):
        sign, above, below = match.groups()
        yield "slash", f"{sign}{above}/{below}"
        yield "sign inside", rf"\frac{{{sign}{above}}}{{{below}}}"
        yield "extended", rf"{sign}\frac{{{3 * int(above)}}}{{{3 * int(below)}}}"
        if (vulgar := _VULGAR.get(f"{above}/{below}")) is not None:
            yield "one character", sign + vulgar
        if 10**6 % int(below) == 0:
            yield "decimal", f"{sign}{float(Fraction(int(above), int(below)))}"
    if match := _BASED.fullmatch(gold):
        yield "braced base", f"{match[1]}_{{{match[2]}}}"
        yield "base in words", f"{match[1]} base {match[2]}"
    if match := _WORD.fullmatch(gold):
        yield "bare word", match[1]
        yield "bold", rf"\textbf{{{match[1]}}}"
    if items := _list(gold):
        yield "other order", ", ".join(reversed(items))
        yield "set", rf"\{{{', '.join(items)}\}}"
        yield "and", f"{', '.join(items[:-1])} and {items[-1]}"


def _near_misses(gold: str) -> Iterator[tuple[str, str]]:
    digits = list(re.finditer(r"\d", gold))
    if digits:
        last = digits[-1]
        other = str((int(last[0]) + 1) % 10)
        yield "a digit", gold[: last.start()] + other + gold[last.end() :]
        first = digits[0]
        yield "an extra digit", gold[: first.start()] + "7" + gold[first.start() :]
    if _INTEGER.fullmatch(gold) and int(gold):
        value = int(gold)
        yield "sign", str(-value)
        yield "hundredfold", str(100 * value)
        yield "hundredth", rf"\frac{{{value}}}{{100}}"
        yield "nearly", f"{value}.001"
        yield "a variable", f"{value}m"
    if _DECIMAL.fullmatch(gold):
        yield "hundredfold", str(100 * Fraction(gold))
        yield "nearly", f"{gold}1"
    if match := _FRACTION.fullmatch(gold):
        sign, above, below = match.groups()
        if above != below:
            yield "inverse", rf"{sign}\frac{{{below}}}{{{above}}}"
        yield "sign", ("" if sign else "-") + rf"\frac{{{above}}}{{{below}}}"
        if 10**9 % int(below):
            yield "rounded", f"{sign}{float(Fraction(int(above), int(below))):.6f}"
    if match := _BASED.fullmatch(gold):
        yield "another base", f"{match[1]}_{int(match[2]) + 1}"
        yield "no base", match[1]
    if match := _WORD.fullmatch(gold):
        yield "another word", rf"\text{{{match[1][::-1] if len(match[1]) > 1 else 'F'}}}"
    match = _PAIR.fullmatch(gold)
    if match and "(" not in match[2] and match[2].count(",") == 1:
        left, right = (part.strip() for part in match[2].split(","))
        opening, closing = match[1], match[3]
        if left != right:
            yield "swapped", f"{opening}{right}, {left}{closing}"
        yield "another bracket", f"{'[' if opening == '(' else '('}{left}, {right}{closing}"
        yield "no brackets", f"{left}, {right}"
    if items := _list(gold):
        yield "one less", ", ".join(items[:-1])
        yield "one more", ", ".join([*items, "31"])


def _list(gold: str) -> list[str]:
    """Items of a list that no bracket encloses, or nothing."""
    if not re.fullmatch(r"-?\d+(?:, ?-?\d+)+", gold) or re.fullmatch(r"-?\d{1,3}(,\d{3})+", gold):
        return []
    return [item.strip() for item in gold.split(",")]
