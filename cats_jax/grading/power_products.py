r"""Sums of numbers that are too long to be written out, such as 2^(10^9) - 1, in factors.

A term is a product of powers. Terms whose ratio can be computed are added up: it is often short, as
that of 2^(10^9) and 4^(5*10^8).
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple

import sympy

from .exact_numbers import MAX_BITS, UndecidedError, factors

_MAX_FACTORIAL = 1_000_000
_MAX_TERMS = 64
_MARGIN_BITS = 64


class _Term(NamedTuple):
    """A sign times powers of integers above 1; the sign is 0 for zero."""

    sign: int
    powers: Counter[int]

    def bits(self) -> float:
        return sum(exponent * math.log2(base) for base, exponent in self.powers.items())

    def length(self) -> float:
        """Bits of numerator and denominator together."""
        return sum(abs(exponent) * math.log2(base) for base, exponent in self.powers.items())

    def times(self, other: _Term, exponent: int = 1) -> _Term:
        powers = self.powers.copy()
        for base, own in other.powers.items():
            powers[base] += own * exponent
        return _Term(self.sign * other.sign ** (exponent % 2 or 2), powers)


def is_zero_sum(terms: list[Any]) -> bool:
    """Whether the sum of several constant formulas is zero.

    Raises:
        UndecidedError: a formula is not a product of powers and factorials of rationals, or several
            parts of similar sizes remain.
    """
    groups: list[tuple[_Term, Fraction]] = []
    for formula in terms:
        for term in _terms(formula):
            _add(groups, term)
    left = [(term.bits() + _log2(sum_), sum_) for term, sum_ in groups if sum_]
    if len(left) < 2:
        return not left
    left.sort()
    largest, next_largest = left[-1][0], left[-2][0]
    if largest - next_largest > _MARGIN_BITS + math.log2(len(left)) + 1e-9 * abs(largest):
        return False
    raise UndecidedError("a number has too many digits")


def _log2(value: Fraction) -> float:
    """The logarithm of a magnitude, which may be beyond the range of floats."""
    return math.log2(abs(value.numerator)) - math.log2(value.denominator)


def _terms(formula: Any) -> list[_Term]:
    """The terms of a formula, with products of sums multiplied out."""
    if isinstance(formula, sympy.Add):
        return [term for part in formula.args for term in _terms(part)]
    if not isinstance(formula, sympy.Mul):
        return [_factored(formula)]
    terms = [_Term(1, Counter())]
    for factor in formula.args:
        terms = [term.times(other) for term in terms for other in _terms(factor)]
        if len(terms) > _MAX_TERMS:
            raise UndecidedError("a product of too many sums")
    return terms


def _add(groups: list[tuple[_Term, Fraction]], term: _Term) -> None:
    """Add a term to the group whose ratio to it can be computed, or to a new one."""
    if not term.sign:
        return
    for index, (leader, sum_) in enumerate(groups):
        ratio = term.times(leader, -1)
        if ratio.length() < MAX_BITS:
            groups[index] = leader, sum_ + _written_out(ratio)
            return
    groups.append((term, Fraction(1)))


def _written_out(term: _Term) -> Fraction:
    above = math.prod(base**exponent for base, exponent in term.powers.items() if exponent > 0)
    below = math.prod(base**-exponent for base, exponent in term.powers.items() if exponent < 0)
    return Fraction(term.sign * above, below)


def _factored(formula: Any) -> _Term:
    if formula.is_Rational:
        value = _Term((formula.p > 0) - (formula.p < 0), Counter())
        if not value.sign:
            return value
        above, below = (_Term(1, factors(abs(int(part)))) for part in (formula.p, formula.q))
        return value.times(above).times(below, -1)
    if isinstance(formula, sympy.Mul):
        terms = _terms(formula)
        if len(terms) == 1:
            return terms[0]
    if isinstance(formula, sympy.Pow):
        base = _factored(formula.base)
        if not base.sign:
            raise UndecidedError("a power of zero")
        return _Term(1, Counter()).times(base, _integer(formula.exp))
    if isinstance(formula, sympy.factorial):
        return _factorial(_integer(formula.args[0]))
    if isinstance(formula, sympy.binomial):
        above, below = map(_integer, formula.args)
        if not 0 <= below <= above:
            raise UndecidedError("a binomial coefficient of other numbers")
        lower = _factorial(below).times(_factorial(above - below))
        return _factorial(above).times(lower, -1)
    raise UndecidedError("a number has too many digits")


def _integer(formula: Any) -> int:
    value = sum(map(_small, _terms(formula)), Fraction(0))
    if value.denominator != 1:
        raise UndecidedError("a power that is no integer")
    return int(value)


def _small(term: _Term) -> Fraction:
    if term.length() > _MARGIN_BITS:
        raise UndecidedError("a number has too many digits")
    return _written_out(term)


def _factorial(number: int) -> _Term:
    if not 0 <= number <= _MAX_FACTORIAL:
        raise UndecidedError("a factorial has too many digits")
    powers: Counter[int] = Counter()
    for prime in sympy.primerange(number + 1):
        power = prime
        while power <= number:
            powers[prime] += number // power
            power *= prime
    return _Term(1, powers)
