"""All methods side by side: accuracy and tokens at each N, and accuracy against tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cats_jax.reporting.accuracy_figures import TOKENS, draw_series
from cats_jax.reporting.appearance import appearances
from cats_jax.reporting.figure_setup import frame, label_log_axis, make_panels
from cats_jax.reporting.frontier.mixtures import at_budget, frontier_of
from cats_jax.reporting.groups import Group, compare
from cats_jax.reporting.statistics import paired

from .groups import accuracy_points, cell, find
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
        "dora",
        "ets",
        "particle_filtering",
        "entropic",
        "confidence",
        "particle_gibbs",
        "proportional_resampling",
    ),
    "trees": ("mcts", "global_mcts", "litesearch"),
}
_EVERYWHERE = ("greedy", "cats")
_TITLES = {
    "best_of_n_weighted": "weighted vote",
    "deepconf-top": "DeepConf, tail and top half",
    "entropic": "entropic particle filtering",
    "confidence": "particles by confidence",
}
"""Titles of labels that have no title of their own."""


def method_tables(name: str, groups: Sequence[Group]) -> list[Table]:
    """Each method with each PRM: accuracy (tokens) by N, and its leads over best-of-N at N = 16.

    The rival in the last two columns costs as much as the method: it is the best mixture of greedy
    decoding and of best-of-N at the sizes that were run. The mixture is chosen on the same
    questions, which favours it. A method that costs more than the largest best-of-N is compared
    with that one.
    """
    prms = dict.fromkeys(group.prm for group in groups if group.prm is not None)
    strategies = dict.fromkeys(group.strategy for group in groups)
    sizes = [f"N = {size}" for size in SIZES]
    header = ["strategy", *sizes, "lead at N = 16", "at its tokens", "at its FLOPs"]
    tables = []
    for prm in prms:
        lines = []
        for strategy in strategies:
            cells = [cell(find(groups, strategy, size, prm)) for size in SIZES]
            lines.append([strategy, *cells, *_leads(groups, strategy, prm)])
        tables.append(Table(f"{name}-{prm}", header, lines))
    return tables


def _leads(groups: Sequence[Group], strategy: str, prm: str) -> tuple[str, str, str]:
    """Leads over best-of-N at N = 16: at the same N, at equal tokens and at equal FLOPs."""
    mine, rival = (find(groups, each, 16, prm) for each in (strategy, _YARDSTICK))
    if strategy in (_YARDSTICK, "greedy") or mine is None or rival is None:
        return "", "", ""
    same_size = compare(mine, rival)
    at_size = "" if same_size is None else difference(same_size.difference)
    return at_size, _at_its(groups, mine, prm, "tokens"), _at_its(groups, mine, prm, "flops")


def _at_its(groups: Sequence[Group], mine: Group, prm: str, cost: str) -> str:
    rivals = [find(groups, _YARDSTICK, size, prm) for size in SIZES]
    points = [each for each in (find(groups, "greedy", 1, prm), *rivals) if each is not None]
    rival = at_budget(frontier_of(points, cost), mine.mean(cost), cost)
    if rival is None:
        return ""
    own, other = mine.by_question(), rival.by_question()
    shared = [question for question in own if question in other]
    found = paired([own[each] for each in shared], [other[each] for each in shared])
    return difference(found.difference)


def draw_methods(groups: Sequence[Group], prm: str, title: str) -> Figure:
    """A panel for each family of methods with one PRM; greedy decoding and CATS are in all."""
    figure, panels = make_panels(len(_FAMILIES), height=2.9, most_columns=2)
    mine = [group for group in groups if group.prm in (None, prm)]
    for axes, (family, strategies) in zip(panels, _FAMILIES.items(), strict=True):
        shown = (*strategies, *_EVERYWHERE)
        looks = {
            label: dataclasses.replace(look, title=_TITLES.get(label, look.title))
            for label, look in appearances(shown).items()
        }
        for place, strategy in enumerate(shown):
            line = [group for group in mine if group.strategy == strategy]
            line.sort(key=lambda group: group.num_candidates)
            if line:
                draw_series(axes, accuracy_points(line), looks[strategy], place)
        axes.set_xscale("log")
        label_log_axis(axes.xaxis)
        axes.set_title(family)
    note = f"points of one line: N = {', '.join(map(str, SIZES))}; bars: 95 % interval"
    frame(figure, panels, title, note, TOKENS.title, "accuracy (share of questions)")
    return figure
