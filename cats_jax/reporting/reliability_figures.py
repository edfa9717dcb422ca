"""Reliability diagrams: the share of right items among those with similar scores of a PRM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.estimators import Estimate, Reliability, bootstrap, clopper_pearson, reliability

from ..grading.graders import make_grader, recorded_grader
from ..runs.folder import RunFolder
from .appearance import Appearance, appearances
from .figure_setup import frame, label_log_axis, make_panels_with_strips
from .finished_paths import FinishedPaths, finished_paths
from .groups import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 10
FEWEST_QUESTIONS = 10
"""Bins with paths of fewer questions are left out."""


@dataclass(frozen=True)
class ReliabilityLine:
    """One line of a panel: its look, and the bins of scores that are drawn."""

    look: Appearance
    bins: Sequence[Reliability]


def draw_reliability(
    panels: Mapping[str, Sequence[ReliabilityLine]],
    *,
    title: str,
    note: str,
    x_title: str,
    y_title: str,
    counted: str,
    nothing: str,
) -> Figure:
    """A reliability diagram for each panel, with the counts of the bins below it.

    Args:
        panels: lines by the title of their panel.
        title, note: the two lines above the panels.
        x_title, y_title: titles of the axes.
        counted: name of the things that are counted, such as "paths".
        nothing: short text in a panel without bins.
    """
    figure, upper, lower = make_panels_with_strips(len(panels), height=4.0, strip_title=counted)
    for axes, strip, (name, lines) in zip(upper, lower, panels.items(), strict=True):
        line_of_equals = {"color": "#999999", "linewidth": 1.0, "zorder": 1}
        axes.plot((0, 1), (0, 1), label="calibrated", **line_of_equals)
        for line in lines:
            share = np.array([each.share_right for each in line.bins], float).reshape(-1, 3)
            value, low, high = share.T
            style: dict[str, Any] = {"color": line.look.color, "marker": line.look.marker}
            style |= {"linestyle": line.look.line, "linewidth": 1.0}
            scores = [each.mean_score for each in line.bins]
            bars: dict[str, Any] = {"yerr": [(value - low).tolist(), (high - value).tolist()]}
            bars |= {"label": line.look.title, "elinewidth": 0.8, "capsize": 2.0}
            axes.errorbar(scores, value, **bars, **style)
            strip.plot(scores, [each.num for each in line.bins], markersize=4.0, **style)
        if not any(line.bins for line in lines):
            axes.text(0.65, 0.2, nothing, ha="center", va="center", color="#444444")
        axes.set_title(name)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlim(-0.03, 1.03)
    if any(line.bins for lines in panels.values() for line in lines):
        lower[0].set_yscale("log")  # shared by all strips; without data it has no range
        label_log_axis(lower[0].yaxis)
    frame(figure, upper, title, note, x_title, y_title)
    return figure


def plot_path_calibration(found: Sequence[Group], title: str, run: RunFolder) -> Figure | None:
    """Share of finished paths with the right answer against their path score, by PRM.

    Each strategy is drawn at its largest N with trees. Best-of-N keeps all of its paths; a search
    keeps paths that the PRM selected.

    Args:
        found: groups of one data set of the run.
        title: title above the panels.
        run: the run, whose trees are read.

    Returns:
        The figure; None if no PRM has a bin to draw. The panels of other PRMs without bins say so.

    Raises:
        BadInputError: a tree is damaged.
    """
    grader = make_grader(recorded_grader(run.manifest["config"]))
    looks = appearances(group.strategy for group in found)
    largest: dict[tuple[str, str], Group] = {}
    for group in found:
        if group.prm is not None and any(row.tree is not None for row in group.rows):
            key = (group.prm, group.strategy)
            if key not in largest or largest[key].num_candidates < group.num_candidates:
                largest[key] = group
    prms = dict.fromkeys(group.prm for group in found if group.prm is not None)
    panels: dict[str, list[ReliabilityLine]] = {prm: [] for prm in prms}
    for (prm, strategy), group in largest.items():
        bins = path_reliability(finished_paths(run, group.rows, grader))
        if bins:
            panels[prm].append(ReliabilityLine(looks[strategy], bins))
    if not any(panels.values()):
        return None
    sizes = ", ".join(map(str, sorted({group.num_candidates for group in largest.values()})))
    return draw_reliability(
        {f"PRM {prm}": lines for prm, lines in panels.items()},
        title=title,
        note=f"finished paths, N = {sizes}; bars: 95 % interval over questions",
        x_title="path score (mean of the bin)",
        y_title="share of paths with the right answer",
        counted="paths",
        nothing=f"no bin has scored paths\nof {FEWEST_QUESTIONS} questions",
    )


def path_reliability(paths: FinishedPaths) -> list[Reliability]:
    """The bins of finished paths by score, with intervals by a bootstrap over questions.

    Paths of one question are not independent, so the exact interval of `reliability` is too short.
    Bins with paths of fewer than `FEWEST_QUESTIONS` questions are left out.
    """
    if not paths.scores.size:
        return []
    found = []
    for each in reliability(paths.scores, paths.truths, num_bins=_BINS):
        below = paths.scores < each.high if each.high < 1 else True
        inside = (paths.scores >= each.low) & below
        truths, questions = paths.truths[inside], paths.questions[inside]
        if len(set(questions.tolist())) >= FEWEST_QUESTIONS:
            found.append(each._replace(share_right=_share_by_question(truths, questions)))
    return found


def _share_by_question(truths: np.ndarray, questions: np.ndarray) -> Estimate:
    """Share of right paths with its interval from a bootstrap over the questions of the bin.

    If all paths are right or all are wrong, no resample differs. Then the interval is the exact one
    of as many independent paths as there are questions.
    """
    _, codes = np.unique(questions, return_inverse=True)
    right, all_ = np.bincount(codes, truths), np.bincount(codes).astype(float)
    if truths.min() == truths.max():
        return clopper_pearson(int(truths[0]) * right.size, right.size)

    def share(weights: np.ndarray) -> float:
        return float(weights @ right / (weights @ all_))

    return bootstrap({"share": share}, np.arange(right.size))["share"]
