"""Finding the study's groups of rows, and their values."""

from __future__ import annotations

from collections.abc import Sequence

from cats_jax.reporting.groups import Group
from cats_jax.training.ablations import PRICE

from .markdown import at_cost

PRMS = ("exact", "sparse", "pruned-50", "monte-carlo", "pruned-80", "labels-only")
"""Labels of the PRMs, in the order of the columns."""

SIZES = (4, 16, 64, 256)
"""Values of N."""


def find(groups: Sequence[Group], strategy: str, size: int, prm: str | None) -> Group | None:
    """The group of a strategy at N = `size`; None if it was not run.

    A strategy that reads no PRM is found with any, greedy decoding at any N.
    """
    for group in groups:
        at_size = group.num_candidates == size or strategy == "greedy"
        if group.strategy == strategy and group.prm in (None, prm) and at_size:
            return group
    return None


def of_seeds(groups: Sequence[Group], label: str, size: int, prm: str | None = None) -> list[Group]:
    """Groups of the controllers `LABEL-SEED` at N = `size`; with every PRM if `prm` is None."""
    return [
        group
        for group in groups
        if group.strategy.rpartition("-")[0] == label
        and group.num_candidates == size
        and prm in (None, group.prm)
    ]


def accuracy_points(groups: Sequence[Group]) -> list[tuple[float, float, float, float]]:
    """For a figure: tokens per question, and accuracy with the ends of its interval."""
    found = [group.accuracy() for group in groups]
    return [
        (group.mean("tokens"), each.value, each.low, each.high)
        for group, each in zip(groups, found, strict=True)
    ]


def cell(group: Group | None) -> str:
    """A cell with accuracy and tokens per question; "" without a group."""
    return "" if group is None else at_cost(group.accuracy().value, group.mean("tokens"))


def value(group: Group, price: float = PRICE) -> float:
    """Accuracy minus the price of the candidates, `price` per 100."""
    return group.accuracy().value - price * group.mean("candidates") / 100.0


def value_by_question(group: Group) -> dict[str, float]:
    """Share of right answers minus the price of the candidates, by question id."""
    right, candidates = group.by_question(), group.by_question("candidates")
    return {question: right[question] - PRICE * candidates[question] / 100.0 for question in right}
