"""The frontier of configurations in cost and accuracy, and its mixtures at a budget.

In a mixture of two configurations, a coin decides for each question which of the two searches it.
The mixtures of two points lie on the line between them, so the best accuracy at a mean cost is on
the upper concave hull of the points.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..groups import Key, PerQuestion, Point
from ..statistics import DIGITS

AnyPoint = TypeVar("AnyPoint", bound=Point)


@dataclass(frozen=True)
class Mixture(PerQuestion):
    """Two configurations, the cheaper first; `second` searches `share`, in [0, 1], of questions."""

    first: Point
    second: Point
    share: float

    @property
    def name(self) -> str:
        """Name for tables."""
        if self.share in (0.0, 1.0):
            return self.second.name if self.share else self.first.name
        return f"{self.first.name} + {self.share:.0%} {self.second.name}"

    def _column(self, value: str) -> dict[str, float]:
        """Expected value of a column over the coin, by id of a question that both points have."""
        one, two = self.first.by_question(value), self.second.by_question(value)
        return {
            question: (1.0 - self.share) * own + self.share * two[question]
            for question, own in one.items()
            if question in two
        }


def frontier_of(points: Sequence[AnyPoint], cost: str) -> list[AnyPoint]:
    """The points on the upper concave hull, from the cheapest to the most accurate.

    The points, at least one, have the same questions; `cost` is a column of the ledger.
    """
    # Means that are equal may differ by rounding.
    places = [(point.mean(cost), round(point.mean("correct"), DIGITS)) for point in points]
    hull: list[int] = []
    for index in sorted(range(len(points)), key=lambda i: (places[i][0], -places[i][1])):
        if hull and places[index][1] <= places[hull[-1]][1]:
            continue
        while len(hull) > 1 and _is_below(places[hull[-1]], places[hull[-2]], places[index]):
            hull.pop()
        hull.append(index)
    return [points[index] for index in hull]


def _is_below(
    point: tuple[float, float], left: tuple[float, float], right: tuple[float, float]
) -> bool:
    """Whether a point is on or below the line between two others."""
    slope = (right[1] - left[1]) / (right[0] - left[0])
    return round(point[1] - left[1] - slope * (point[0] - left[0]), DIGITS) <= 0


def at_budget(hull: Sequence[Point], budget: float, cost: str) -> Mixture | None:
    """The best mixture with a mean cost of at most `budget`; None if all cost more."""
    if hull[0].mean(cost) > budget:
        return None
    for left, right in itertools.pairwise(hull):
        low, high = left.mean(cost), right.mean(cost)
        if budget < high:
            return Mixture(left, right, (budget - low) / (high - low))
    return Mixture(hull[-1], hull[-1], 1.0)


def elsewhere(mixture: Mixture, points: Mapping[Key, Point]) -> Mixture:
    """The same mixture on other questions, whose configurations `points` has by key."""
    first, second = points[mixture.first.key], points[mixture.second.key]
    return Mixture(first, second, mixture.share)
