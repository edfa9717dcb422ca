"""A family of configurations against the frontier of its rivals, budget by budget.

Both frontiers are chosen on validation questions, which also favours luck, so both are evaluated on
test questions. At each budget the family's best mixture is compared with the rivals' best one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .. import statistics
from ..groups import Key, Point
from ..statistics import Paired
from .mixtures import Mixture, at_budget, elsewhere

NUM_BUDGETS = 9
"""Default number of budgets."""


@dataclass(frozen=True)
class Meeting:
    """The family and its rivals at one budget.

    Attributes:
        budget: largest mean cost on validation.
        own: the family's mixture on test questions; None if the whole family costs more.
        rival: the rivals' mixture on test questions; None if all rivals cost more.
        lead: accuracy of `own` minus that of `rival` on test questions, question by question.
    """

    budget: float
    own: Mixture | None
    rival: Mixture | None
    lead: Paired | None


@dataclass(frozen=True)
class FrontierComparison:
    """A family against its rivals.

    Attributes:
        meetings: one for each budget, ascending.
        mean_lead: mean of `lead` over the budgets that have one; None without such a budget. For
            budgets that are even in the logarithm of the cost, a mean over that logarithm.
    """

    meetings: tuple[Meeting, ...]
    mean_lead: Paired | None


def compare_frontiers(
    own: Sequence[Point],
    rivals: Sequence[Point],
    on_test: Mapping[Key, Point],
    budgets: Sequence[float],
    cost: str,
) -> FrontierComparison:
    """Compare the frontier of a family of configurations with that of its rivals.

    Args:
        own: frontier of the family on validation questions, see `frontier_of`.
        rivals: frontier of its rivals on the same questions.
        on_test: the same configurations on test questions, by key.
        budgets: largest mean costs, ascending.
        cost: column of the ledger that is the cost.
    """
    meetings, leads = [], []
    for budget in budgets:
        chosen = [at_budget(hull, budget, cost) for hull in (own, rivals)]
        one, two = (None if mixture is None else elsewhere(mixture, on_test) for mixture in chosen)
        lead = None
        if one is not None and two is not None:
            right, other = one.by_question(), two.by_question()
            leads.append({q: right[q] - other[q] for q in right if q in other})
            lead = _paired(leads[-1].values())
        meetings.append(Meeting(budget, one, two, lead))
    return FrontierComparison(tuple(meetings), _mean_lead(leads))


def _mean_lead(leads: Sequence[Mapping[str, float]]) -> Paired | None:
    if not leads:
        return None
    shared = [question for question in leads[0] if all(question in lead for lead in leads)]
    return _paired([sum(lead[question] for lead in leads) / len(leads) for question in shared])


def _paired(differences: Collection[float]) -> Paired:
    return statistics.paired(list(differences), [0.0] * len(differences))


def even_budgets(points: Sequence[Point], cost: str) -> list[float]:
    """`NUM_BUDGETS` budgets from the lowest to the highest cost, evenly spaced in logarithms."""
    costs = [point.mean(cost) for point in points]
    low, high = max(min(costs), 1.0), max(*costs, 1.0)
    steps = range(1, NUM_BUDGETS - 1)
    # The ends are not rounded: the cheapest point must fit its own budget.
    return [
        low,
        *(low * math.exp(math.log(high / low) * i / (NUM_BUDGETS - 1)) for i in steps),
        high,
    ]
