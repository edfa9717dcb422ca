"""The mapping of strategies by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .interface import Strategy


class UnknownStrategyError(KeyError):
    """An unknown strategy name; the message names a call or lists the known names."""

    def __str__(self) -> str:
        return str(self.args[0])


class NamedStrategies(Mapping[str, Strategy]):
    """Strategies with default settings by name.

    Args:
        known: name -> strategy.
        elsewhere: name -> call that makes the strategy, for strategies without default settings.
    """

    def __init__(self, known: Mapping[str, Strategy], elsewhere: Mapping[str, str]) -> None:
        self._known = dict(known)
        self._elsewhere = dict(elsewhere)

    def __getitem__(self, name: str) -> Strategy:
        """The strategy of a name.

        Raises:
            UnknownStrategyError: no strategy with default settings has this name.
        """
        if name in self._known:
            return self._known[name]
        if name in self._elsewhere:
            raise UnknownStrategyError(f"{name!r} needs parameters: call {self._elsewhere[name]}")
        names = ", ".join([*self._known, *self._elsewhere])
        raise UnknownStrategyError(f"unknown strategy {name!r}: known are {names}")

    def __iter__(self) -> Iterator[str]:
        """The names of strategies with default settings."""
        return iter(self._known)

    def __len__(self) -> int:
        """Number of strategies with default settings."""
        return len(self._known)

    def __repr__(self) -> str:
        return f"NamedStrategies({', '.join([*self._known, *self._elsewhere])})"
