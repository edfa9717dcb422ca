"""Plots of learning curves."""

from __future__ import annotations

import pathlib

import numpy as np

import learners

from ..reporting.figure_setup import drawing, frame, make_panels, save_figure

_PANELS = (
    ("accuracy", "accuracy while sampling"),
    ("candidates", "candidates per question"),
    ("entropy", "entropy of the policy, nats"),
    ("top_action", "share of the most frequent action"),
)
_POINTS = 100
"""Number of bins over which iterations are averaged."""

_LINES = ("-", "--", "-.", ":")
"""Line styles of the seeds."""


def plot_learning_curves(curves: learners.Curves, path: pathlib.Path, title: str) -> None:
    """Write a plot with one line per seed.

    Args:
        curves: curves of several seeds, leaves `[seeds, iterations]`.
        path: path of the file; its suffix, .png, .svg or .pdf, is the format.
    """
    from matplotlib.ticker import MaxNLocator

    with drawing():
        figure, panels = make_panels(len(_PANELS), height=2.7, most_columns=2, share_y=False)
        for axes, (name, label) in zip(panels, _PANELS, strict=True):
            values = np.asarray(getattr(curves, name))
            for seed, line in enumerate(values):
                bins = np.array_split(line, min(_POINTS, line.size))
                ends = np.cumsum([chunk.size for chunk in bins])
                means = [chunk.mean() for chunk in bins]
                style = _LINES[seed % len(_LINES)]
                axes.plot(ends, means, style, label=f"seed {seed}", color=f"C{seed % 10}")
            axes.set_ylabel(label)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        frame(figure, panels, title, "means over parts of the training", "iteration", "")
        save_figure(figure, path)
