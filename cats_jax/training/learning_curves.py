"""Plots of learning curves."""

from __future__ import annotations

import pathlib

import numpy as np

import learners

_PANELS = (
    ("accuracy", "accuracy while sampling"),
    ("candidates", "candidates per question"),
    ("entropy", "entropy of the policy, nats"),
    ("top_action", "share of the most frequent action"),
)
_POINTS = 100
"""Number of bins over which iterations are averaged, since single iterations are noisy."""


def plot_learning_curves(curves: learners.Curves, path: pathlib.Path, title: str) -> pathlib.Path:
    """Write a PNG with one line per seed.

    Args:
        curves: curves of several seeds, leaves `[seeds, iterations]`.
        path: path of the PNG.
        title: title above the panels.

    Returns:
        `path`.
    """
    # Not through pyplot: no global state, no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex=True).flatten()
    for axes, (name, label) in zip(panels, _PANELS, strict=True):
        values = np.asarray(getattr(curves, name))
        for seed, line in enumerate(values):
            bins = np.array_split(line, min(_POINTS, line.size))
            ends = np.cumsum([chunk.size for chunk in bins])
            axes.plot(ends, [chunk.mean() for chunk in bins], label=f"seed {seed}", linewidth=1.2)
        axes.set_ylabel(label)
        axes.grid(True, color="#dddddd", linewidth=0.5)
    for axes in panels[2:]:
        axes.set_xlabel("iteration")
    panels[0].legend(fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=130)
    return path
