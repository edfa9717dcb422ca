"""Accuracy against tokens: all baselines, their upper frontier, and the policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cats_jax.reporting.accuracy_figures import TOKENS, draw_series
from cats_jax.reporting.appearance import Appearance, appearances
from cats_jax.reporting.figure_setup import frame, label_log_axis, make_panels
from cats_jax.reporting.groups import Group

from .groups import PRMS, accuracy_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POLICIES = ("cats", "cats-0.02", "cats-0.005", "paper", "calibrated")
"""Labels of the policies that are drawn."""

_BASELINES = ("greedy", "majority", "best_of_n", "best_of_n_weighted", "beam", "beam-T0.6")
_TITLES = {
    "best_of_n_weighted": "vote weighted by scores",
    "beam-T0.6": "beam search, T = .6",
    "cats": "CATS, price .2",
    "cats-0.02": "CATS, price .02",
    "cats-0.005": "CATS, price .005",
    "paper": "the paper's method, our reading",
    "calibrated": "CATS, calibrated scores",
}


def draw_frontier(groups: Sequence[Group], title: str) -> Figure:
    """A panel per PRM: baselines as points, the best of them at each cost, policies as lines."""
    figure, panels = make_panels(len(PRMS), height=2.9, share_y="row")
    looks = _looks()
    for axes, prm in zip(panels, PRMS, strict=True):
        mine = [group for group in groups if group.prm in (None, prm)]
        _draw_baselines(axes, [group for group in mine if not group.takes_actions], looks)
        for place, label in enumerate(POLICIES):
            line = [group for group in mine if group.strategy == label]
            if line:
                draw_series(axes, accuracy_points(line), looks[label], place)
        axes.set_xscale("log")
        label_log_axis(axes.xaxis)
        axes.set_title(f"PRM {prm}")
    note = "points of one colour: N = 4, 16, 64, 256; bars: 95 % interval over questions"
    frame(figure, panels, title, note, TOKENS.title, "accuracy (share of questions)")
    return figure


def _looks() -> dict[str, Appearance]:
    looks = appearances((*_BASELINES, *POLICIES))
    return {
        label: dataclasses.replace(look, title=_TITLES.get(label, look.title))
        for label, look in looks.items()
    }


def _draw_baselines(axes: Axes, baselines: Sequence[Group], looks: dict[str, Appearance]) -> None:
    points = [(group.mean("tokens"), group.accuracy().value) for group in baselines]
    labels = [group.strategy for group in baselines]
    looks = {**appearances(labels), **looks}
    for label in dict.fromkeys(labels):
        mine = [point for point, own in zip(points, labels, strict=True) if own == label]
        look = looks[label]
        axes.plot(
            *zip(*mine, strict=True),
            marker=look.marker,
            color=look.color,
            label=look.title,
            linestyle="none",
            markersize=9.0 if look.marker == "*" else 5.0,
        )
    best = np.maximum.accumulate([accuracy for _, accuracy in sorted(points)])
    tokens = [tokens for tokens, _ in sorted(points)]
    axes.step(
        tokens, best, where="post", color="#999999", linewidth=1.0, label="best fixed strategy"
    )
