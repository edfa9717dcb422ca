"""Values with intervals, one row for each of what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cats_jax.reporting.figure_setup import WIDTH, frame, make_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v", "P")
_COLORS = ("#c1272d", "#1f5fa8", "#2f7d4f", "#7a4fa3", "#b3541e", "#56779b")
_ROW = 0.27
"""Height of a row, in inches."""


class Value(NamedTuple):
    """A value with its interval: `low <= value <= high`; without one all three are equal."""

    row: str
    value: float
    low: float
    high: float


def draw_intervals(
    panels: Mapping[str, Mapping[str, Sequence[Value]]],
    *,
    title: str,
    note: str,
    x_title: str,
    zero: float | None = None,
) -> Figure:
    """Rows from top to bottom in the order of their first appearance, a marker for each series.

    Series that share rows are drawn side by side.

    Args:
        panels: values by title of the panel and name of the series; a lone series named "" is not
            in the legend.
        title, note: the two lines above the panels.
        x_title: title of the x axis, with its unit.
        zero: where a vertical line is drawn.
    """
    rows = [
        list(dict.fromkeys(each.row for series in panel.values() for each in series))
        for panel in panels.values()
    ]
    shared = any(
        len(own_rows) < sum(map(len, panel.values()))
        for own_rows, panel in zip(rows, panels.values(), strict=True)
    )
    of_row = _ROW if not shared else max(_ROW, 0.13 * max(map(len, panels.values())))
    height = max(map(len, rows)) * of_row + 0.7
    figure, all_axes = make_panels(len(panels), height=height, most_columns=2, share_y=False)
    figure.set_figwidth(WIDTH)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    distance = 0.22 if shared else 0.0
    for axes, own_rows, (panel_title, panel) in zip(all_axes, rows, panels.items(), strict=True):
        for name, values in panel.items():
            place = names.index(name)
            # The first series is on top, as in the legend.
            offset = distance * (place - (len(names) - 1) / 2)
            axes.errorbar(
                [each.value for each in values],
                [own_rows.index(each.row) + offset for each in values],
                xerr=[
                    [each.value - each.low for each in values],
                    [each.high - each.value for each in values],
                ],
                label=name or None,
                linestyle="none",
                marker=_MARKERS[place % len(_MARKERS)],
                color=_COLORS[place % len(_COLORS)],
                elinewidth=1.0,
                capsize=2.0,
                markersize=5.0,
            )
        if zero is not None:
            axes.axvline(zero, color="#555555", linewidth=1.0)
        axes.set_yticks(range(len(own_rows)), own_rows)
        axes.set_ylim(len(own_rows) - 0.4, -0.6)
        axes.grid(False, axis="y")
        axes.set_title(panel_title)
    frame(figure, all_axes, title, note, x_title, "")
    return figure
