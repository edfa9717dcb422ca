r"""Comparison of two answers: structure by their brackets, single answers by math-verify.

The comparison runs in a worker process only (`worker`), where a hang or a lack of memory ends only
that process. latex2sympy's grammar parses the text; the text is never evaluated as Python.

math-verify is lenient in ways that could pass a wrong answer. The rules here are stricter:

- a decimal is exactly the number it says (math-verify rounds to six places, so that 0.0000672 is
  0.0000671 to it), unless a data set gives a tolerance;
- equality is symmetric, and `x` and `X` differ;
- brackets count: a point or an interval is not a list, and (1,2) is not [1,2];
- numbers in a base are equal if both digits and base are equal (math-verify drops the base);
- `canonical` drops units, which it tells from variables (math-verify reads 6m as 6).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import verify

from .canonical import is_word
from .plain_numbers import BasedNumber, plain_number
from .structure import structure

_DIGITS = 30
_NEGLIGIBLE = sympy.Float("1e-25")
_ZERO = sympy.Float("1e-60")

_NORMALISATION = NormalizationConfig(
    basic_latex=True,
    units=False,
    malformed_operators=True,
    nits=False,
    boxed="none",
    equations=False,
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_IMAGINARY = re.compile(r"(?<![a-zA-Z\\])i(?![a-zA-Z])")
_RELATION = re.compile(r"[<>]|\\(?:le|ge|leq|geq|lt|gt|leqslant|geqslant)(?![a-zA-Z])")
_EQUATION = re.compile(r"([^=<>]+)=([^=<>]+)")
_NAME = re.compile(r"\\?[a-zA-Z]+(?:_(?:\{[^{}]*\}|\w))?(?:\([a-zA-Z, ]*\))?")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two answers.

    Attributes:
        equal: whether the answers are the same.
        values: for each answer, real and imaginary part of its value at one fixed choice of its
            variables, or None if it has no value. Equal expressions have equal values, so a vote
            need not compare answers whose values differ.
    """

    equal: bool
    values: tuple[tuple[float, float] | None, ...] = (None, None)


def compare(first: str, second: str, tolerance: float | None = None) -> Comparison:
    """Compare two canonical texts.

    Args:
        first, second: canonical texts; the relation is symmetric.
        tolerance: largest absolute difference of two numbers that counts as none, as given by the
            data set; None requires exact equality.
    """
    one, two = structure(first), structure(second)
    if {one.kind, two.kind} == {"one", "list"}:
        # 100,200 is a number unless the other answer is a list.
        one, two = structure(first, separators=False), structure(second, separators=False)
    if one.kind == two.kind == "one":
        return _compare_one(one.items[0], two.items[0], tolerance)
    if one.kind != two.kind:
        # 1 <= x <= 2 is the interval [1,2].
        relations = [bool(_RELATION.search(text)) for text in (first, second)]
        if "one" in (one.kind, two.kind) and any(relations) and "list" not in (one.kind, two.kind):
            return _compare_one(first, second, None)
        return Comparison(False)
    if len(one.items) != len(two.items):
        return Comparison(False)
    if one.kind == "list":
        return Comparison(_same_in_any_order(list(one.items), list(two.items), tolerance))
    return Comparison(
        all(_same(a, b, tolerance) for a, b in zip(one.items, two.items, strict=True))
    )


def _same(first: str, second: str, tolerance: float | None) -> bool:
    return first == second or compare(first, second, tolerance).equal


def _same_in_any_order(ones: list[str], twos: list[str], tolerance: float | None) -> bool:
    for one in ones:
        match = next((two for two in twos if _same(one, two, tolerance)), None)
        if match is None:
            return False
        twos.remove(match)
    return True


def _compare_one(first: str, second: str, tolerance: float | None) -> Comparison:
    if first == second:
        return Comparison(True)
    numbers = plain_number(first), plain_number(second)
    if any(isinstance(number, BasedNumber) for number in numbers):
        return Comparison(numbers[0] == numbers[1])
    if numbers[0] is not None and numbers[1] is not None and tolerance is None:
        return Comparison(numbers[0] == numbers[1])
    if is_word(first) or is_word(second):
        return Comparison(False)
    first, second = _same_form(first, second)
    imaginary = any(_IMAGINARY.search(text) for text in (first, second))
    one, two = _parse(first, imaginary), _parse(second, imaginary)
    if one is None or two is None:
        return Comparison(first == second)
    values = _value(one), _value(two)
    parts = tuple(None if value is None else _parts(value) for value in values)
    if values[0] is not None and values[1] is not None:
        if not _near(*values, tolerance):
            return Comparison(False, parts)
        if not one.free_symbols and not two.free_symbols:
            return Comparison(True, parts)
    same = _verified(one, two) and _verified(two, one)
    if not same and values[0] is not None and values[1] is not None:
        # math-verify compares a variable alone with an expression by their texts.
        same = sympy.simplify(one - two) == 0
    return Comparison(same, parts)


def _same_form(first: str, second: str) -> tuple[str, str]:
    """`y = f` against `f` compares f; `y = f` against `y = g` compares f and g."""
    one, two = _EQUATION.fullmatch(first), _EQUATION.fullmatch(second)
    if one and two:
        return (one[2], two[2]) if one[1] == two[1] and _NAME.fullmatch(one[1]) else (first, second)
    if one and _NAME.fullmatch(one[1]):
        return one[2], second
    if two and _NAME.fullmatch(two[1]):
        return first, two[2]
    return first, second


def _parse(text: str, imaginary: bool) -> Any | None:
    """A sympy object, or None if the text is no mathematics the grammar knows."""
    number = plain_number(text)
    if isinstance(number, Fraction):
        return sympy.Rational(number.numerator, number.denominator)
    try:
        parsed = latex2sympy(
            text,
            is_real=not imaginary,
            normalization_config=_NORMALISATION,
            conversion_config=_CONVERSION,
        )
        return _exact(parsed)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # the grammar raises whatever it pleases
        return None


def _exact(parsed: Any) -> Any:
    """A parsed expression with its decimals replaced by exact fractions."""
    floats = {number: sympy.Rational(str(number)) for number in parsed.atoms(sympy.Float)}
    return parsed.xreplace(floats) if floats else parsed


def _value(parsed: Any) -> Any | None:
    """Value of an expression if each variable has a value derived from its name; None without."""
    if not isinstance(parsed, sympy.Expr):
        return None
    try:
        point = [(symbol, _coordinate(symbol)) for symbol in parsed.free_symbols]
        value = sympy.N(parsed.subs(point) if point else parsed, _DIGITS)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # evaluating an odd formula raises whatever it pleases
        return None
    parts = value.as_real_imag() if value.is_number and value.is_finite else ()
    return value if parts and all(part.is_Float or part.is_Rational for part in parts) else None


def _parts(value: Any) -> tuple[float, float]:
    real, imaginary = value.as_real_imag()
    return float(real), float(imaginary)


def _coordinate(symbol: Any) -> Any:
    digest = hashlib.blake2b(str(symbol).encode(), digest_size=4).digest()
    return 1 + sympy.Rational(1 + int.from_bytes(digest, "little") % 9973, 9973)


def _near(first: Any, second: Any, tolerance: float | None) -> bool:
    difference = abs(first - second)
    if tolerance is not None:
        # The tolerance is a decimal too: 4.3 is within 0.1 of 4.2.
        return bool(difference <= sympy.Rational(str(tolerance)) * (1 + _NEGLIGIBLE))
    size = max(abs(first), abs(second))
    return bool(size < _ZERO or difference <= _NEGLIGIBLE * size)


def _verified(gold: Any, target: Any) -> bool:
    # No limit of its own: math-verify's is a signal, which works in a main thread only.
    return verify(gold, target, allow_set_relation_comp=True, timeout_seconds=None)
