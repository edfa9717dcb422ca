"""The figures of a page, as SVG."""

from __future__ import annotations

import base64
import pathlib
import tempfile
from collections.abc import Sequence

from ..reporting.groups import Group
from ..reporting.plots import plot_accuracy


def draw_figures(found: Sequence[Group], title: str) -> list[dict[str, str]]:
    """Figures of the groups of one data set: {"title", "svg"}, the SVG as base64."""
    with tempfile.TemporaryDirectory() as folder:
        path = plot_accuracy(found, pathlib.Path(folder) / "accuracy.svg", title)
        svg = base64.b64encode(path.read_bytes()).decode("ascii")
    return [{"title": "Accuracy against tokens per question", "svg": svg}]
