"""Controllers against the frontier of rivals that adapt, at nine budgets."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from cats_jax.reporting.frontier.comparison import FrontierComparison
from cats_jax.reporting.frontier.controllers import Configurations, compare_controllers
from cats_jax.reporting.frontier.mixtures import Mixture
from cats_jax.reporting.groups import Group
from cats_jax.reporting.statistics import Paired

from .groups import cell, find
from .labels import CONTROLLERS, shown
from .markdown import Table, at_cost, difference
from .rows import load_groups, load_scores

TOKEN_BUDGETS = tuple(10 ** (2 + step / 4) for step in range(9))
"""Nine budgets in tokens, evenly spaced in their logarithm from 100 to 10 000."""

_SHIPPED = "cats"
_MEANS_ONLY = ("clone0", "clone1", "clone2", "trained0", "loop2", "loop3")
"""Controllers that are in the tables of means, not in those of every budget."""

_SHIPPED_BUDGETS = (180, 200, 220, 240, 260, 320, 400, 700, 1600)
"""Budgets in tokens at which other controllers are compared with the shipped one."""

_COMPARISONS = {
    # Prices are those of tokens.
    "tokens": ("rivals", "rules", "asking-rules", "tokens", "asking", "fifty", "moved", "trained"),
    "unseen": ("unseen", "unseen-trained"),
    "large": ("large", "large-pilot", "large-shipped", "large-trained", "large-loop"),
}
"""Name of the tables -> kinds of runs, each on validation and on test questions."""


def frontier_tables(rows: pathlib.Path, policy: str) -> Iterator[Table]:
    """For each comparison, tables of every budget in tokens, and of the means for each cost.

    One more table per comparison has every configuration on the test questions. A comparison
    without kept rows has no tables.
    """
    for name, kinds in _COMPARISONS.items():
        validation, test = (
            _searched(rows, policy, [f"{kind}-{part}" for kind in kinds])
            for part in ("validation", "test")
        )
        if validation is not None and test is not None:
            yield from _compare(f"{name}-{policy}", validation, test)


def _compare(name: str, validation: Configurations, test: Configurations) -> Iterator[Table]:
    """The tables of one comparison."""
    cheapest = {
        cost: min(group.mean(cost) for group in validation.groups) for cost in ("tokens", "flops")
    }
    families = _families(validation)
    for cost in ("tokens", "flops"):
        # In FLOPs, budgets are as far above the cheapest configuration as in tokens.
        budgets = [budget * cheapest[cost] / cheapest["tokens"] for budget in TOKEN_BUDGETS]
        compared = {
            rivals: compare_controllers(among(validation), among(test), families, budgets, cost)
            for rivals, among in _RIVALS.items()
        }
        if cost == "tokens":
            met = {key: of for key, of in compared["all"].items() if key[0] not in _MEANS_ONLY}
            yield _by_budget(f"{name}-tokens", met)
        yield _leads(f"{name}-{cost}-leads", compared)
    against = _against_shipped(validation, test)
    if against:
        yield _by_budget(f"{name}-shipped", against)
    yield _searched_table(f"{name}-searched", test.groups)


def _searched_table(name: str, groups: Sequence[Group]) -> Table:
    """Every configuration on the test questions with every PRM: accuracy (tokens)."""
    prms = list(dict.fromkeys(group.prm for group in groups if group.prm is not None))
    lines = [
        [shown(strategy), str(size), *(cell(find(groups, strategy, size, prm)) for prm in prms)]
        for strategy, size in dict.fromkeys((g.strategy, g.num_candidates) for g in groups)
    ]
    return Table(name, ["strategy", "N", *prms], lines)


_RIVALS: dict[str, Callable[[Configurations], Configurations]] = {
    "all": lambda part: part,
    # Without scores of the pilot there is no choice by predicted difficulty.
    "without the choice by difficulty": lambda part: part._replace(score_of=lambda row: None),
}
"""Sets of rivals by name."""


def _against_shipped(
    validation: Configurations, test: Configurations
) -> dict[tuple[str, str], FrontierComparison]:
    """The other controllers against mixtures of the shipped one's configurations."""
    families = _families(validation)
    apart = (_SHIPPED, *_MEANS_ONLY)
    others = {name: labels for name, labels in families.items() if name not in apart and labels}
    if not others or not families[_SHIPPED]:
        return {}
    known = families[_SHIPPED].union(*others.values())

    def trained(part: Configurations) -> Configurations:
        return part._replace(groups=[group for group in part.groups if group.strategy in known])

    parts = (trained(validation), trained(test))
    return compare_controllers(*parts, others, _SHIPPED_BUDGETS, "tokens")


def _families(part: Configurations) -> dict[str, frozenset[str]]:
    """The labels of each controller's configurations, which may add - and a price."""
    labels = {group.strategy for group in part.groups}
    return {
        controller: frozenset(name for name in labels if name.partition("-")[0] == controller)
        for controller in (_SHIPPED, *CONTROLLERS)
    }


def _searched(rows: pathlib.Path, policy: str, parts: Sequence[str]) -> Configurations | None:
    found = load_groups(rows, policy, parts)
    if not found:
        return None
    scores = {key: s for part in parts for key, s in load_scores(rows, policy, part).items()}
    return Configurations(found, lambda row: scores.get(row.key), f"{policy}-{parts[0]}")


def _by_budget(name: str, compared: Mapping[tuple[str, str], FrontierComparison]) -> Table:
    lines = [
        [
            prm,
            shown(controller),
            f"{meeting.budget:.0f}",
            _cell(meeting.own),
            _cell(meeting.rival),
            "" if meeting.rival is None else meeting.rival.name,
            _lead(meeting.lead),
            "" if meeting.lead is None else meeting.lead.verdict,
        ]
        for (controller, prm), comparison in compared.items()
        for meeting in comparison.meetings
    ]
    header = ["PRM", "controller", "budget, tokens", "accuracy (tokens)", "rivals' (tokens)"]
    return Table(name, [*header, "rivals' choice", "lead, 95 % interval", "result"], lines)


def _leads(
    name: str, compared: Mapping[str, Mapping[tuple[str, str], FrontierComparison]]
) -> Table:
    lines = []
    for rivals, found in compared.items():
        for (controller, prm), comparison in found.items():
            leads = [meeting.lead for meeting in comparison.meetings if meeting.lead is not None]
            verdicts = [lead.verdict for lead in leads]
            counts = "/".join(str(verdicts.count(verdict)) for verdict in ("wins", "ties", "loses"))
            lowest = f"{min(lead.difference.low for lead in leads):+.3f}" if leads else ""
            mean = _lead(comparison.mean_lead)
            lines.append([prm, rivals, shown(controller), mean, counts, lowest])
    header = ["PRM", "rivals", "controller", "mean lead, 95 % interval", "wins/ties/losses"]
    return Table(name, [*header, "lowest bound"], lines)


def _lead(lead: Paired | None) -> str:
    return "" if lead is None else difference(lead.difference)


def _cell(mixture: Mixture | None) -> str:
    return "" if mixture is None else at_cost(mixture.mean("correct"), mixture.mean("tokens"))
