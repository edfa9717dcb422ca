"""All methods side by side: accuracy and tokens at each N, and accuracy against tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cats_jax.reporting.accuracy_figures import TOKENS, draw_series
from cats_jax.reporting.appearance import appearances
from cats_jax.reporting.drawing import frame, label_log_axis, make_panels
from cats_jax.reporting.groups import Group, compare

from .groups import cell, find
from .markdown import Table, difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (4, 16, 64)
"""Values of N of the comparison."""

_YARDSTICK = "best_of_n"
_FAMILIES = {
    "whole paths": (
        "majority",
        "best_of_n",
        "best_of_n_weighted",
        "speculative_rejection",
        "sequential_halving",
        "early_stopping_consistency",
        "adaptive_consistency",
        "sequential_best_of_n",
    ),
    "votes by certainty": (
        "majority",
        "self_certainty",
        "deepconf",
        "deepconf-top",
        "deepconf_online",
    ),
    "beams": ("beam", "step_level_beam", "vg_search", "lookahead", "dvts"),
    "resampling": (
        "rebase",
        "particle_filtering",
        "entropic",
        "confidence",
        "particle_gibbs",
        "proportional_resampling",
    ),
    "trees": ("mcts", "global_mcts", "litesearch"),
}
_EVERYWHERE = ("greedy", "cats")


def method_tables(name: str, groups: Sequence[Group]) -> list[Table]:
    """Each method with each PRM: accuracy (tokens) by N, and its lead over best-of-N at N = 16."""
    prms = dict.fromkeys(group.prm for group in groups if group.prm is not None)
    strategies = dict.fromkeys(group.strategy for group in groups)
    header = ["strategy", *(f"N = {size}" for size in SIZES), "lead over best-of-N at N = 16"]
    tables = []
    for prm in prms:
        lines = []
        for strategy in strategies:
            cells = [cell(find(groups, strategy, size, prm)) for size in SIZES]
            lines.append([strategy, *cells, _lead(groups, strategy, prm)])
        tables.append(Table(f"{name}-{prm}", header, lines))
    return tables


def _lead(groups: Sequence[Group], strategy: str, prm: str) -> str:
    mine, rival = (find(groups, each, 16, prm) for each in (strategy, _YARDSTICK))
    if strategy == _YARDSTICK or mine is None or rival is None:
        return ""
    result = compare(mine, rival)
    return "" if result is None else difference(result.difference)


def draw_methods(groups: Sequence[Group], prm: str, title: str) -> Figure:
    """A panel for each family of methods with one PRM; greedy decoding and CATS are in all."""
    figure, panels = make_panels(len(_FAMILIES), height=2.9, most_columns=2)
    mine = [group for group in groups if group.prm in (None, prm)]
    for axes, (family, strategies) in zip(panels, _FAMILIES.items(), strict=True):
        shown = (*strategies, *_EVERYWHERE)
        looks = appearances(shown)
        for place, strategy in enumerate(shown):
            line = sorted(
                (group for group in mine if group.strategy == strategy),
                key=lambda group: group.num_candidates,
            )
            found = [group.accuracy() for group in line]
            points = [
                (group.mean("tokens"), each.value, each.low, each.high)
                for group, each in zip(line, found, strict=True)
            ]
            if points:
                draw_series(axes, points, looks[strategy], place)
        axes.set_xscale("log")
        label_log_axis(axes.xaxis)
        axes.set_title(family)
    note = f"points of one line: N = {', '.join(map(str, SIZES))}; bars: 95 % interval"
    frame(figure, panels, title, note, TOKENS.title, "accuracy (share of questions)")
    return figure
