"""All figures of the groups of one data set."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import BadInputError, RunWarning
from ..runs.folder import RunFolder
from .accuracy_figures import (
    FLOPS,
    TOKENS,
    plot_against_cost,
    plot_against_num_candidates,
    plot_levels,
)
from .action_figures import plot_actions
from .figure_setup import check_formats, drawing, file_name, save_figure
from .groups import Group
from .reliability_figures import plot_path_calibration
from .sheets import distinct_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figures(
    found: Sequence[Group],
    folder: str | pathlib.Path,
    title: str,
    formats: Sequence[str] = ("png",),
    *,
    run: RunFolder | None = None,
    taken: set[str] | None = None,
) -> list[pathlib.Path]:
    """Write every figure that the groups of one data set allow, replacing old files.

    Args:
        found: groups of one data set; if empty, no figure is written.
        folder: folder for the files, made if it does not exist. File names contain the data set's
            label, if there is one.
        title: title above every figure, cut at the figure's width.
        formats: some of "png", "svg" and "pdf".
        run: run of the groups, for its trees. Without it, or with a RunWarning if one of them is
            damaged, there is no figure of calibration, and actions are shown by N, not by depth and
            budget.
        taken: names, without endings, that the caller has given to files of the folder, because
            two labels may give one name. The names of these figures are added.

    Returns:
        The paths of the files.

    Raises:
        BadInputError: an unknown format.
    """
    check_formats(formats)
    if not found:
        return []
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    taken = set() if taken is None else taken
    with drawing():
        figures: dict[str, Figure | None] = {
            "accuracy-tokens": plot_against_cost(found, title, TOKENS),
            "accuracy-flops": plot_against_cost(found, title, FLOPS),
            "accuracy-n": plot_against_num_candidates(found, title),
            "accuracy-levels": plot_levels(found, title),
            **_of_trees(found, title, run),
        }
        return [
            save_figure(figure, pathlib.Path(folder) / f"{stem}.{kind}")
            for name, figure in figures.items()
            if figure is not None
            for stem in (distinct_name(file_name(name, found[0].dataset), taken),)
            for kind in formats
        ]


def _of_trees(
    found: Sequence[Group], title: str, run: RunFolder | None
) -> dict[str, Figure | None]:
    if run is None:
        return dict(plot_actions(found, title, None))
    try:
        calibration = plot_path_calibration(found, title, run)
        return {**plot_actions(found, title, run), "calibration": calibration}
    except BadInputError as error:
        warnings.warn(f"figures of search trees are left out: {error}", RunWarning, stacklevel=2)
        return _of_trees(found, title, None)
