"""Accuracy against compute as a picture: one panel per PRM, readable in greyscale."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from .groups import Group

STYLES = (
    ("o", "-", "#000000"),
    ("s", "--", "#1f5fa8"),
    ("^", "-.", "#b3541e"),
    ("D", ":", "#4d8c4a"),
    ("v", "-", "#7a4fa3"),
    ("P", "--", "#6b6b6b"),
    ("X", "-.", "#a8325e"),
    ("*", ":", "#8a7a1f"),
)
"""Marker, line and colour of each series. Marker and line alone tell the series apart."""

_TOKENS = "tokens"

_PANELS_PER_ROW = 3


def plot_accuracy(found: Sequence[Group], path: str | pathlib.Path, title: str) -> pathlib.Path:
    """Write a PNG of accuracy, with 95 % intervals, against tokens per question.

    Strategies without a PRM are in every panel.

    Args:
        found: groups of one run.
        path: path of the PNG.
        title: title above the panels.

    Returns:
        `path`.
    """
    # Not through pyplot: no global state, no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    prms = list(dict.fromkeys(group.prm for group in found if group.prm is not None)) or [None]
    series = list(dict.fromkeys(group.strategy for group in found))
    columns = min(len(prms), _PANELS_PER_ROW)
    rows = -(-len(prms) // columns)
    figure = Figure(figsize=(6.4 * columns, 4.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = grid.flatten()
    for empty in panels[len(prms) :]:
        empty.set_visible(False)
    for axes, prm in zip(panels, prms, strict=False):
        for index, strategy in enumerate(series):
            line = [g for g in found if g.strategy == strategy and g.prm in (None, prm)]
            if line:
                _draw_series(axes, line, *STYLES[index % len(STYLES)])
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title("no PRM" if prm is None else f"PRM {prm}", fontsize=10)
        axes.grid(True, which="both", color="#dddddd", linewidth=0.5)
        axes.margins(x=0.2)
        _label_series(axes, found, prm, series)
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy, 95 % interval")
    for axes in grid[-1]:
        axes.set_xlabel("tokens per question: sampled by the policy + computed by the PRM")
    figure.suptitle(title, fontsize=11)
    path = pathlib.Path(path)
    figure.savefig(path, dpi=130)
    return path


def _draw_series(axes, line: Sequence[Group], marker: str, style: str, color: str) -> None:
    accuracy = [group.accuracy() for group in line]
    axes.errorbar(
        [group.mean(_TOKENS) for group in line],
        [value.value for value in accuracy],
        yerr=[
            [value.value - value.low for value in accuracy],
            [value.high - value.value for value in accuracy],
        ],
        marker=marker,
        linestyle=style,
        color=color,
        markersize=5,
        linewidth=1.3,
        elinewidth=0.8,
        capsize=2,
    )
    for group, value in zip(line, accuracy, strict=True):
        if group.prm is not None or len(line) > 1:
            axes.annotate(
                str(group.num_candidates),
                (group.mean(_TOKENS), value.value),
                xytext=(0, -9),
                textcoords="offset points",
                ha="center",
                fontsize=6,
                color=color,
            )


def _label_series(axes, found: Sequence[Group], prm: str | None, series: Sequence[str]) -> None:
    """Write each line's name beside its last point; names that would overlap are moved apart."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground="white")]
    ends = []
    for index, strategy in enumerate(series):
        line = [g for g in found if g.strategy == strategy and g.prm in (None, prm)]
        if line:
            last = max(line, key=lambda group: group.mean(_TOKENS))
            ends.append((last.accuracy().value, last.mean(_TOKENS), strategy, index))
    low, high = axes.get_ylim()
    gap = 0.035 * (high - low)
    height = -float("inf")
    for value, tokens, strategy, index in sorted(ends):
        height = max(value, height + gap)
        axes.annotate(
            strategy,
            (tokens, value),
            xytext=(tokens * 1.09, height),
            textcoords="data",
            va="center",
            fontsize=8,
            color=STYLES[index % len(STYLES)][2],
            path_effects=halo,
            zorder=10,
        )
