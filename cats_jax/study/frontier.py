"""Accuracy against tokens: all baselines, their upper frontier, and the policies."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..reporting.groups import Group
from .groups import PRMS

POLICIES = {
    "cats": ("o", "#1f5fa8"),
    "cats-0.02": ("X", "#b3541e"),
    "cats-0.005": ("d", "#4d8c4a"),
    "paper": ("*", "#7a4fa3"),
    "calibrated": ("h", "#c2a01f"),
}
"""Marker and colour of each policy, by label."""

_MARKERS = {"greedy": "P", "majority": "v", "best_of_n": "s", "best_of_n_weighted": "D"}


def plot_frontier(groups: Sequence[Group], path: pathlib.Path) -> None:
    """Write a PNG with a panel per PRM; the bars of policies are 95 % intervals."""
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 3, sharex=True).flatten()
    for axes, prm in zip(panels, PRMS, strict=True):
        mine = [group for group in groups if group.prm in (None, prm)]
        _draw_baselines(axes, [group for group in mine if not group.has_policy])
        for label in POLICIES:
            _draw_policy(axes, [group for group in mine if group.strategy == label])
        axes.set_xscale("log")
        axes.set_title(f"PRM {prm}", fontsize=10)
        axes.grid(True, which="major", color="#e5e5e5", linewidth=0.5)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8, loc="outside lower center", ncols=len(handles))
    for axes in (panels[0], panels[3]):
        axes.set_ylabel("accuracy (bars: 95 %)")
    for axes in panels[3:]:
        axes.set_xlabel("tokens per question")
    figure.savefig(path, dpi=110)


def _draw_baselines(axes: Axes, baselines: Sequence[Group]) -> None:
    points = [(group.mean("tokens"), group.accuracy().value) for group in baselines]
    labels = [group.strategy for group in baselines]
    for label in dict.fromkeys(labels):
        mine = [point for point, own in zip(points, labels, strict=True) if own == label]
        color = "#444444" if label.startswith("beam") else "#888888"
        fill = "white" if label == "beam-T0.6" else None
        style = {"color": color, "markerfacecolor": fill, "linestyle": "none", "markersize": 5}
        axes.plot(*zip(*mine, strict=True), marker=_MARKERS.get(label, "^"), label=label, **style)
    best = np.maximum.accumulate([accuracy for _, accuracy in sorted(points)])
    tokens = [tokens for tokens, _ in sorted(points)]
    axes.step(tokens, best, where="post", color="#888888", linewidth=1)


def _draw_policy(axes: Axes, line: Sequence[Group]) -> None:
    if not line:
        return
    label, tokens = line[0].strategy, [group.mean("tokens") for group in line]
    value, low, high = np.array([(i.value, i.low, i.high) for i in (g.accuracy() for g in line)]).T
    style = {"linestyle": "-", "linewidth": 0.8, "elinewidth": 0.6, "markersize": 6}
    marker, style["color"] = POLICIES[label]
    bars = np.array([value - low, high - value])
    axes.errorbar(tokens, value, yerr=bars, marker=marker, label=label, **style)
