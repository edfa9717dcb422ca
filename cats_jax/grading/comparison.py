r"""Comparison of two answers: structure by their brackets, formulas by their exact values.

The comparison runs in a worker process only (`worker`), so that a hang or a lack of memory ends
only that process. latex2sympy's grammar parses the text, which is never evaluated as Python.

`exact_values` compares formulas without any rounding. If it does not know the values, sympy's rules
may prove an equality. math-verify compares relations and sets, and takes close numbers for equal.
Here, such answers differ if a number of one answer is close to numbers of the other, but equal to
none of them. Other rules that are stricter than math-verify's:

- equality is symmetric, and `x` and `X` differ;
- brackets count: a point or an interval is not a list, and (1,2) is not [1,2];
- numbers in a base are equal if both digits and base are equal (math-verify drops the base);
- `canonical` drops units, but keeps variables (math-verify reads 6m as 6).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import verify

from .canonical import has_variable, is_time, is_word, ungrouped
from .exact_numbers import UndecidedError, UnprovenError
from .exact_values import UnknownError, fixed_point, fixed_value, same_value, within
from .formula_text import readable
from .inequalities import alternatives, chain, common, intervals, without_points
from .plain_numbers import BasedNumber, is_numeral, plain_number
from .power_products import is_zero_sum
from .structure import Structure, is_set, structure

_NORMALISATION = NormalizationConfig(
    basic_latex=True,
    units=False,
    malformed_operators=True,
    nits=False,
    boxed="none",
    equations=False,
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_CLOSE = 1e-4
"""Numbers that math-verify may take for equal are closer than this."""

_APART = 1e-9
"""Relative difference of values, known to 15 digits, above which two formulas are not equal."""

_RELATION = re.compile(r"[<>]|\\[lg]e(?![a-zA-Z])")
_SET = re.compile(rf"{_RELATION.pattern}|=|(?<!sqrt)\[|\\(?:infty|cup|cap|in|setminus)(?![a-zA-Z])")
_OPERATION = re.compile(r"\\(?:cup|setminus)(?![a-zA-Z])")
_INTERVALS = ("()", "[]", "(]", "[)")
_MAX_RATIO = 6
_COMPOUND = (sympy.Union, sympy.Intersection, sympy.Complement)
_INFINITE = (sympy.oo, -sympy.oo)
_EQUATION = re.compile(r"([^=<>]+)=([^=<>]+)")
_FUNCTION = re.compile(r"[a-zA-Z]\(x\)")
_NAME = re.compile(r"\\?[a-zA-Z]+'*(?:_(?:\{[^{}]*\}|\w))?(?:\^\{-1\})?(?:\([a-zA-Z, ]*\))?")


@dataclass(frozen=True, slots=True)
class Equality:
    """The result of comparing two answers.

    Attributes:
        equal: whether the answers are the same.
        values: for each answer, its value at one fixed choice of its variables, or None if no value
            is known. Answers whose values differ are not equal, so a vote need not compare them.
    """

    equal: bool
    values: tuple[complex | None, complex | None] = (None, None)


def compare(first: str, second: str, tolerance: float | None = None) -> Equality:
    """Compare two canonical texts; the relation is symmetric.

    Args:
        first, second: canonical texts.
        tolerance: largest absolute difference at which two numbers count as equal, as given by the
            data set. It applies if one of them is written in digits. None requires exact equality.

    Raises:
        UndecidedError: the limits on size don't allow a decision.
    """
    first, second = _union(first, second), _union(second, first)
    (first, one), (second, two) = _statement(first), _statement(second)
    if {one.kind, two.kind} == {"one", "list"}:
        # 100,200 is a number unless the other answer is a list.
        one, two = structure(first, separators=False), structure(second, separators=False)
        if one.kind != two.kind:
            one, two = structure(ungrouped(first)), structure(ungrouped(second))
    if one.kind == two.kind == "one":
        return _compare_one(one.items[0], two.items[0], tolerance)
    if one.kind != two.kind:
        # 1 <= x <= 2 is the interval [1,2], and so is [1,2)\cup[2,2].
        sets = [bool(_RELATION.search(text) or _OPERATION.search(text)) for text in (first, second)]
        kinds = {one.kind, two.kind}
        if "one" in kinds and any(sets) and kinds.isdisjoint(("list", "and", "or")):
            return _compare_one(first, second, None)
        return Equality(False)
    if len(one.items) != len(two.items):
        return Equality(False)
    if one.kind == "ratio":
        return Equality(_same_ratio(one.items, two.items))
    if one.kind in ("list", "and", "or"):
        ones, twos = _by_nesting(first, one), _by_nesting(second, two)
        return Equality(
            all(_same_in_any_order(*pair, tolerance) for pair in zip(ones, twos, strict=True))
        )
    return Equality(all(_same(a, b, tolerance) for a, b in zip(one.items, two.items, strict=True)))


def _union(text: str, other: str) -> str:
    r"""A list of intervals as their union if the other answer is one: (-\infty,2);(3,\infty)."""
    found = structure(text)
    if found.kind != "list" or is_set(text) or not _OPERATION.search(other):
        return text
    parts = [structure(item) for item in found.items]
    intervals = all(part.kind in _INTERVALS and len(part.items) == 2 for part in parts)
    return r"\cup".join(found.items) if intervals else text


def _statement(text: str) -> tuple[str, Structure]:
    r"""A text with its structure; inequalities of one variable as the set of its values.

    `x<-1\lor x>2` is a union, and `x>1\land x<3` is `(1,3)`. `x<-1\land x>2` stays a statement,
    because some authors mean the union by it. A comma between disjoint intervals is "or", and "and"
    between two that hold all numbers together; otherwise its meaning is open.
    """
    found, groups = structure(text), alternatives(text)
    holds = groups[0] if len(groups) == 1 else [] if groups else found.items
    if (rest := without_points(holds)) and not has_variable(rest):
        return rest, structure(rest)
    if found.kind == "one" and not groups:
        alone = "".join(intervals(found.items))
        return (text, found) if not alone or has_variable(alone) else (alone, structure(alone))
    items = [item for group in groups for item in group] if groups else list(found.items)
    texts = intervals(items) if groups or found.kind == "list" else []
    if texts and groups:
        rest = iter(texts)
        parts = [[next(rest) for _ in group] for group in groups]
        sets = [part[0] if len(part) == 1 else common(part) for part in parts]
        if all(one and not _is_empty(one) for one in sets):
            text = r"\cup".join(filter(None, sets))
            return text, structure(text)
    if texts and not groups:
        parsed = [one for one in map(parse, texts) if isinstance(one, sympy.Set)]
        pairs = list(itertools.combinations(parsed, 2))
        if len(parsed) == len(texts):
            if all(one.intersect(two).is_empty for one, two in pairs):
                text = r"\cup".join(texts)
            elif len(pairs) == 1 and sympy.Union(*pairs[0]) == sympy.S.Reals:
                text = common(texts) or text
            return text, structure(text)
    if len(groups) > 1:
        return text, Structure("or", tuple(r"\land ".join(group) for group in groups))
    if groups:
        return text, Structure("and" if texts else "list", tuple(groups[0]))
    return text, found


def _is_empty(text: str) -> bool:
    parsed = parse(text)
    return not isinstance(parsed, sympy.Set) or parsed.is_empty is True


def _same(first: str, second: str, tolerance: float | None) -> bool:
    return first == second or compare(first, second, tolerance).equal


def _by_nesting(text: str, found: Structure) -> tuple[list[str], list[str]]:
    r"""The items that are sets in a set, as both of \{\{1\},\{2\}\}, and all other items.

    Plain braces are sets in {{1},{2}}, and groups of LaTeX in \{{1},{2}\}, which is \{1,2\}.
    """
    sets: list[str] = []
    others: list[str] = []
    for item in found.items:
        nested = is_set(text) and is_set(item) and (item[0] == "\\" or text[0] == "{")
        (sets if nested else others).append(item)
    return sets, others


def _same_in_any_order(ones: list[str], twos: list[str], tolerance: float | None) -> bool:
    if len(ones) != len(twos):
        return False
    for same in [one for one in ones if one in twos]:
        if same in twos:
            ones.remove(same)
            twos.remove(same)
    for one in ones:
        match = next((two for two in twos if _same(one, two, tolerance)), None)
        if match is None:
            return False
        twos.remove(match)
    return True


def _same_ratio(ones: Sequence[str], twos: Sequence[str]) -> bool:
    """Whether 1:2:3 and 2:4:6 are proportional; a long ratio has one spelling only."""
    if ones == twos or len(ones) > _MAX_RATIO:
        return ones == twos
    # The products of 0:0:0 with any ratio are equal.
    if any(all(plain_number(item) == 0 for item in items) for items in (ones, twos)):
        return False
    places = itertools.combinations(range(len(ones)), 2)
    return all(
        _same(rf"({ones[i]})\cdot({twos[j]})", rf"({ones[j]})\cdot({twos[i]})", None)
        for i, j in places
    )


def _compare_one(first: str, second: str, tolerance: float | None) -> Equality:
    if first == second:
        return Equality(True)
    numbers = plain_number(first), plain_number(second)
    if any(isinstance(number, BasedNumber) for number in numbers):
        return Equality(numbers[0] == numbers[1])
    if numbers[0] is not None and numbers[1] is not None and tolerance is None:
        return Equality(numbers[0] == numbers[1])
    # 3:45 is not 1:15, though their ratios are equal.
    if is_word(first) or is_word(second) or (is_time(first) and is_time(second)):
        return Equality(False)
    texts = first, second
    first, second = _same_form(first, second)
    one, two = parse(first), parse(second)
    if one is None or two is None:
        return Equality(first == second)
    exact = isinstance(one, sympy.Expr) and isinstance(two, sympy.Expr)
    if exact and tolerance is not None and (is_numeral(first) or is_numeral(second)):
        try:
            # A tolerance is a decimal too: 4.3 is within 0.1 of 4.2.
            return Equality(within(one, two, Fraction(str(tolerance))))
        except UnknownError:
            pass
    # y=2x is compared with 2x as 2x, but with another equation as itself: it has no value.
    values = (
        fixed_value(one) if exact and first == texts[0] else None,
        fixed_value(two) if exact and second == texts[1] else None,
    )
    try:
        same = _decided(one, two)
        if same is None:
            same = _simplified(first, second) if exact else _verified(first, second)
    except UnprovenError:
        if not _simplified(first, second):
            raise
        same = True
    return Equality(same, values)


def _same_form(first: str, second: str) -> tuple[str, str]:
    """`y = f` against `f` compares f; `y = f` against `y = g` compares f and g."""
    one, two = _equation(first), _equation(second)
    if one and two:
        same = _NAME.fullmatch(one[1]) and _FUNCTION.sub("y", one[1]) == _FUNCTION.sub("y", two[1])
        return (one[2], two[2]) if same else (first, second)
    if one and _NAME.fullmatch(one[1]):
        return one[2], second
    if two and _NAME.fullmatch(two[1]):
        return first, two[2]
    return first, second


def _equation(text: str) -> re.Match[str] | None:
    """The sides of an equation, with a variable alone first: `2x=y` as `y=2x`."""
    match = _EQUATION.fullmatch(text)
    if match and not _NAME.fullmatch(match[1]) and _NAME.fullmatch(match[2]):
        match = _EQUATION.fullmatch(f"{match[2]}={match[1]}") if has_variable(match[2]) else match
    return match


def _decided(one: Any, two: Any) -> bool | None:
    """Whether two parsed answers are equal; None if no exact rule applies to them."""
    if isinstance(one, sympy.Expr) and isinstance(two, sympy.Expr):
        if one == two or one in _INFINITE or two in _INFINITE:
            return bool(one == two)
        try:
            return same_value(one, two)
        except UnknownError:
            return None
        except UnprovenError:
            raise
        except UndecidedError:
            with sympy.evaluate(False):
                terms = [one, *(-part for part in sympy.Add.make_args(two))]
            return is_zero_sum(terms)
    if isinstance(one, sympy.MatrixBase) and isinstance(two, sympy.MatrixBase):
        return one.shape == two.shape and _all_decided(zip(one.flat(), two.flat(), strict=True))
    if isinstance(one, _COMPOUND) or isinstance(two, _COMPOUND):
        # [1,2)\cup[2,3) is [1,3), and [1,\infty)\setminus\{2\} is [1,2)\cup(2,\infty).
        one, two = (each.doit() if isinstance(each, _COMPOUND) else each for each in (one, two))
    if isinstance(one, sympy.Interval) and isinstance(two, sympy.Interval):
        ends = (one.left_open, one.right_open) == (two.left_open, two.right_open)
        return ends and _all_decided(((one.start, two.start), (one.end, two.end)))
    parts = (sympy.Union, sympy.FiniteSet)
    if isinstance(one, parts) and isinstance(two, parts) and type(one) is type(two):
        if len(one.args) != len(two.args):
            return None
        matches = [[_decided(part, other) for other in two.args] for part in one.args]
        found = [True if True in row else None if None in row else False for row in matches]
        return False if False in found else None if None in found else True
    return None


def _all_decided(pairs: Iterable[tuple[Any, Any]]) -> bool | None:
    found = [_decided(*pair) for pair in pairs]
    return False if False in found else None if None in found else True


def _simplified(first: str, second: str) -> bool:
    """Whether sympy's rules prove that two formulas with functions unknown here are equal."""
    one, two = parse(first, evaluate=True), parse(second, evaluate=True)
    if one is None or two is None:
        return False
    if one.as_dummy() == two.as_dummy():  # the index of a sum has any name
        return True
    try:
        values = [complex(sympy.N(_at_fixed_point(formula), 15)) for formula in (one, two)]
    except (MemoryError, RecursionError):
        raise
    except Exception:  # evaluating an odd formula may raise any error
        pass
    else:
        if abs(values[0] - values[1]) > _APART * max(map(abs, values)):
            return False
    return bool(sympy.simplify(one.doit() - two.doit()) == 0)


def _at_fixed_point(formula: Any) -> Any:
    return formula.subs(
        {
            symbol: sympy.Rational(*value.as_integer_ratio())
            for symbol, value in fixed_point(formula).items()
        }
    )


def parse(text: str, *, evaluate: bool = False) -> Any | None:
    """A sympy object, or None if the grammar does not know it or it has no value, such as 1/0.

    Without `evaluate` sympy computes nothing, so that a huge power stays a power.
    """
    # sympy has no unevaluated form of sets and relations.
    evaluate = evaluate or _SET.search(text) is not None
    number = plain_number(text)
    if isinstance(number, Fraction):
        return sympy.Rational(number.numerator, number.denominator)
    formula = readable(text)
    if formula is None:
        return None
    with sympy.evaluate(evaluate):
        try:
            parsed = latex2sympy(
                formula, normalization_config=_NORMALISATION, conversion_config=_CONVERSION
            )
            parsed = _with_imaginary_unit(parsed)
            return None if parsed.has(sympy.zoo, sympy.nan) else parsed
        except MemoryError:
            raise
        except Exception as error:  # the grammar may raise any error
            if evaluate:
                if isinstance(error, RecursionError):
                    raise
                return None
    return parse(text, evaluate=True)


def _with_imaginary_unit(parsed: Any) -> Any:
    """The same with `i` as the imaginary unit, unless `i` may be the index of a sum or product."""
    units = {symbol for symbol in parsed.free_symbols if symbol.name == "i"}
    counted = parsed.has(sympy.Sum, sympy.Product)
    return parsed.xreplace(dict.fromkeys(units, sympy.I)) if units and not counted else parsed


def _verified(first: str, second: str) -> bool:
    """Whether relations, intervals or sets are equal by math-verify, and no number is merely close.

    Without a limit of time: math-verify's is a signal, which works in a main thread only.
    """
    if _is_fixed(first) or _is_fixed(second):
        return _same_chain(first, second)
    one: Any = parse(first, evaluate=True)
    two: Any = parse(second, evaluate=True)
    return all(
        verify(*pair, allow_set_relation_comp=True, timeout_seconds=None)
        for pair in ((one, two), (two, one))
    ) and not _nearly(one, two)


def _is_fixed(text: str) -> bool:
    """Whether a part of a relation is true or false whatever its variables are, such as 1 < 2."""
    pairs = itertools.pairwise(chain(text)[0])
    return any(one == two or not has_variable(f"{one} {two}") for one, two in pairs)


def _same_chain(first: str, second: str) -> bool:
    """Whether two chains of relations have the same signs, and the same values between them.

    math-verify would compare relations of numbers by their truth or by the differences of sides.
    """
    (ones, signs), (twos, others) = chain(first), chain(second)
    orders = [twos, twos[::-1]] if {"=", r"\ne"}.issuperset(signs) else [twos]
    return signs == others and any(
        all(_same(a, b, None) for a, b in zip(ones, sides, strict=True)) for sides in orders
    )


def _nearly(one: Any, two: Any) -> bool:
    """Whether a number is close to numbers of the other answer, but equal to none of them."""
    ones, twos = _constants(one), _constants(two)
    return any(
        any(_close(number, other) for other in others)
        and not any(_decided(number, other) for other in others)
        for numbers, others in ((ones, twos), (twos, ones))
        for number in numbers
    )


def _constants(parsed: Any) -> set[Any]:
    """The largest parts of an answer that are numbers."""
    if isinstance(parsed, sympy.Expr) and not parsed.free_symbols:
        return {parsed}
    parts = list(parsed.args) if isinstance(parsed, sympy.Basic) else list(parsed)
    found = {part for part in parts if isinstance(part, sympy.Expr) and not part.free_symbols}
    if isinstance(parsed, sympy.Add | sympy.Mul) and len(found) > 1:
        with sympy.evaluate(False):
            own = {parsed.func(*found)}
    else:
        own = found
    return own.union(*(_constants(part) for part in parts if part not in found))


def _close(one: Any, two: Any) -> bool:
    a, b = fixed_value(one), fixed_value(two)
    return a is not None and b is not None and abs(a - b) <= _CLOSE * max(1.0, abs(a), abs(b))
