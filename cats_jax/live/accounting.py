"""Charges the costs of model calls and the time of ticks to ledgers and timings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from ..protocols import (
    Generation,
    Scoring,
    StepGenerator,
    StepScorer,
    TokenUsage,
    facts_of,
    seconds_of,
)
from .ledger import Ledger
from .new_candidates import NewCandidate
from .pending_requests import PendingRequest
from .slots import Slot
from .timings import Stopwatch, Timings


def charge_generation(
    requests: Sequence[PendingRequest], generation: Generation, num_parameters: int
) -> None:
    """Charge questions for a call of the policy; a copy counts as a candidate and costs nothing."""
    costs = zip(generation.usage, seconds_of(generation), strict=True)
    called: set[Slot] = set()
    for asked in requests:
        ledger = asked.slot.tree.ledger
        ledger.candidates += len(asked.request.seeds)
        if asked.copy is not None:
            continue
        _charge_policy(ledger, *next(costs), num_parameters)
        ledger.policy_calls += asked.slot not in called
        called.add(asked.slot)


def charge_comparison(
    ledger: Ledger,
    replies: Sequence[tuple[TokenUsage, float]],
    choices: Sequence[int | None],
    num_parameters: int,
    *,
    by_prm: bool,
) -> None:
    """Charge a question for one round of comparisons.

    A choice is None if it can't be read. `num_parameters` is the number of the judge's parameters.
    `by_prm`: the judge is the PRM, not the policy.
    """
    charge = _charge_prm if by_prm else _charge_policy
    for usage, seconds in replies:
        charge(ledger, usage, seconds, num_parameters)
    if by_prm:
        ledger.prm_calls += bool(replies)
    else:
        ledger.policy_calls += bool(replies)
    ledger.comparisons += len(choices)
    ledger.comparisons_unread += sum(choice is None for choice in choices)


def _charge_policy(ledger: Ledger, usage: TokenUsage, seconds: float, num_parameters: int) -> None:
    ledger.prompt_computed += usage.computed
    ledger.prompt_cached += usage.cached
    ledger.generated += usage.generated
    ledger.policy_cost += usage.cost
    ledger.flops += 2.0 * num_parameters * usage.computed
    ledger.policy_seconds += seconds


def _charge_prm(ledger: Ledger, usage: TokenUsage, seconds: float, num_parameters: int) -> None:
    ledger.prm_computed += usage.computed
    ledger.prm_cached += usage.cached
    ledger.prm_cost += usage.cost
    flops = 2.0 * num_parameters * usage.computed
    ledger.flops += flops
    ledger.prm_flops += flops
    ledger.prm_seconds += seconds


def charge_scoring(scored: Sequence[NewCandidate], scoring: Scoring, num_parameters: int) -> None:
    """Charge questions for a call of the PRM."""
    called: set[Slot] = set()
    for new, value, usage, seconds in zip(
        scored, scoring.scores, scoring.usage, seconds_of(scoring), strict=True
    ):
        ledger = new.slot.tree.ledger
        ledger.prm_refused += value is None
        _charge_prm(ledger, usage, seconds, num_parameters)
        ledger.prm_calls += new.slot not in called
        called.add(new.slot)


class Accounts:
    """Divides the time of each tick.

    Attributes:
        own_seconds: seconds of the last tick, without model calls and without waiting for them.
    """

    def __init__(self, timings: Timings, policy: StepGenerator, scorer: StepScorer | None) -> None:
        self._timings = timings
        self._concurrent = {
            "policy": facts_of(policy).concurrent,
            "prm": facts_of(scorer).concurrent,
        }
        self.own_seconds = 0.0

    @contextlib.contextmanager
    def host(self) -> Iterator[None]:
        """Count the `with` block as the host's time; no question is charged for it."""
        started = time.perf_counter()
        yield
        self._timings.add("host", time.perf_counter() - started)

    def end_tick(self, busy: Stopwatch, slots: Sequence[Slot]) -> None:
        """Charge the open questions, `slots`, equal shares of a tick's core and remaining time.

        A tick that compiled a program charges no core time: its core took seconds.
        """
        wall, compiled = busy.wall(), busy.compiled()
        core = busy.seconds("core")
        calls = {part: busy.seconds(part) for part in self._concurrent}
        inside = {part: busy.seconds(f"{part} inside") for part in calls}
        # The seconds inside a concurrent model are spent by other threads.
        outside = {
            part: calls[part] - (0.0 if concurrent else inside[part])
            for part, concurrent in self._concurrent.items()
        }
        self.own_seconds = wall - busy.seconds("waiting") - sum(calls.values())
        host = self.own_seconds - core
        rest = max(0.0, host + sum(outside.values()))
        for slot in slots:
            slot.tree.ledger.core_seconds += 0.0 if compiled else core / len(slots)
            slot.tree.ledger.rest_seconds += rest / len(slots)
        for part in calls:
            self._timings.add(f"{part} inside", inside[part])
            self._timings.add(f"{part} outside", outside[part])
        self._timings.add("compiling" if compiled else "core", core)
        self._timings.add("host", host)
