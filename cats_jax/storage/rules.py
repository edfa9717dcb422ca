"""Rules for the values in files that are read: their types and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

LARGEST = 1e30
"""Largest magnitude of a number that is used in sums, products and tables."""

_LARGEST_FLOAT = 1.7976931348623157e308
_LARGEST_COUNT = 1 << 53


class Rule(NamedTuple):
    """A rule for a value.

    Attributes:
        what: the rule in words, such as "a text".
        holds: function that returns whether a value keeps the rule.
    """

    what: str
    holds: Callable[[Any], bool]


def check_entries(values: Any, rules: Mapping[str, Rule], where: str = "") -> None:
    """Raise ValueError unless a mapping has the entries in `rules`, and each keeps its rule.

    Other entries may be anything. `where` is the name of the mapping, for messages.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where or 'it'} must be a mapping")
    for name, rule in rules.items():
        if name not in values:
            raise ValueError(f"{where + name!r} is missing")
        if not rule.holds(values[name]):
            raise ValueError(f"{where + name!r} must be {rule.what}")


def optional(rule: Rule) -> Rule:
    """The rule, or null."""
    holds = rule.holds
    return Rule(f"{rule.what} or null", lambda value: value is None or holds(value))


def one_of(*names: str) -> Rule:
    """One of a few texts."""
    known = frozenset(names)
    return Rule(
        f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in known
    )


def list_of(rule: Rule) -> Rule:
    """A list whose items keep a rule."""
    holds = rule.holds
    return Rule(
        f"a list with items that are each {rule.what}",
        lambda value: isinstance(value, list | tuple) and all(map(holds, value)),
    )


def mapping_of(rule: Rule) -> Rule:
    """A mapping whose values keep a rule."""
    holds = rule.holds
    return Rule(
        f"a mapping of names to values that are each {rule.what}",
        lambda value: isinstance(value, dict) and all(map(holds, value.values())),
    )


def fits(value: Any, *rules: Rule) -> bool:
    """Whether a value is a list of as many items as there are rules, which each keep theirs."""
    return (
        isinstance(value, list | tuple)
        and len(value) == len(rules)
        and all(rule.holds(item) for rule, item in zip(rules, value, strict=True))
    )


def pairs_of(rule: Rule) -> Rule:
    """A list of pairs of a text and a value that keeps a rule."""
    pairs = list_of(Rule("", lambda pair: fits(pair, TEXT, rule)))
    return Rule(f"a list of pairs of a text and {rule.what}", pairs.holds)


def mapping_with(**rules: Rule) -> Rule:
    """A mapping in which some entries must be there and keep a rule."""

    def holds(value: Any) -> bool:
        return isinstance(value, dict) and all(
            name in value and rule.holds(value[name]) for name, rule in rules.items()
        )

    return Rule(f"a mapping with {' and '.join(rules)}", holds)


def _is_number(value: Any) -> bool:
    # The range excludes NaN. A truth value has another type.
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


ANYTHING = Rule("any value", lambda value: True)
TEXT = Rule("a text", lambda value: isinstance(value, str))
TRUTH = Rule("true or false", lambda value: isinstance(value, bool))
MAPPING = Rule("a mapping", lambda value: isinstance(value, dict))
NUMBER = Rule("a finite number of at most 1e30", _is_number)
AMOUNT = Rule("a finite number from 0 to 1e30", lambda value: _is_number(value) and value >= 0)
SHARE = Rule("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
FINITE = Rule(
    "a finite number",
    lambda value: type(value) in (int, float) and -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT,
)
INTEGER = Rule(
    "a whole number of at most 64 bits",
    lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63,
)
COUNT = Rule(
    "a whole number, 0 or more", lambda value: type(value) is int and 0 <= value <= _LARGEST_COUNT
)
