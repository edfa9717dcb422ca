"""The figures of a page, as SVG."""

from __future__ import annotations

import base64
import pathlib
import tempfile
from collections.abc import Sequence

from ..reporting.figures import write_figures
from ..reporting.groups import Group
from ..runs.folder import Run
from .texts import shortened

_MAX_NAME = 80


def draw_figures(found: Sequence[Group], title: str, run: Run | None) -> list[dict[str, str]]:
    """Figures of the groups of one data set: {"name", "svg"}, the SVG as base64.

    Args:
        found: groups of one data set.
        title: title above every figure.
        run: their run, if all its trees can be read, for the figures of actions and scores.
    """
    with tempfile.TemporaryDirectory() as folder:
        return [
            {
                "name": shortened(path.stem.replace("-", " "), _MAX_NAME),
                "svg": base64.b64encode(path.read_bytes()).decode("ascii"),
            }
            for path in write_figures(found, pathlib.Path(folder), title, ("svg",), run=run)
        ]
