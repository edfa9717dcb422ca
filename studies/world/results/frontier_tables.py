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
from .labels import shown
from .markdown import Table, at_cost, difference
from .rows import load_groups, load_scores

TOKEN_BUDGETS = tuple(10 ** (2 + step / 4) for step in range(9))
"""Nine budgets in tokens, evenly spaced in their logarithm from 100 to 10 000."""

_SHIPPED = "cats"
_CLONES = ("clone0", "clone1", "clone2")
_CONTROLLERS = (
    _SHIPPED,
    *_CLONES,
    *("asking0", "asking1", "asking2"),
    *("trained0", "trained1"),
    *("loop2", "loop3"),
    *("fifty2", "moved2"),
)
"""The controllers by their labels, see `labels`; a configuration's label may add - and a price."""

_MEANS_ONLY = (*_CLONES, "trained0", "loop2", "loop3")
"""Controllers that are in the tables of means, not in those of every budget."""

_SHIPPED_BUDGETS = (180, 200, 220, 240, 260, 320, 400, 700, 1600)
"""Budgets in tokens at which other controllers are compared with the shipped one."""

_TOKENS_RUNS = (
    "rivals",
    "rules",
    "asking-rules",
    "tokens",
    "asking",
    "fifty",
    "moved",
    "trained",
)
"""Kinds of the runs of the comparison in which prices are those of tokens."""

_COMPARISONS = {
    "tokens": _TOKENS_RUNS,
    "unseen": ("unseen", "unseen-trained"),
    "large": ("large", "large-pilot", "large-shipped", "large-trained", "large-loop"),
}
"""Name of the tables -> kinds of runs, each on validation and on test questions."""


def frontier_tables(rows: pathlib.Path, policy: str) -> Iterator[Table]:
    """For each comparison and cost, tables of every budget and of the means; if rows are kept.

    One more table per comparison has every configuration on the test questions.
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
    for cost in ("tokens", "flops"):
        # In FLOPs, budgets are as far above the cheapest configuration as in tokens.
        budgets = [budget * cheapest[cost] / cheapest["tokens"] for budget in TOKEN_BUDGETS]
        compared = {
            rivals: _compared(among(validation), among(test), budgets, cost)
            for rivals, among in _RIVALS.items()
        }
        shown = {key: found for key, found in compared["all"].items() if key[0] not in _MEANS_ONLY}
        yield _by_budget(f"{name}-{cost}", shown, cost)
        yield _leads(f"{name}-{cost}-leads", compared)
    against = _against_shipped(validation, test)
    if against:
        yield _by_budget(f"{name}-shipped", against, "tokens")
    yield _searched_table(f"{name}-searched", test.groups)


def _searched_table(name: str, groups: Sequence[Group]) -> Table:
    """Every configuration on the test questions with every PRM: accuracy (tokens)."""
    prms = list(dict.fromkeys(group.prm for group in groups if group.prm is not None))
    lines = [
        [shown(strategy), str(size), *(cell(find(groups, strategy, size, prm)) for prm in prms)]
        for strategy, size in dict.fromkeys((g.strategy, g.num_candidates) for g in groups)
    ]
    return Table(name, ["strategy", "N", *prms], lines)


def _without_difficulty(part: Configurations) -> Configurations:
    # Without scores of the pilot there is no choice by predicted difficulty.
    return part._replace(score_of=lambda row: None)


_RIVALS: dict[str, Callable[[Configurations], Configurations]] = {
    "all": lambda part: part,
    "without the choice by difficulty": _without_difficulty,
}
"""Sets of rivals by name."""


def _compared(
    validation: Configurations, test: Configurations, budgets: Sequence[float], cost: str
) -> dict[tuple[str, str], FrontierComparison]:
    """Each controller against its rivals with each PRM."""
    return compare_controllers(validation, test, _families(validation), budgets, cost)


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

    budgets, cost = _SHIPPED_BUDGETS, "tokens"
    return compare_controllers(trained(validation), trained(test), others, budgets, cost)


def _families(part: Configurations) -> dict[str, frozenset[str]]:
    """The labels of each controller's configurations."""
    labels = {group.strategy for group in part.groups}
    return {
        controller: frozenset(name for name in labels if name.partition("-")[0] == controller)
        for controller in _CONTROLLERS
    }


def _searched(rows: pathlib.Path, policy: str, parts: Sequence[str]) -> Configurations | None:
    found = load_groups(rows, policy, parts)
    if not found:
        return None
    scores = {key: s for part in parts for key, s in load_scores(rows, policy, part).items()}
    return Configurations(found, lambda row: scores.get(row.key), f"{policy}-{parts[0]}")


def _by_budget(
    name: str, compared: Mapping[tuple[str, str], FrontierComparison], cost: str
) -> Table:
    lines = [
        [
            prm,
            shown(controller),
            _amount(meeting.budget, cost),
            _cell(meeting.own, cost),
            _cell(meeting.rival, cost),
            "" if meeting.rival is None else meeting.rival.name,
            _lead(meeting.lead),
            "" if meeting.lead is None else meeting.lead.verdict,
        ]
        for (controller, prm), comparison in compared.items()
        for meeting in comparison.meetings
    ]
    unit = "tokens" if cost == "tokens" else "MFLOP"
    header = ["PRM", "controller", f"budget, {unit}", f"accuracy ({unit})", f"rivals' ({unit})"]
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
            lines.append(
                [prm, rivals, shown(controller), _lead(comparison.mean_lead), counts, lowest]
            )
    header = [
        "PRM",
        "rivals",
        "controller",
        "mean lead, 95 % interval",
        "wins/ties/losses",
        "lowest bound",
    ]
    return Table(name, header, lines)


def _lead(lead: Paired | None) -> str:
    return "" if lead is None else difference(lead.difference)


def _cell(mixture: Mixture | None, cost: str) -> str:
    if mixture is None:
        return ""
    scale = 1.0 if cost == "tokens" else 1e-6
    return at_cost(mixture.mean("correct"), scale * mixture.mean(cost))


def _amount(value: float, cost: str) -> str:
    return f"{value if cost == 'tokens' else value * 1e-6:.0f}"
