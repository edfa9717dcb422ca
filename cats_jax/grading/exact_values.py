r"""Whether two formulas have the same value, decided exactly.

A formula is a tree of sympy as the grammar parsed it, without any evaluation by sympy. It is
evaluated at points, at which each variable is a rational number. At each point the difference of
two formulas is an exact number (`exact_numbers`), so that zero is decided without rounding.

Constants such as pi, e, ln 2 or sin 1 are treated in two ways:

- formally, as rational numbers close to their values: if the difference is zero for these, the
  formulas are equal whatever the constants are;
- truly, as numbers that intervals enclose: if an interval of the difference does not hold zero, the
  formulas differ.

Variables are real. A point at which one of the formulas has no real value is outside its domain. So
the square root of x^2 is not x, but the square root of 1/m is 1 divided by the square root of m.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import sympy

from . import exact_numbers as numbers
from .exact_numbers import Node, Number, UndecidedError, UndefinedError, UnprovenError, iv

_MAX_TERMS = 2000
"""Most terms of a sum or a product that are taken one by one."""

_MAX_ROOT = 24
"""Largest degree of a root of a constant, such as e^(1/24), that is computed from the constant."""

_MOST_EXPONENT = 1000
"""Largest exponent of a decimal that sympy writes with one."""

_POINTS = 6
_WHOLE = (7, 4, 11, 3, 18, 5, 26)
"""Values of a variable in an exponent or a factorial, where other numbers have no exact value."""

Point = Mapping[Any, Fraction]


class UnknownError(ArithmeticError):
    """A formula holds something whose exact value is not known here."""


def same_value(one: Any, two: Any) -> bool:
    """Whether two formulas are equal at every point at which both are defined.

    Raises:
        UnknownError: a formula holds something unknown, or no point is in both domains.
        UndecidedError: the values agree to many digits, but no rule proves that they are equal.
    """
    symbols = one.free_symbols | two.free_symbols
    whole = _in_exponents(one) | _in_exponents(two)
    real = not (one.has(sympy.I) or two.has(sympy.I))
    proven = False
    for number, point in enumerate(_points(symbols, whole)):
        formal = ExactEvaluation(point, shift=number + 1)
        try:
            difference = _difference(one, two, formal, real=real and bool(symbols))
            if difference is None:
                continue
            if numbers.is_zero(difference):
                proven = True
                if not (symbols or formal.has_constants):
                    return True
                continue
            if not formal.has_constants:
                return False
            failure: ArithmeticError = UnprovenError(
                "equal to hundreds of digits, and no rule proves that they are equal"
            )
        except UndefinedError:
            if not symbols:
                return False
            continue
        except (UnknownError, UndecidedError) as error:
            failure = error
        if _differ_truly(one, two, point, real=real and bool(symbols)):
            return False
        raise failure
    if whole and any(_differ_truly(one, two, at, real=real) for at in _points(symbols, set())):
        return False
    if one.has(sympy.floor, sympy.ceiling) or two.has(sympy.floor, sympy.ceiling):
        # These jump where other points never are.
        known = False
        for at in _whole_points(symbols):
            differ = _differ_truly(one, two, at, real=real)
            if differ:
                return False
            known |= differ is False
        if not known:
            raise UnknownError("no number of those with jumps at which both have a value")
    if not proven:
        raise UnknownError("no point at which both have a value")
    return True


def within(one: Any, two: Any, tolerance: Fraction) -> bool:
    """Whether two constants differ by at most a tolerance.

    Raises:
        UnknownError: a formula has variables, or no value that is known here and real.
        UndecidedError: the difference is too close to the tolerance.
    """
    if one.free_symbols or two.free_symbols:
        raise UnknownError("variables have no tolerance")
    try:
        difference = _difference(one, two, ExactEvaluation({}), real=False)
        if difference is None or not numbers.is_real(difference):
            raise UnknownError("a tolerance of a number that is not real")
        return numbers.sign(numbers.add(_negative(_absolute(difference)), tolerance)) >= 0
    except UndefinedError as error:
        raise UnknownError(str(error)) from error


def fixed_point(formula: Any) -> Point:
    """A positive value for each variable, determined by its name."""
    return next(_points(formula.free_symbols, set()))


def fixed_value(formula: Any) -> complex | None:
    """Value of a formula at the fixed point; None if no value is known."""
    try:
        value = ExactEvaluation(fixed_point(formula)).value(formula)
        if formula.free_symbols and not (numbers.is_real(value) or formula.has(sympy.I)):
            return None
        return numbers.approximation(value)
    except ArithmeticError:
        return None


def _differ_truly(one: Any, two: Any, point: Point, *, real: bool) -> bool | None:
    """Whether intervals show that two formulas differ at a point; None without a value of both."""
    try:
        difference = _difference(one, two, ExactEvaluation(point), real=real)
    except ArithmeticError:
        return None
    if difference is None:
        return None
    try:
        return not numbers.is_zero(difference)
    except ArithmeticError:
        return False


def _difference(one: Any, two: Any, evaluation: ExactEvaluation, *, real: bool) -> Number | None:
    """The difference of two formulas at a point, or None outside their domains."""
    values = evaluation.value(one), evaluation.value(two)
    if real and not all(map(numbers.is_real, values)):
        return None
    return numbers.add(values[0], _negative(values[1]))


def _points(symbols: set[Any], whole: set[Any]) -> Iterator[Point]:
    """Points at which formulas are compared; in the first one all variables are positive."""
    ordered = sorted(symbols, key=str)
    for number in range(len(_WHOLE) if whole else _POINTS if symbols else 2):
        point = {}
        for symbol in ordered:
            drawn = _hash(f"{number} {symbol}")
            if symbol in whole:
                value = Fraction(_WHOLE[(number + drawn) % len(_WHOLE)])
            else:
                value = _coordinate(number % _POINTS, drawn)
            point[symbol] = value
        yield point


def _whole_points(symbols: set[Any]) -> Iterator[Point]:
    """Points with integers from 1 to 60, and halves and thirds of these, often in proportion."""
    ordered = sorted(symbols, key=str)
    for parts, most in ((1, 60), (2, 30), (3, 30)):
        for number in range(1, most + 1):
            yield {
                symbol: Fraction(number * 7**place % 61, parts)
                for place, symbol in enumerate(ordered)
            }


def _coordinate(number: int, drawn: int) -> Fraction:
    """Value of a variable: between 1 and 2 at the first point; of all signs and sizes later."""
    part, sign = Fraction(1 + drawn % 9973, 9974), 1 if drawn >> 40 & 1 else -1
    large = drawn >> 20 & 0xFFFFFF
    kinds = (1 + part, Fraction(large), -large - part, sign * part, Fraction(sign * large), part)
    return kinds[number]


def _in_exponents(formula: Any) -> set[Any]:
    """Variables in exponents and factorials."""
    found: set[Any] = set()
    for part in sympy.preorder_traversal(formula):
        if isinstance(part, sympy.Pow):
            found |= part.exp.free_symbols
        elif isinstance(
            part, sympy.exp | sympy.factorial | sympy.binomial | sympy.Sum | sympy.Product
        ):
            found |= part.free_symbols
    return found


class ExactEvaluation:
    """Exact values of formulas at one point.

    With `shift` 0, constants have their true values. Otherwise they are rational numbers close to
    these, different ones for each shift.

    Attributes:
        has_constants: whether a value depended on a constant.
    """

    def __init__(self, point: Point, shift: int = 0) -> None:
        self._point = dict(point)
        self._shift = shift
        self._seen: dict[Any, Number] = {}
        self.has_constants = False

    def value(self, formula: Any) -> Number:
        """Exact value of a formula.

        Raises:
            UnknownError: it holds something unknown.
            UndecidedError: a number is too long, or a sign can't be decided.
            UndefinedError: it has no value, as 1/0.
        """
        if formula not in self._seen:
            self._seen[formula] = self._computed(formula)
        return self._seen[formula]

    def _computed(self, formula: Any) -> Number:
        if formula.is_Rational:
            return numbers.checked(Fraction(int(formula.p), int(formula.q)))
        if formula.is_Float:
            digits, _, exponent = str(formula).partition("e")
            if abs(int(exponent or 0)) > _MOST_EXPONENT:
                raise UnknownError("a decimal of too many digits")
            return numbers.checked(Fraction(digits) * Fraction(10) ** int(exponent or 0))
        if formula.is_Symbol and formula in self._point:
            return self._point[formula]
        rule = _RULES.get(type(formula))
        if rule is None:
            raise UnknownError(f"no exact value of {type(formula).__name__} is known")
        return rule(self, *formula.args)

    def constant(self, key: Any, enclose: Any) -> Number:
        """A transcendental constant, named by `key`."""
        self.has_constants = True
        if not self._shift:
            return numbers.constant(enclose)
        with numbers.at_precision(80):
            near = enclose()
            if not near.delta < 1e-9 * max(1, abs(near).a):
                raise UndecidedError("a constant is known to few digits")
            middle = Fraction(int((near.mid * 2**60).a), 2**60)
        drawn = _hash(f"{self._shift} {key}")
        return middle * (1 + Fraction(drawn, 2**64) / 1000) if middle else Fraction(drawn, 2**80)

    def sum(self, *terms: Any) -> Number:
        """A sum."""
        return numbers.total(map(self.value, terms))

    def product(self, *factors: Any) -> Number:
        """A product."""
        return numbers.product(map(self.value, factors))

    def power(self, base: Any, exponent: Any) -> Number:
        """A power."""
        if base is sympy.E:
            return self.exponential(exponent)
        above, below = self.value(exponent), self.value(base)
        if isinstance(above, Fraction):
            if above.denominator == 1:
                return numbers.integer_power(below, int(above))
            if self._shift or above.denominator <= _MAX_ROOT:
                if isinstance(below, Fraction) and below == 0 and above < 0:
                    raise UndefinedError("a power of zero")
                taken = numbers.root(below, above.denominator, id(below))
                return numbers.integer_power(taken, above.numerator)
        if not numbers.is_real(below) or not numbers.is_real(above) or numbers.sign(below) <= 0:
            raise UnknownError("a power of a number that is not positive")
        first, second = numbers.node(below), numbers.node(above)
        key = ("power", base, exponent)
        return self.constant(key, lambda: iv.exp(numbers.logarithm(first) * second.interval()))

    def exponential(self, exponent: Any) -> Number:
        """A power of e."""
        if isinstance(exponent, sympy.Add):
            return numbers.product(self.exponential(term) for term in exponent.args)
        factors = _flat(exponent)
        logarithms = [part for part in factors if isinstance(part, sympy.log) and _natural(part)]
        if len(logarithms) == 1:
            factors.remove(logarithms[0])
            return self.power(logarithms[0].args[0], sympy.Mul(*factors, evaluate=False))
        half_turns = self._multiple(exponent, (sympy.pi, sympy.I))
        if half_turns is not None:
            return numbers.unity(half_turns / 2)
        value = self._real(exponent)
        if isinstance(value, Fraction) and value.denominator <= _MAX_ROOT:
            e = self.constant("e", lambda: iv.exp(iv.mpf(1)))
            if value.denominator > 1:
                e = numbers.root(e, value.denominator, "e")
            return numbers.integer_power(e, value.numerator) if value else Fraction(1)
        return self._applied("exp", iv.exp, exponent)

    def logarithm(self, formula: Any, base: Any = sympy.E) -> Number:
        """A logarithm."""
        if base != sympy.E and base != _E:
            values = self.value(formula), self.value(base)
            if all(isinstance(value, Fraction) and value > 0 for value in values):
                whole = _whole_logarithm(*values)  # pyright: ignore[reportArgumentType]
                if whole is not None:
                    return whole
            below = self.logarithm(base)
            return numbers.multiply(self.logarithm(formula), numbers.invert(below))
        if isinstance(formula, sympy.exp) and numbers.is_real(self.value(formula.args[0])):
            return self.value(formula.args[0])
        value = self._real(formula)
        if numbers.sign(value) <= 0:
            raise UndefinedError("a logarithm of a number that is not positive")
        if isinstance(formula, sympy.Pow) and numbers.sign(self.value(formula.base)) > 0:
            return numbers.multiply(self.value(formula.exp), self.logarithm(formula.base))
        if isinstance(value, Node):
            return self.constant(("log", formula), lambda: numbers.logarithm(value))
        return numbers.total(
            numbers.multiply(
                self.constant(("log", number), lambda number=number: iv.log(iv.mpf(number))),
                Fraction(exponent),
            )
            for number, exponent in _factors(value).items()
        )

    def cosine(self, angle: Any) -> Number:
        """A cosine."""
        half_turns = self._multiple(angle, (sympy.pi,))
        if half_turns is not None:
            return numbers.cosine(half_turns / 2)
        return self._applied("cos", iv.cos, angle)

    def sine(self, angle: Any) -> Number:
        """A sine."""
        half_turns = self._multiple(angle, (sympy.pi,))
        if half_turns is not None:
            return numbers.cosine(half_turns / 2 - Fraction(1, 4))
        return self._applied("sin", iv.sin, angle)

    def _applied(self, name: str, enclose: Any, formula: Any) -> Number:
        """A transcendental function of a real number."""
        value = self._real(formula)
        inside = numbers.node(value)
        key = value if isinstance(value, Fraction) else formula
        return self.constant((name, key), lambda: enclose(inside.interval()))

    def absolute(self, formula: Any) -> Number:
        """An absolute value."""
        return _absolute(self._real(formula))

    def floor(self, formula: Any) -> Number:
        """The largest integer that is not above the formula."""
        return numbers.floor(self._real(formula, UndefinedError))

    def ceiling(self, formula: Any) -> Number:
        """The smallest integer that is not below the formula."""
        return -numbers.floor(_negative(self._real(formula, UndefinedError)))

    def _real(self, formula: Any, error: type[ArithmeticError] = UnknownError) -> Number:
        value = self.value(formula)
        if not numbers.is_real(value):
            raise error("a function of a number that is not real")
        return value

    def factorial(self, formula: Any) -> Number:
        """A factorial of an integer from 0."""
        value = self._natural(formula)
        if value * max(1, value.bit_length() - 1) > numbers.MAX_BITS:
            raise UndecidedError("a factorial has too many digits")
        return Fraction(math.factorial(value))

    def binomial(self, above: Any, below: Any) -> Number:
        """A binomial coefficient of integers from 0."""
        n, k = self._natural(above), self._natural(below)
        if min(k, max(0, n - k)) * n.bit_length() > numbers.MAX_BITS:
            raise UndecidedError("a binomial coefficient has too many digits")
        return Fraction(math.comb(n, k))

    def repeated(self, kind: Any, term: Any, *limits: Any) -> Number:
        """A sum or product over integers."""
        (variable, first, last), *others = (tuple(limit) for limit in limits)
        if others:
            raise UnknownError("a sum over several variables")
        start, end = self.value(first), self.value(last)
        if not (isinstance(start, Fraction) and isinstance(end, Fraction)):
            raise UnknownError("limits that are not integers")
        if start.denominator * end.denominator != 1 or end - start >= _MAX_TERMS:
            raise UnknownError("a sum of too many terms")
        if self._point and end < start - 1:
            raise UndefinedError("a sum that ends before it starts")
        values = []
        for index in range(int(start), int(end) + 1):
            inner = ExactEvaluation({**self._point, variable: Fraction(index)}, self._shift)
            values.append(inner.value(term))
            self.has_constants |= inner.has_constants
        return kind(values)

    def _natural(self, formula: Any) -> int:
        value = self.value(formula)
        if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
            raise UnknownError("a factorial of a number that is no integer from 0")
        return int(value)

    def _multiple(self, formula: Any, units: tuple[Any, ...]) -> Fraction | None:
        """The rational whose product with the units is the formula; None if there is none."""
        if isinstance(formula, sympy.Add):
            parts = [self._multiple(part, units) for part in formula.args]
            return None if None in parts else sum(parts, Fraction(0))  # pyright: ignore
        factors = _flat(formula)
        for unit in units:
            if unit not in factors:
                break
            factors.remove(unit)
        else:
            value = self.product(*factors)
            return value if isinstance(value, Fraction) else None
        # Zero is a multiple of everything.
        return Fraction(0) if formula == 0 else None


def _flat(formula: Any) -> list[Any]:
    if isinstance(formula, sympy.Mul):
        return [factor for part in formula.args for factor in _flat(part)]
    return [formula]


def _natural(logarithm: Any) -> bool:
    return len(logarithm.args) == 1 or logarithm.args[1] in (sympy.E, _E)


def _negative(number: Number) -> Number:
    return numbers.multiply(Fraction(-1), number)


def _absolute(number: Number) -> Number:
    return number if numbers.sign(number) >= 0 else _negative(number)


def _reciprocal(of: Any) -> Any:
    return lambda evaluation, angle: numbers.invert(of(evaluation, angle))


def _ratio(above: Any, below: Any) -> Any:
    return lambda evaluation, angle: numbers.multiply(
        above(evaluation, angle), numbers.invert(below(evaluation, angle))
    )


def _extreme(sign: int) -> Any:
    def choose(evaluation: ExactEvaluation, *formulas: Any) -> Number:
        best, *others = map(evaluation.value, formulas)
        for other in others:
            if numbers.sign(numbers.add(other, _negative(best))) == sign:
                best = other
        return best

    return choose


def _whole_logarithm(value: Fraction, base: Fraction) -> Fraction | None:
    """The logarithm if it is rational, as that of 8 to base 4."""
    ones, twos = _factors(value), _factors(base)
    if not twos or ones.keys() - twos.keys():
        return None
    ratios = {Fraction(ones.get(prime, 0), exponent) for prime, exponent in twos.items()}
    return ratios.pop() if len(ratios) == 1 else None


def _factors(value: Fraction) -> dict[int, int]:
    """Exponents of the factors of a positive rational; the last factor may not be a prime."""
    exponents = numbers.factors(value.numerator)
    exponents.subtract(numbers.factors(value.denominator))
    return {factor: exponent for factor, exponent in exponents.items() if exponent}


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


_E = sympy.exp(1, evaluate=False)
_RULES: dict[Any, Any] = {
    type(sympy.pi): lambda evaluation: evaluation.constant("pi", lambda: +iv.pi),
    type(sympy.E): lambda evaluation: evaluation.exponential(sympy.Integer(1)),
    type(sympy.I): lambda evaluation: numbers.unity(Fraction(1, 4)),
    sympy.Add: ExactEvaluation.sum,
    sympy.Mul: ExactEvaluation.product,
    sympy.Pow: ExactEvaluation.power,
    sympy.exp: ExactEvaluation.exponential,
    sympy.log: ExactEvaluation.logarithm,
    sympy.cos: ExactEvaluation.cosine,
    sympy.sin: ExactEvaluation.sine,
    sympy.tan: _ratio(ExactEvaluation.sine, ExactEvaluation.cosine),
    sympy.cot: _ratio(ExactEvaluation.cosine, ExactEvaluation.sine),
    sympy.sec: _reciprocal(ExactEvaluation.cosine),
    sympy.csc: _reciprocal(ExactEvaluation.sine),
    sympy.Abs: ExactEvaluation.absolute,
    sympy.floor: ExactEvaluation.floor,
    sympy.ceiling: ExactEvaluation.ceiling,
    sympy.factorial: ExactEvaluation.factorial,
    sympy.binomial: ExactEvaluation.binomial,
    sympy.Max: _extreme(1),
    sympy.Min: _extreme(-1),
    sympy.Sum: lambda evaluation, *args: evaluation.repeated(numbers.total, *args),
    sympy.Product: lambda evaluation, *args: evaluation.repeated(numbers.product, *args),
    sympy.UnevaluatedExpr: ExactEvaluation.value,
}
