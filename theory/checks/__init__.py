"""Tests of every claim, by enumeration or by sampling.

A check takes the function that states the claim as an argument: with a wrong function the verdict
changes. Those in `CHECKS` also take the seed of their draws, 0 by default, and name their reports.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator

from . import (
    accuracy,
    budget,
    descriptions,
    gap_bound,
    held_out,
    learning,
    misranking,
    risk_to_scores,
    sharper_bounds,
    simulated_search,
)
from .report import CheckReport, Verdict

_MODULES = (
    gap_bound,
    descriptions,
    sharper_bounds,
    risk_to_scores,
    misranking,
    accuracy,
    held_out,
    simulated_search,
    budget,
    learning,
)


def _named(name: str, function: Callable[..., CheckReport]) -> Callable[..., CheckReport]:
    """A check whose report has its name, and which takes a seed even if it draws nothing."""
    draws = "seed" in inspect.signature(function).parameters

    @functools.wraps(function)
    def check(*, seed: int = 0, **claim: object) -> CheckReport:
        report = function(**({"seed": seed} if draws else {}), **claim)
        return dataclasses.replace(report, name=name, seed=seed if draws else None)

    return check


CHECKS: dict[str, Callable[..., CheckReport]] = {
    name.removeprefix("check_"): _named(name.removeprefix("check_"), function)
    for module in _MODULES
    for name, function in vars(module).items()
    if name.startswith("check_")
}
"""Name -> check, in the order of the paper."""


def check_all(*, seed: int = 0) -> Iterator[CheckReport]:
    """Run every check.

    Args:
        seed: random seed of the draws, see `report.CONFIDENCE`.
    """
    for check in CHECKS.values():
        yield check(seed=seed)


__all__ = ["CHECKS", "CheckReport", "Verdict", "check_all"]
