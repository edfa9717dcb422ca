"""Which actions a policy takes: by depth of the search, by remaining budget, and by N."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..live.results import SearchResult
from ..runs.folder import RunFolder
from .actions import action_counts
from .appearance import appearances
from .figure_setup import frame, make_panels_with_strips, shown
from .groups import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NOTE = "shares of decisions by how many more candidates they ask for; below, their number"
_BUDGET_BINS = 4

Shares = Mapping[str, Counter[int]]
"""Number of decisions by the label of a bar and by the number of extra candidates."""


@dataclass(frozen=True, slots=True)
class PlacedDecision:
    """A decision at a reasoning step from 1.

    `left` candidates remained in the question's budget before it; it requested `num_extra`.
    """

    step: int
    left: int
    num_extra: int


def plot_actions(found: Sequence[Group], title: str, run: RunFolder | None) -> dict[str, Figure]:
    """Figures of the actions of each policy that varies its number of extra candidates.

    Args:
        found: groups of one data set.
        title: title above the panels.
        run: the run of the groups, for its trees; with None no tree is read.

    Returns:
        Figures by the name of their file: "actions-depth-LABEL" and "actions-budget-LABEL" if the
        run has trees of the strategy, otherwise "actions-n-LABEL".

    Raises:
        BadInputError: a tree is damaged.
    """
    looks = appearances(group.strategy for group in found)
    figures: dict[str, Figure] = {}
    for strategy, look in looks.items():
        mine = [group for group in found if group.strategy == strategy and group.takes_actions]
        extras = sorted({action[0] for group in mine for action in action_counts(group)})
        if len(extras) < 2:
            continue
        head = f"{shown(look.title)}: {title}"
        placed = {} if run is None else _placed_by_panel(mine, run)
        if placed:
            depth = {name: shares_by_step(each) for name, each in placed.items()}
            left = {name: shares_by_budget(each) for name, each in placed.items()}
            budget = "candidates left in the question's budget, in parts of about as many decisions"
            drawn = {"depth": (depth, "reasoning step"), "budget": (left, budget)}
        else:
            drawn = {"n": (_shares_by_size(mine), "N: candidates per reasoning step at most")}
        for name, (bars, x_title) in drawn.items():
            figures[f"actions-{name}-{strategy}"] = _stacked(
                bars, extras, head, x_title, share_x=name != "budget"
            )
    return figures


def placed_decisions(result: SearchResult, budget: int) -> list[PlacedDecision]:
    """The decisions of a search in order, each with what remained of `budget`, in candidates."""
    ticks = sorted((each.step, each.phase) for each in result.candidates)
    return [
        PlacedDecision(
            step=decision.step + 1,
            # Candidates of earlier ticks are spent; those of the decision's own tick come after it.
            left=budget - bisect.bisect_left(ticks, (decision.step, decision.phase)),
            num_extra=decision.num_extra,
        )
        for decision in result.decisions
    ]


def shares_by_step(decisions: Sequence[PlacedDecision]) -> dict[str, Counter[int]]:
    """Decisions by reasoning step."""
    bars: dict[str, Counter[int]] = {}
    for step in range(1, max(each.step for each in decisions) + 1):
        bars[str(step)] = Counter(each.num_extra for each in decisions if each.step == step)
    return bars


def shares_by_budget(decisions: Sequence[PlacedDecision]) -> dict[str, Counter[int]]:
    """Decisions by remaining candidates, from most to fewest, in at most four ranges.

    The ranges have similar numbers of decisions. Equal remainders share a range.
    """
    left = np.array([each.left for each in decisions])
    inner = np.quantile(left, np.arange(1, _BUDGET_BINS) / _BUDGET_BINS, method="higher")
    bins = np.searchsorted(np.unique(inner), left, side="left")
    bars: dict[str, Counter[int]] = {}
    for index in sorted(set(bins.tolist()), reverse=True):
        low, high = left[bins == index].min(), left[bins == index].max()
        name = str(high) if low == high else f"{high}–{low}"
        bars[name] = Counter(
            each.num_extra for each, own in zip(decisions, bins, strict=True) if own == index
        )
    return bars


def _placed_by_panel(mine: Sequence[Group], run: RunFolder) -> dict[str, list[PlacedDecision]]:
    placed: dict[str, list[PlacedDecision]] = {}
    config = run.manifest["config"]
    for group in mine:
        budget = config.get("budget") or group.num_candidates * run.max_depth
        found = [
            decision
            for row in group.rows
            if row.tree is not None
            for decision in placed_decisions(run.tree(row), budget)
        ]
        if found:
            name = "" if group.prm is None else f", PRM {group.prm}"
            placed[f"N = {group.num_candidates}{name}"] = found
    return placed


def _shares_by_size(mine: Sequence[Group]) -> dict[str, dict[str, Counter[int]]]:
    panels: dict[str, dict[str, Counter[int]]] = {}
    for group in sorted(mine, key=lambda group: group.num_candidates):
        bars = panels.setdefault("no PRM" if group.prm is None else f"PRM {group.prm}", {})
        counts: Counter[int] = Counter()
        for action, times in action_counts(group).items():
            counts[action[0]] += times
        bars[str(group.num_candidates)] = counts
    return panels


def _stacked(
    panels: Mapping[str, Shares], extras: Sequence[int], title: str, x_title: str, *, share_x: bool
) -> Figure:
    """Stacked bars of shares for each panel, with the number of decisions below."""
    from matplotlib import colormaps
    from matplotlib.ticker import EngFormatter

    # Lightness falls with the number of extra candidates, also in greyscale.
    colors = colormaps["cividis_r"](np.linspace(0.05, 1.0, len(extras)))
    figure, upper, lower = make_panels_with_strips(
        len(panels), height=2.9, strip_title="decisions", share_x=share_x, share_strips=False
    )
    for axes, strip, (name, bars) in zip(upper, lower, panels.items(), strict=True):
        if share_x:  # every panel has the bars of all panels, which are named by numbers
            names = sorted({name for bars in panels.values() for name in bars}, key=int)
            bars = {name: bars.get(name, Counter()) for name in names}
        places = np.arange(len(bars))
        totals = np.array([sum(counts.values()) for counts in bars.values()], float)
        floor = np.zeros(len(bars))
        for extra, color in zip(extras, colors, strict=True):
            taken = np.array([counts[extra] for counts in bars.values()], float)
            share = taken / np.maximum(totals, 1.0)
            look: dict[str, Any] = {"width": 0.85, "edgecolor": "white", "linewidth": 0.5}
            axes.bar(places, share, bottom=floor, color=color, label=f"+{extra}", **look)
            floor += share
        strip.bar(places, totals, color="#888888", width=0.85)
        strip.yaxis.set_major_formatter(EngFormatter(sep=""))
        # A range such as 2559–2503 is wider than its bar.
        strip.set_xticks(places, [name.replace("–", "–\n") for name in bars])
        axes.set_title(name)
        axes.set_ylim(0.0, 1.0)
        axes.grid(False)
        strip.grid(False, axis="x")
    frame(figure, upper, title, _NOTE, x_title, "share of decisions")
    return figure
