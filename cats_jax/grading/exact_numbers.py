r"""Exact arithmetic: rationals, and numbers made of them by roots, roots of unity and constants.

A rational is a `Fraction`. Any other number is a `Node`: intervals that hold it at every precision,
and a separation bound. An interval without zero shows that a number is not zero. An interval below
the bound shows that it is zero. Both decisions are exact.

The bound is that of Burnikel, Funke, Mehlhorn, Schirra and Schmitt, "A separation bound for real
algebraic expressions" (Algorithmica 55, 2009): a number U / L of two algebraic integers whose
conjugates are at most u and l, in a field of degree D, is zero or at least 1 / (u^(D-1) l).
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath
import sympy

iv: Any = mpmath.iv
"""mpmath's interval arithmetic, which its own types describe only in part."""

MAX_BITS = 1 << 18
"""Longest numerator or denominator, in bits. Greatest common divisors of longer ones are slow."""

MAX_PRECISION = 1 << 14
"""Largest precision of intervals, in bits, with which a number is tested for zero."""

_CONSTANT_PRECISION = 1 << 11
"""The same for numbers with transcendental constants, which intervals can't prove to be zero."""

_MAX_DEGREE = 1 << 12
_SMALL_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)

_MAX_FACTOR = 1 << 10
"""Factors below this are split off a number."""


class UndecidedError(ArithmeticError):
    """A number is too long, or its sign can't be decided within the limits."""


class UnprovenError(UndecidedError):
    """Two numbers agree to many digits, but no rule proves that they are equal."""


class UndefinedError(ArithmeticError):
    """A number does not exist, such as 1/0."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A number that is not known to be rational.

    Attributes:
        enclose: returns an interval that holds the number, at the current precision of `mpmath.iv`.
        upper, lower: logarithms to base 2 of the bounds u and l. They are infinite for a
            transcendental number, which may be proven to differ from zero, but never to be zero.
        roots: generators of a field that holds the number, with the degree that each one adds.
        real: whether the number is real.
    """

    enclose: Callable[[], Any]
    upper: float
    lower: float
    roots: frozenset[tuple[Any, int]]
    real: bool = True
    seen: dict[int, Any] = field(default_factory=dict)

    def interval(self) -> Any:
        """An interval that holds the number, remembered for each precision."""
        if iv.prec not in self.seen:
            self.seen[iv.prec] = self.enclose()
        return self.seen[iv.prec]


Number = Fraction | Node


def checked(value: Fraction) -> Fraction:
    """The same rational, if it is short enough."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise UndecidedError("a number has too many digits")
    return value


def node(number: Number) -> Node:
    """A number as a node."""
    if isinstance(number, Node):
        return number
    above, below = number.numerator, number.denominator
    return Node(
        lambda: iv.mpf(above) / below,
        math.log2(max(1, abs(above))),
        math.log2(below),
        frozenset(),
    )


def constant(enclose: Callable[[], Any]) -> Node:
    """A real transcendental number."""
    return Node(enclose, math.inf, math.inf, frozenset())


def add(one: Number, two: Number) -> Number:
    """The sum."""
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return checked(one + two)
    a, b = node(one), node(two)
    return Node(
        lambda: a.interval() + b.interval(),
        max(a.upper + b.lower, a.lower + b.upper) + 1,
        a.lower + b.lower,
        a.roots | b.roots,
        a.real and b.real,
    )


def multiply(one: Number, two: Number) -> Number:
    """The product."""
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        _bits(one, two)
        return one * two
    if one == 0 or two == 0:
        return Fraction(0)
    a, b = node(one), node(two)
    return Node(
        lambda: a.interval() * b.interval(),
        a.upper + b.upper,
        a.lower + b.lower,
        a.roots | b.roots,
        a.real and b.real,
    )


def total(numbers: Iterable[Number]) -> Number:
    """The sum of several."""
    return functools.reduce(add, numbers, Fraction(0))


def product(numbers: Iterable[Number]) -> Number:
    """The product of several."""
    return functools.reduce(multiply, numbers, Fraction(1))


def factors(number: int) -> Counter[int]:
    """Exponents of the factors of a positive integer; the last factor may not be a prime."""
    powers: Counter[int] = Counter()
    for divisor in range(2, _MAX_FACTOR):
        while number % divisor == 0:
            number //= divisor
            powers[divisor] += 1
    if number > 1:
        powers[number] += 1
    return powers


@contextlib.contextmanager
def at_precision(bits: int) -> Iterator[None]:
    """Intervals of the block have this precision."""
    before, iv.prec = iv.prec, bits
    try:
        yield
    finally:
        iv.prec = before


def logarithm(number: Node) -> Any:
    """An interval that holds the natural logarithm of a positive number."""
    interval = number.interval()
    if not interval.a > 0:
        raise UndecidedError("an interval holds zero")
    return iv.log(interval)


def invert(number: Number) -> Number:
    """The reciprocal."""
    if is_zero(number):
        raise UndefinedError("a division by zero")
    if isinstance(number, Fraction):
        return 1 / number
    return Node(
        lambda: 1 / _nonzero(number.interval()),
        number.lower,
        number.upper,
        number.roots,
        number.real,
    )


def integer_power(base: Number, exponent: int) -> Number:
    """The base to an integer power; 0^0 does not exist."""
    if isinstance(base, Fraction):
        if base == 0:
            if exponent <= 0:
                raise UndefinedError("a power of zero")
            return base
        length = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(base) != 1 and (length - 1 or 1) * abs(exponent) > MAX_BITS:
            raise UndecidedError("a power has too many digits")
        return checked(base**exponent) if abs(base) != 1 else base ** (exponent % 2)
    if exponent < 0:
        return invert(integer_power(base, -exponent))
    result: Number = Fraction(1)
    while exponent:
        if exponent % 2:
            result = multiply(result, base)
        exponent //= 2
        if exponent:
            base = multiply(base, base)
    return result


def root(number: Number, degree: int, identity: Any) -> Number:
    """The root as answers mean it: negative for odd roots of negative numbers, else principal.

    `degree` is at least 2. `identity` is equal for radicands that are known to be equal.
    """
    if degree > _MAX_DEGREE:
        raise UndecidedError("a root of high degree")
    if is_zero(number):
        return Fraction(0)
    if is_real(number) and sign(number) < 0:
        positive = root(multiply(Fraction(-1), number), degree, ("-", identity))
        if degree % 2:
            return multiply(Fraction(-1), positive)
        return multiply(positive, unity(Fraction(1, 2 * degree)))
    if isinstance(number, Fraction):
        outside, inside = _taken_out(number, degree)
        if inside == 1:
            return outside
        return multiply(outside, _root(node(Fraction(inside)), degree, inside))
    return _root(number, degree, identity)


def unity(turns: Fraction) -> Number:
    """The number of length 1 at an angle, in turns from 0."""
    turns %= 1
    if turns.denominator <= 2:
        return Fraction(-1 if turns else 1)
    order = turns.denominator
    if order > _MAX_DEGREE:
        raise UndecidedError("a root of unity of high order")
    if order == 4:
        sine = 1 if turns == Fraction(1, 4) else -1
        return Node(lambda: iv.mpc(0, sine), 0, 0, frozenset({(("unity", 4), 2)}), real=False)

    roots = frozenset({(("unity", order), int(sympy.totient(order)))})

    def enclose() -> Any:
        angle = 2 * iv.pi * turns.numerator / order
        return iv.mpc(iv.cos(angle), iv.sin(angle))

    return Node(enclose, 0, 0, roots, real=False)


def cosine(turns: Fraction) -> Number:
    """The cosine of an angle, in turns."""
    turns %= 1
    order = turns.denominator
    known = {1: 1, 2: -1, 3: Fraction(-1, 2), 4: 0, 6: Fraction(1, 2)}
    if order in known:
        return Fraction(known[order])
    if order > _MAX_DEGREE:
        raise UndecidedError("an angle of high order")
    if order in (8, 12):  # so that they share the root with an answer that contains it
        value = multiply(root(Fraction(2 if order == 8 else 3), 2, 0), Fraction(1, 2))
        positive = turns < Fraction(1, 4) or turns > Fraction(3, 4)
        return value if positive else multiply(Fraction(-1), value)
    return Node(
        lambda: iv.cos(2 * iv.pi * turns.numerator / order),
        1,  # the sum of two roots of unity, halved
        1,
        frozenset({(("unity", order), int(sympy.totient(order)))}),
    )


def is_real(number: Number) -> bool:
    """Whether a number is known to be real."""
    return isinstance(number, Fraction) or number.real


def is_zero(number: Number) -> bool:
    """Whether a number is zero.

    Raises:
        UndecidedError: the intervals are not small enough at the largest precision.
    """
    if isinstance(number, Fraction):
        return number == 0
    degree = math.prod(added for _, added in number.roots)
    bound = number.upper * (degree - 1) + number.lower if degree > 1 else number.lower
    limit = MAX_PRECISION if math.isfinite(bound) else _CONSTANT_PRECISION
    for _, size in _intervals(number, limit):
        if size.a > 0:
            return False
        if math.isfinite(bound) and size.b < iv.ldexp(iv.mpf(1), -math.ceil(bound) - 1):
            return True
    raise UnprovenError("equal to hundreds of digits, and no rule proves that they are equal")


def sign(number: Number) -> int:
    """Sign of a real number: -1, 0 or 1."""
    if isinstance(number, Fraction):
        return (number > 0) - (number < 0)
    if is_zero(number):
        return 0
    for interval, _ in _intervals(number):
        if interval.a > 0:
            return 1
        if interval.b < 0:
            return -1
    raise UndecidedError("a sign can't be decided")


def floor(number: Number) -> Fraction:
    """The largest integer that is not above a real number."""
    if isinstance(number, Fraction):
        return Fraction(math.floor(number))
    for interval, size in _intervals(number):
        if interval.delta < 0.5:
            if not size.b < 2**50:
                break
            guess = Fraction(round(float(interval.mid)))
            return guess if sign(add(number, -guess)) >= 0 else guess - 1
    raise UndecidedError("a floor can't be decided")


def approximation(number: Number) -> complex | None:
    """A number to at least twelve digits; None if that takes too long or leaves floats' range."""
    if isinstance(number, Fraction):
        if not number:
            return 0j
        number = node(number)
    for interval, size in _intervals(number, 1024, growth=4):
        if not size.a > 0:
            continue
        real, imaginary = (interval, iv.mpf(0)) if number.real else (interval.real, interval.imag)
        if max(real.delta, imaginary.delta) < size.a * iv.mpf(1e-13):
            value = complex(float(real.mid), float(imaginary.mid))
            return value if 1e-300 < abs(value) < 1e300 else None
    return None


def _root(number: Node, degree: int, identity: Any) -> Node:
    """The principal root of a number that is not zero and not a negative real."""
    upper, lower = number.upper, number.lower
    if upper >= lower:
        upper = (upper + (degree - 1) * lower) / degree
    else:
        lower = ((degree - 1) * upper + lower) / degree

    def enclose() -> Any:
        radicand = number.interval()
        if not number.real:
            imaginary = radicand.imag
            if not (imaginary.a > 0 or imaginary.b < 0 or radicand.real.a > 0):
                raise UndecidedError("an interval lies across the cut of a root")
            return iv.exp(iv.log(radicand) / degree)
        if not radicand.a > 0:
            raise UndecidedError("an interval holds zero")
        return iv.sqrt(radicand) if degree == 2 else iv.exp(iv.log(radicand) / degree)

    roots = number.roots | {(("root", degree, identity), degree)}
    return Node(enclose, upper, lower, roots, number.real)


def _taken_out(number: Fraction, degree: int) -> tuple[Fraction, int]:
    """A positive rational as (outside, inside): the root is outside times the root of inside."""
    _bits(*[number] * degree)
    inside = number.numerator * number.denominator ** (degree - 1)
    outside = 1
    whole, is_exact = sympy.integer_nthroot(inside, degree)
    if is_exact:
        return Fraction(whole, number.denominator), 1
    for prime in _SMALL_PRIMES:
        while inside % prime**degree == 0:
            inside //= prime**degree
            outside *= prime
    return Fraction(outside, number.denominator), inside


def _bits(*numbers: Fraction) -> None:
    length = sum(max(n.numerator.bit_length(), n.denominator.bit_length()) for n in numbers)
    if length > MAX_BITS:
        raise UndecidedError("a number has too many digits")


def _intervals(
    number: Node, limit: int = MAX_PRECISION, growth: int = 2
) -> Iterator[tuple[Any, Any]]:
    """Intervals of a number and of its absolute value at growing precisions, where they exist."""
    precision = 64
    while precision <= limit:
        try:
            with at_precision(precision):
                interval = number.interval()
                size = abs(interval)
        except (UndecidedError, ZeroDivisionError):
            pass
        else:
            yield interval, size
        precision *= growth


def _nonzero(interval: Any) -> Any:
    if not abs(interval).a > 0:
        raise UndecidedError("an interval holds zero")
    return interval
