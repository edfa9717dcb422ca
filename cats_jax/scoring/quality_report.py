"""The figures of `quality` for people (tables, a drawing) and for programs (JSON)."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from theory.estimators import Estimate, Reliability

from ..reporting.appearance import appearances
from ..reporting.figure_setup import drawing, save_figure
from ..reporting.reliability_figures import ReliabilityLine, draw_reliability
from .quality import CONSTANTS, BoundAtN, GroupQuality, PrmQuality

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Bins with fewer steps are too noisy and are not drawn.
_FEWEST = 10


def describe_group(group: GroupQuality) -> str:
    """One line with the numbers of questions, solutions and steps behind a group's figures."""
    share = f"{group.share_right:.3f} of them right"
    if group.share_right in (0.0, 1.0):
        kind = "right" if group.share_right else "wrong"
        share = f"all of them {kind}, so that there is no AUC"
    return (
        f"{group.group}: {group.questions} questions, {group.solutions} solutions, {group.steps} "
        f"labelled steps, {share}, {group.pairs} pairs of a right and a wrong sibling"
    )


def tables(group: GroupQuality) -> list[Table]:
    """All tables of a group: the figures of each PRM, and the calibration curves.

    The bounds are the paper's at each PRM's epsilon, for the largest gap and coverage 1, and that
    on the probability that one of N scores deviates by more than epsilon.
    """
    by_question, level = "with 95 % intervals by question", f"{100 * group.level:g}%"
    losses = {
        "mean over steps": lambda prm: _interval(prm.cross_entropy),
        "mean over questions": lambda prm: _interval(prm.cross_entropy_question),
        "sum over a solution": lambda prm: _interval(prm.cross_entropy_solution),
    }
    ranking = {
        "AUC": lambda prm: _interval(prm.auc),
        "pair accuracy": lambda prm: _interval(prm.pair),
        "Brier score": lambda prm: _interval(prm.brier),
        "calibration error": lambda prm: _interval(prm.calibration_error),
    }
    deviations = {
        "risk": lambda prm: _interval(prm.risk),
        "bound on it": lambda prm: _short(prm.risk_bound),
        f"epsilon, {level} of questions": lambda prm: _interval(prm.epsilon),
        f"{level} of solutions": lambda prm: _short(prm.epsilon_solution),
        "questions beyond 1/2": lambda prm: _interval(prm.beyond_half),
    }
    sizes = list(enumerate(bound.num_candidates for bound in group.prms[0].bounds))
    bounds = {
        "misranking": lambda prm: _short(prm.misranking),
        **{f"accuracy, N = {n}": lambda prm, i=i: _accuracy(prm.bounds[i]) for i, n in sizes},
        "vacuous from N": lambda prm: _vacuous_from(prm.informative_up_to),
    }
    transfer = {f"N = {n}": lambda prm, i=i: _deviation(prm.bounds[i]) for i, n in sizes}
    return [
        _by_prm(group, f"cross-entropy, {by_question}", losses),
        _by_prm(group, f"ranking and calibration, {by_question}", ranking),
        _by_prm(group, f"|score - label|, {by_question}", deviations),
        _by_prm(group, "eq. 6 at this epsilon, for coverage 1 and the largest gap, 1", bounds),
        _by_prm(group, "bound on Pr[one of N scores deviates by more than epsilon]", transfer),
        _curve_table(group),
    ]


def _by_prm(
    group: GroupQuality, title: str, cells: Mapping[str, Callable[[PrmQuality], str]]
) -> Table:
    table = Table(title=escape(f"{group.group}: {title}"), title_justify="left")
    table.add_column("PRM", no_wrap=True)
    for column in cells:
        table.add_column(escape(column), justify="right")
    for prm in group.prms:
        table.add_row(escape(prm.prm), *(cell(prm) for cell in cells.values()))
    return table


def _accuracy(bound: BoundAtN) -> str:
    return _short(bound.accuracy) if bound.accuracy > 0 else "vacuous"


def _deviation(bound: BoundAtN) -> str:
    return _short(bound.deviation) if bound.deviation < 1 else "vacuous"


def _vacuous_from(informative_up_to: float) -> str:
    return "never" if math.isinf(informative_up_to) else str(int(informative_up_to) + 1)


def _curve_table(group: GroupQuality) -> Table:
    """The calibration curve: share right (number of steps) of each bin of scores."""
    prms = [prm for prm in group.prms if prm.prm not in CONSTANTS]
    ends = sorted({(row.low, row.high) for prm in prms for row in prm.curve})
    title = f"{group.group}: share right (steps) by score"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("score", no_wrap=True)
    for prm in prms:
        table.add_column(escape(prm.prm), justify="right", overflow="fold")
    for low, high in ends:
        cells = []
        for prm in prms:
            row = next((row for row in prm.curve if row.low == low), None)
            cells.append("-" if row is None else f"{_short(row.share_right.value)} ({row.num})")
        table.add_row(f"{_short(low)}-{_short(high)}", *cells)
    return table


def as_json(groups: Sequence[GroupQuality]) -> list[dict[str, Any]]:
    """The figures as JSON values, to six digits; an infinite one is the text "inf"."""
    return [_plain(group) for group in groups]


def plot_calibration(groups: Sequence[GroupQuality], path: str | pathlib.Path) -> pathlib.Path:
    """Write a figure of share right against score, one panel for each group, one line for each PRM.

    Bins with fewer than 10 steps are left out. Returns the path, whose suffix is the format.

    Raises:
        BadInputError: the suffix is not .png, .svg or .pdf.
    """
    curves = {group.group: {prm.prm: prm.curve for prm in group.prms} for group in groups}
    with drawing():
        return save_figure(draw_calibration(curves), pathlib.Path(path))


def draw_calibration(curves: Mapping[str, Mapping[str, Sequence[Reliability]]]) -> Figure:
    """A panel for each group, with the curve of each PRM, by their names; no constant scores."""
    looks = appearances(prm for group in curves.values() for prm in group if prm not in CONSTANTS)
    return draw_reliability(
        {
            name: [
                ReliabilityLine(looks[prm], [each for each in bins if each.num >= _FEWEST])
                for prm, bins in group.items()
                if prm in looks
            ]
            for name, group in curves.items()
        },
        title="Share of right steps against the PRM's score",
        note=f"bins of at least {_FEWEST} steps; bars: 95 % interval over steps, taken as "
        "independent",
        x_title="score of the step (mean of the bin)",
        y_title="share of right steps",
        counted="steps",
        nothing=f"no bin has {_FEWEST} steps",
    )


def _interval(value: Estimate | None) -> str:
    if value is None:
        return "-"
    return f"{_short(value.value)} ({_short(value.low)}-{_short(value.high)})"


def _short(value: float) -> str:
    """Three digits after the point, no zero before it."""
    text = f"{value:.3f}"
    return text[1:] if text.startswith("0.") else text


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "inf" if math.isinf(value) else float(f"{value:.6g}")
    if isinstance(value, PrmQuality | GroupQuality):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    fields = getattr(value, "_asdict", None)  # of a NamedTuple
    if fields is not None:
        return {name: _plain(part) for name, part in fields().items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value
