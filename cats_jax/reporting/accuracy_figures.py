"""Accuracy against N, tokens and FLOPs, and by the level of the questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .appearance import Appearance, appearances
from .figure_setup import frame, label_log_axis, make_panels, shown
from .groups import Group
from .point_labels import DrawnSeries, place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACCURACY = "accuracy (share of questions)"
_BARS = "bars: 95 % interval over questions"
_MOST_LEVELS = 12
_DODGE = 0.09
"""Horizontal distance of neighbouring series: in octaves at one N, in levels at one level."""


@dataclass(frozen=True)
class Cost:
    """A column of the ledger on an x axis, and the axis' title with the unit."""

    column: str
    title: str


TOKENS = Cost("tokens", "tokens per question: sampled by the policy + computed by the PRM")
FLOPS = Cost(
    "flops", "floating-point operations per question: policy + PRM (M: 10⁶, G: 10⁹, T: 10¹²)"
)


def plot_against_cost(found: Sequence[Group], title: str, cost: Cost) -> Figure | None:
    """Accuracy against a cost on a logarithmic axis; the numbers at the points are N.

    There is a panel for each PRM. Strategies without a PRM are in every panel.

    Args:
        found: groups of one data set.
        title: title above the panels.
        cost: cost on the x axis.

    Returns:
        The figure. None without groups, or if a group's mean cost is 0, such as uncounted FLOPs.
    """
    if not found or any(group.mean(cost.column) <= 0 for group in found):
        return None
    looks = appearances(group.strategy for group in found)
    figure, panels, prms = _panels_by_prm(found)
    drawn: list[list[DrawnSeries]] = []
    for axes, prm in zip(panels, prms, strict=True):
        drawn.append([])
        for place, (strategy, line) in enumerate(_lines(found, prm).items()):
            points = _points(line, [group.mean(cost.column) for group in line])
            draw_series(axes, points, looks[strategy], place)
            numbers = [str(g.num_candidates) if g.num_candidates > 1 else "" for g in line]
            drawn[-1].append(DrawnSeries(points, numbers, looks[strategy].color))
        axes.set_xscale("log")
        label_log_axis(axes.xaxis)
        axes.margins(x=0.08, y=0.08)
    _finish(figure, panels, title, f"{_BARS}; numbers at points: N", cost.title)
    figure.draw_without_rendering()
    for axes, series in zip(panels, drawn, strict=True):
        place_labels(axes, series)
    return figure


def plot_against_num_candidates(found: Sequence[Group], title: str) -> Figure | None:
    """Accuracy against N; points of one N are drawn beside one another.

    A strategy with only one N, such as greedy decoding, also has a dotted horizontal line.

    Returns:
        The figure; None if there are fewer than two values of N besides 1.
    """
    sizes = sorted({group.num_candidates for group in found} - {1})
    if len(sizes) < 2:
        return None
    looks = appearances(group.strategy for group in found)
    figure, panels, prms = _panels_by_prm(found)
    for axes, prm in zip(panels, prms, strict=True):
        lines = _lines(found, prm)
        for place, (strategy, line) in enumerate(lines.items()):
            octaves = 0.0 if len(line) == 1 else _DODGE * (place - (len(lines) - 1) / 2)
            points = _points(line, [group.num_candidates * 2**octaves for group in line])
            draw_series(axes, points, looks[strategy])
            if len(line) == 1:
                value = line[0].accuracy().value
                axes.axhline(value, color=looks[strategy].color, linewidth=0.8, linestyle=":")
        axes.set_xscale("log", base=2)
        ticks = sorted({group.num_candidates for group in found})
        axes.set_xticks(ticks, [str(size) for size in ticks])
        axes.set_xticks([], minor=True)
        axes.margins(x=0.06, y=0.08)
    _finish(figure, panels, title, _BARS, "N: candidates per reasoning step at most")
    return figure


def plot_levels(found: Sequence[Group], title: str) -> Figure | None:
    """Accuracy by the questions' level, one panel for each PRM and N.

    A strategy without a PRM is in the panels of every PRM, one with only one N in those of every N.

    Returns:
        The figure. None unless every row has a level (a whole number or a short text), and there
        are 2 to 12 distinct levels.
    """
    levels = sorted({_level(row.meta.get("level")) for group in found for row in group.rows})
    if not 2 <= len(levels) <= _MOST_LEVELS or any(not name for *_, name in levels):
        return None
    looks = appearances(group.strategy for group in found)
    cells = [
        (prm, size)
        for prm in _prms(found)
        for size in sorted({g.num_candidates for g in found if g.prm in (None, prm)} - {1}) or [1]
    ]
    figure, panels = make_panels(len(cells), height=2.5)
    for axes, (prm, size) in zip(panels, cells, strict=True):
        lines = {
            strategy: group
            for strategy, line in _lines(found, prm).items()
            for group in line
            if group.num_candidates == size or len(line) == 1
        }
        for place, (strategy, group) in enumerate(lines.items()):
            offset = _DODGE * (place - (len(lines) - 1) / 2)
            parts = [(index, _of_level(group, level)) for index, level in enumerate(levels)]
            there = {index + offset: part for index, part in parts if part is not None}
            draw_series(axes, _points(list(there.values()), list(there)), looks[strategy])
        axes.set_xticks(range(len(levels)), [shown(name) for *_, name in levels])
        axes.set_title(_panel_title(prm, size))
    _finish(figure, panels, title, _BARS, "level of the question")
    return figure


def draw_series(
    axes: Axes,
    points: Sequence[tuple[float, float, float, float]],
    look: Appearance,
    place: int = 2,
) -> None:
    """Draw (x, y, low, high) of a strategy as a line with markers and bars.

    The first series of a panel have larger markers, so that later series do not hide them.
    """
    x, y, low, high = zip(*points, strict=True)
    style: dict[str, Any] = {"color": look.color, "marker": look.marker, "linestyle": look.line}
    lines_only = look.marker in "1234"
    style["markeredgecolor"] = look.color if lines_only else "white"
    style["markeredgewidth"] = 1.4 if lines_only else 0.5
    style["markersize"] = (1.4 if look.marker == "*" else 1.0) * max(8.0 - 0.6 * place, 5.0)
    bars = np.subtract([y, high], [low, y]).tolist()
    axes.errorbar(x, y, yerr=bars, label=look.title, elinewidth=0.9, capsize=2.0, **style)


def _panels_by_prm(found: Sequence[Group]) -> tuple[Figure, list[Axes], list[str | None]]:
    prms = _prms(found)
    figure, panels = make_panels(len(prms))
    for axes, prm in zip(panels, prms, strict=True):
        axes.set_title(_panel_title(prm))
    return figure, panels, prms


def _prms(found: Sequence[Group]) -> list[str | None]:
    return list(dict.fromkeys(group.prm for group in found if group.prm is not None)) or [None]


def _panel_title(prm: str | None, size: int | None = None) -> str:
    name = "no PRM" if prm is None else f"PRM {prm}"
    return name if size is None else f"{name}, N = {size}"


def _lines(found: Sequence[Group], prm: str | None) -> dict[str, list[Group]]:
    """The groups of a PRM's panel by strategy, in the order of N."""
    lines: dict[str, list[Group]] = {}
    for group in found:
        if group.prm in (None, prm):
            lines.setdefault(group.strategy, []).append(group)
    return {
        name: sorted(line, key=lambda group: group.num_candidates) for name, line in lines.items()
    }


def _points(line: Sequence[Group], x: Sequence[float]) -> list[tuple[float, float, float, float]]:
    found = [group.accuracy() for group in line]
    return [(at, each.value, each.low, each.high) for at, each in zip(x, found, strict=True)]


def _level(value: object) -> tuple[int, int, str]:
    """Sort key and name of a level: 9 before 10, numbers before texts; "" names no level."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (0, value, str(value))
    if isinstance(value, str) and 0 < len(value) <= 12:
        return (1, 0, value)
    return (2, 0, "")


def _of_level(group: Group, level: tuple[int, int, str]) -> Group | None:
    rows = tuple(row for row in group.rows if _level(row.meta.get("level")) == level)
    return dataclasses.replace(group, rows=rows) if rows else None


def _finish(figure: Figure, panels: Sequence[Axes], title: str, note: str, x_title: str) -> None:
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(max(low, -0.03), min(high, 1.03))
    frame(figure, panels, title, note, x_title, _ACCURACY)
