"""Limits of the cost and of the rate of calls to a paid endpoint."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...errors import RunStoppedError

_PER_TOKENS = 1e6
"""Number of tokens that a price is for."""


@dataclass(slots=True)
class Bill:
    """Cost of one call, in the unit of the prices; set before the call ends."""

    cost: float = 0.0


class Spending:
    """The cost of all calls, which never exceeds a limit.

    A call begins if the limit covers the cost so far, the largest costs of the calls in progress,
    and its own largest cost. Otherwise it waits while other calls are in progress.

    Args:
        where: the endpoint, for the message.
        price: price of a million tokens, by "input" and "output"; None: tokens cost nothing.
        limit: largest cost; None: no limit.

    Attributes:
        spent: cost so far.
    """

    def __init__(self, where: str, price: Mapping[str, float] | None, limit: float | None):
        self._where = where
        self._price = price or {"input": 0.0, "output": 0.0}
        self._limit = limit
        self.spent = 0.0
        self._held: list[float] = []
        self._changed = threading.Condition()

    def cost(self, prompt: int, completion: int) -> float:
        """Cost of a number of prompt tokens and of sampled tokens."""
        price = self._price
        return (prompt * price["input"] + completion * price["output"]) / _PER_TOKENS

    @contextlib.contextmanager
    def call(self, most: float) -> Iterator[Bill]:
        """A call that costs at most `most`; the cost of its bill is added when it has ended.

        Raises:
            RunStoppedError: the limit has no room for the call.
        """
        bill = Bill()
        with self._changed:
            self._changed.wait_for(lambda: self._fits(most) or not self._held)
            if not self._fits(most):
                raise RunStoppedError(
                    f"{self._where}: max_cost={self._limit:g} has no room for another request: "
                    f"{self.spent:.6g} are spent, and it may cost {most:.3g}; raise max_cost in "
                    "the recipe and start again: what is in the run folder, and in the file of "
                    "`replies`, is kept"
                )
            self._held.append(most)
        try:
            yield bill
        finally:
            with self._changed:
                self._held.remove(most)
                self.spent += bill.cost
                self._changed.notify_all()

    def _fits(self, most: float) -> bool:
        return self._limit is None or self.spent + sum(self._held) + most <= self._limit


class Pace:
    """Equal distances between calls, at most `per_minute` in a minute; None: no waiting."""

    def __init__(self, per_minute: float | None):
        self._distance = 0.0 if per_minute is None else 60.0 / per_minute
        self._next = 0.0
        self._lock = threading.Lock()

    def seconds(self) -> float:
        """How long the next call must wait; it takes the next place."""
        if not self._distance:
            return 0.0
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + self._distance
        return at - now
