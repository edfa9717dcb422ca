"""The compute-optimal choice: the best configuration at each budget, for each level of questions.

Eq. 1 of the paper defines, for a question q and a budget C, the hyperparameters psi with the
highest expected correctness. Here psi is a configuration of a run: strategy, N and PRM. Psi is
chosen for a level of questions, as in Snell et al. (arXiv:2408.03314), not for each question. A
configuration fits a budget at a level if its mean cost on the level's questions is at most the
budget. One configuration for all levels must fit the budget at each level. On the questions of the
choice it is therefore never better than the choice by level.

The paper does not say on which questions psi is chosen. Here psi is chosen on one half of the
questions, given by a hash of their ids, and evaluated on the other half: on the half of the choice,
which also favours luck, psi looks better than it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from theory.estimators import Estimate

from ..errors import BadInputError
from . import statistics
from .groups import Group
from .selection import level_of
from .statistics import Paired


@dataclass(frozen=True)
class Halves:
    """Ids of the questions of one level: those of the choice, and the others; neither is empty."""

    chosen_on: tuple[str, ...]
    judged_on: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """What the configuration of a level reaches, or those of all levels together.

    Attributes:
        group: the configuration; that of the first level if they differ.
        own: accuracy on the questions of the choice.
        accuracy, cost: accuracy and mean cost on the others.
        right: share of right answers of each of the others.
    """

    group: Group
    own: float
    accuracy: Estimate
    cost: float
    right: Sequence[float]


@dataclass(frozen=True)
class AtBudget:
    """The best choices at a budget.

    Attributes:
        budget: largest mean cost per question, at each level.
        levels: the choice for each level.
        by_level: these choices together.
        fixed: the choice of one configuration for all levels.
    """

    budget: float
    levels: Mapping[str, Choice]
    by_level: Choice
    fixed: Choice

    @property
    def gain(self) -> Paired:
        """Accuracy of the choice by level minus that of `fixed`, question by question."""
        return statistics.paired(self.by_level.right, self.fixed.right)


@dataclass(frozen=True)
class ComputeOptimal:
    """The compute-optimal choices of one data set.

    Attributes:
        budgets: budgets at which a choice changes, ascending.
        halves: questions of each level.
        left_out: names of configurations that do not have all questions.
        single: levels that are left out because all their questions are in one half.
    """

    budgets: tuple[AtBudget, ...]
    halves: Mapping[str, Halves]
    left_out: tuple[str, ...]
    single: tuple[str, ...]


def compute_optimal(found: Sequence[Group], cost: str = "tokens") -> ComputeOptimal:
    """Choose the best configuration at each budget on one half, and evaluate it on the other.

    Args:
        found: groups of one data set, at least one.
        cost: column of the ledger that the budget limits.

    Returns:
        The choices. The budgets are the mean costs of the configurations, each at its most
        expensive level. A tie goes to the cheaper configuration.

    Raises:
        BadInputError: no configuration has all questions, or no level has questions in both halves.
    """
    questions = {question: None for group in found for question in group.by_question()}
    complete = [group for group in found if len(group.by_question()) == len(questions)]
    left_out = tuple(
        f"{group.name}{(group.prm and f', {group.prm}') or ''}"
        for group in found
        if len(group.by_question()) < len(questions)
    )
    levels = _levels(found)
    halves, single = {}, []
    for level, members in levels.items():
        chosen_on = tuple(question for question in members if is_chosen_on(question))
        judged_on = tuple(question for question in members if not is_chosen_on(question))
        if chosen_on and judged_on:
            halves[level] = Halves(chosen_on, judged_on)
        else:
            single.append(level)
    if not complete or not halves:
        raise BadInputError(
            f"--compute-optimal: {len(questions)} questions and {len(complete)} configurations "
            "that have them all; it needs one, and questions of a level in both halves"
        )
    dearest = {
        id(group): max(_mean(group, cost, [half]) for half in halves.values()) for group in complete
    }
    budgets: list[AtBudget] = []
    for budget in sorted(set(dearest.values())):
        best = [
            (_best([g for g in complete if _mean(g, cost, [half]) <= budget], [half], cost), half)
            for half in halves.values()
        ]
        affordable = [group for group in complete if dearest[id(group)] <= budget]
        fixed = _best(affordable, [*halves.values()], cost)
        at = AtBudget(
            budget=budget,
            levels={level: _choice([pair], cost) for level, pair in zip(halves, best, strict=True)},
            by_level=_choice(best, cost),
            fixed=_choice([(fixed, half) for half in halves.values()], cost),
        )
        if not budgets or _groups(at) != _groups(budgets[-1]):
            budgets.append(at)
    return ComputeOptimal(tuple(budgets), halves, left_out, tuple(single))


def is_chosen_on(question: str) -> bool:
    """Whether a question is in the half that configurations are chosen on, by a hash of its id."""
    return hashlib.sha256(question.encode()).digest()[0] % 2 == 0


def _levels(found: Sequence[Group]) -> dict[str, list[str]]:
    """Ids of the questions of each level, in order of level; "-" stands for a missing level."""
    levels = {row.question: level_of(row) or "-" for group in found for row in group.rows}
    names = sorted(set(levels.values()), key=lambda name: (len(name), name))
    return {name: [q for q, level in levels.items() if level == name] for name in names}


def _best(affordable: Sequence[Group], halves: Sequence[Halves], cost: str) -> Group:
    def place(group: Group) -> tuple[float, float]:
        # Means of several seeds that are equal may differ by rounding.
        right = round(_mean(group, "correct", halves), statistics.DIGITS)
        return right, -_mean(group, cost, halves)

    return max(affordable, key=place)


def _choice(parts: Sequence[tuple[Group, Halves]], cost: str) -> Choice:
    """What the configuration of each part reaches on the part's questions."""
    right = [group.by_question()[q] for group, half in parts for q in half.judged_on]
    own = [group.by_question()[q] for group, half in parts for q in half.chosen_on]
    costs = [group.by_question(cost)[q] for group, half in parts for q in half.judged_on]
    return Choice(
        group=parts[0][0],
        own=sum(own) / len(own),
        accuracy=statistics.accuracy(right),
        cost=sum(costs) / len(costs),
        right=right,
    )


def _groups(at: AtBudget) -> list[int]:
    return [id(choice.group) for choice in (*at.levels.values(), at.fixed)]


def _mean(group: Group, column: str, halves: Sequence[Halves]) -> float:
    """Mean over the questions of the choice."""
    values = [group.by_question(column)[q] for half in halves for q in half.chosen_on]
    return sum(values) / len(values)
