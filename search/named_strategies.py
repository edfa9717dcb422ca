"""The mapping of strategies by name."""

from __future__ import annotations

from collections.abc import Mapping

from .interface import Strategy


class UnknownStrategyError(KeyError):
    """An unknown strategy name; the message names a call or lists the known names."""

    def __str__(self) -> str:
        return str(self.args[0])


class NamedStrategies(dict[str, Strategy]):
    """Strategies with default settings by name.

    Args:
        known: name -> strategy.
        elsewhere: name -> call that makes the strategy, for strategies without default settings.
    """

    def __init__(self, known: Mapping[str, Strategy], elsewhere: Mapping[str, str]) -> None:
        super().__init__(known)
        self._elsewhere = dict(elsewhere)

    def __missing__(self, name: str) -> Strategy:
        if name in self._elsewhere:
            raise UnknownStrategyError(f"{name!r} needs parameters: call {self._elsewhere[name]}")
        names = ", ".join([*self, *self._elsewhere])
        raise UnknownStrategyError(f"unknown strategy {name!r}: known are {names}")

    def __repr__(self) -> str:
        return f"NamedStrategies({', '.join([*self, *self._elsewhere])})"
