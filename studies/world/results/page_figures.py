"""The figure at the top of each page of results, drawn from the tables and rows that the page has.

A figure has no number of its own: it reads the table that its page shows, or the file behind the
table. Without page or table there is no figure.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cats_jax.reporting.accuracy_figures import TOKENS
from cats_jax.reporting.appearance import Appearance, appearances
from cats_jax.reporting.figure_setup import drawing, frame, label_log_axis, make_panels, save_figure
from cats_jax.reporting.groups import SIMILAR_COMPUTE
from cats_jax.reporting.point_labels import DrawnSeries, place_labels
from cats_jax.scoring.quality_report import draw_calibration
from cats_jax.world import ASSETS
from theory.estimators import Estimate, Reliability

from .groups import PRMS
from .interval_figure import Value, draw_intervals
from .labels import CONTROLLERS, family_and_setting
from .markdown import Table, numbers, read_table
from .simulator_figure import draw_simulator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POLICIES = ("weak", "strong")
_SHIPPED = CONTROLLERS["trained1"]
_DRAWN = (CONTROLLERS["asking2"], _SHIPPED)
_AT_PRICES = {
    "greedy": ("greedy",),
    "cats": (_SHIPPED,),
    "CATS with a price of candidates": ("cats",),
    "rules: +1, +2, +4 or +8 below a threshold": (
        "ask0.95+1",
        "ask0.95+2",
        "ask0.95+4",
        "ask0.95+8",
    ),
}
"""Series, and what the labels of their configurations begin with, before a price or a threshold.

Two names are those of strategies, for their looks: "cats" stands for `cats-tokens`.
"""

_SPEED_ROWS = {
    "majority": "majority voting",
    "beam": "beam search",
    ", hf": ", PRM on transformers",
    ", vllm": ", PRM on vLLM",
}


def make_page_figures(results: pathlib.Path) -> list[pathlib.Path]:
    """Draw every figure whose table or file is in the folder of the pages; returns the files."""
    written: list[pathlib.Path] = []
    figures, shared = results / "figures", results.parent / "figures"
    drawn: dict[pathlib.Path, Callable[[pathlib.Path], Figure]] = {
        figures / "differences.png": _differences,
        figures / "chosen.png": _chosen,
        figures / "leads.png": _leads,
        figures / "prices.png": _at_prices,
        figures / "ablations.png": _ablations,
        figures / "sparsity.png": _sparsity,
        figures / "bank.png": _bank,
        figures / "grading.png": _grading,
        figures / "speed.png": _speed,
        figures / "world.png": _world,
        shared / "prm_calibration.png": _prm_calibration,
        shared / "simulator_vs_world.png": _simulator,
    }
    for path, draw in drawn.items():
        with drawing():
            try:
                figure = draw(results)
            except FileNotFoundError:
                continue
            written.append(save_figure(figure, path))
    return written


def _table(results: pathlib.Path, name: str) -> Table:
    return read_table((results / "tables" / f"{name}.md").read_text(encoding="utf-8"))


Panels = defaultdict[str, defaultdict[str, list[Value]]]
"""Values by title of the panel and name of the series."""


def _panels() -> Panels:
    return defaultdict(lambda: defaultdict(list))


def _differences(results: pathlib.Path) -> Figure:
    """CATS against the best fixed strategy of at most 1.25 times its tokens."""
    panels = _panels()
    for policy in _POLICIES:
        for line in _table(results, f"equal-tokens-{policy}").as_mappings():
            if line["strategy"] == "cats":
                value = Value(f"PRM {line['PRM']}", *numbers(line["difference, 95 % interval"]))
                panels[f"policy {policy}"][f"N = {line['N']}"].append(value)
    return draw_intervals(
        panels,
        title="CATS against the best fixed strategy of at most "
        f"{SIMILAR_COMPUTE:g} times its tokens",
        note="test questions, live searches; bars: 95 % interval of the paired difference",
        x_title="accuracy of CATS minus accuracy of the fixed strategy",
        zero=0.0,
    )


def _chosen(results: pathlib.Path) -> Figure:
    """CATS against the rival that validation questions chose."""
    panels = _panels()
    for policy, size in itertools.product(_POLICIES, (4, 16, 64)):
        for line in _table(results, f"chosen-{policy}-{size}").as_mappings():
            value = Value(f"PRM {line['PRM']}", *numbers(line["CATS' value minus the rival's"]))
            panels[f"policy {policy}"][f"N = {size}"].append(value)
    return draw_intervals(
        panels,
        title="CATS against the rival that is best on validation questions",
        note="test questions, replayed; bars: 95 % interval of the paired difference",
        x_title="value of CATS minus value of the rival (accuracy minus .2 per 100 candidates)",
        zero=0.0,
    )


def _leads(results: pathlib.Path) -> Figure:
    """CATS against the frontier of its rivals, budget by budget."""
    panels = _panels()
    for line in _table(results, "large-weak-tokens").as_mappings():
        if line["controller"] in _DRAWN and line["lead, 95 % interval"]:
            row = f"{line['budget, tokens']} tokens"
            value = Value(row, *numbers(line["lead, 95 % interval"]))
            panels[f"PRM {line['PRM']}"][line["controller"]].append(value)
    return draw_intervals(
        panels,
        title="CATS against the frontier of its rivals at equal cost",
        note="policy weak, test questions; bars: 95 % interval of the paired difference",
        x_title="accuracy of CATS minus accuracy of the best mixture of rivals",
        zero=0.0,
    )


def _at_prices(results: pathlib.Path) -> Figure:
    """Accuracy against tokens of two controllers at several prices, and of rules."""
    table = _table(results, "large-weak-searched")
    prms = table.header[2:]
    looks = appearances(_AT_PRICES)
    figure, panels = make_panels(len(prms), height=3.6)
    series: list[list[DrawnSeries]] = []
    for axes, prm in zip(panels, prms, strict=True):
        drawn: list[DrawnSeries] = []
        for name, families in _AT_PRICES.items():
            found: list[tuple[float, float, str]] = []
            for line in table.as_mappings():
                family, setting = family_and_setting(line["strategy"])
                if family in families and line[prm]:
                    accuracy, tokens = numbers(line[prm])
                    found.append((tokens, accuracy, setting if name == "cats" else ""))
            if found:
                x, y, labels = zip(*sorted(found), strict=True)
                _draw_line(axes, dict(zip(x, y, strict=True)), looks[name], looks[name].title)
                points = list(zip(x, y, y, y, strict=True))
                drawn.append(DrawnSeries(points, labels, looks[name].color))
        series.append(drawn)
        axes.set_title(f"PRM {prm}")
        axes.set_xscale("log")
        label_log_axis(axes.xaxis)
    frame(
        figure,
        panels,
        "CATS at seven prices, and hand-written rules",
        "policy weak, test questions; numbers at points: price per 1000 tokens",
        TOKENS.title,
        "accuracy (share of questions)",
    )
    figure.draw_without_rendering()
    for axes, drawn in zip(panels, series, strict=True):
        place_labels(axes, drawn)
    return figure


def _ablations(results: pathlib.Path) -> Figure:
    """Accuracy minus price of trainings that differ in one setting."""
    panels = _panels()
    for name, table, first, before in (
        ("one change to our configuration", "ablations-ours", "cats", ""),
        ("one addition to the paper's method, in our reading", "ablations-additions", "none",
         "the paper's method, "),
    ):  # fmt: skip
        for line in _table(results, table).as_mappings():
            value, half = numbers(line["accuracy minus price"])
            row = before + ("no change" if line["row"] == first else line["row"])
            if not line["collapsed"].startswith("0/"):
                row += f" ({line['collapsed']} collapsed)"
            panels[""][name].append(Value(row, value, value - half, value + half))
        panels[""][name].sort(key=lambda each: -each.value)
    return draw_intervals(
        panels,
        title="What one change brings: value of the trained controllers",
        note="policy weak, test bank; bars: 95 % interval over training seeds; collapsed: seeds "
        "that take one action",
        x_title="accuracy minus .2 per 100 candidates, mean over N = 16 and 64",
    )


def _sparsity(results: pathlib.Path) -> Figure:
    """Pair error against sparsity, which does not predict it."""
    figure, panels = make_panels(2, height=3.6)
    styles = {"weak": ("o", "#c1272d"), "strong": ("s", "#1f5fa8")}
    series: list[list[DrawnSeries]] = []
    for axes, column in zip(panels, ("total sparsity", "last-layer sparsity"), strict=True):
        series.append([])
        for policy, (marker, color) in styles.items():
            lines = _table(results, f"sparsity-{policy}").as_mappings()
            points = [(float(line[column]), float(line["pair error"])) for line in lines]
            style: dict[str, Any] = {"marker": marker, "color": color, "linestyle": "none"}
            axes.plot(*zip(*points, strict=True), **style, label=f"steps of policy {policy}")
            names = [line["PRM"] for line in lines]
            drawn = [(x, y, y, y) for x, y in points]
            series[-1].append(DrawnSeries(drawn, names, color, connected=False))
        axes.set_title(column.replace("total sparsity", "sparsity of the whole model"))
        axes.set_xscale("log")
        axes.margins(x=0.2, y=0.12)
        axes.xaxis.set_major_formatter("{x:g}")
    frame(
        figure,
        panels,
        "Sparsity does not tell which PRM ranks well",
        "the embedded PRMs on steps of test questions",
        "share of weights with |w| < 0.0001",
        "pair error (share of sibling pairs)",
    )
    figure.draw_without_rendering()
    for axes, drawn in zip(panels, series, strict=True):
        place_labels(axes, drawn)
    return figure


def _bank(results: pathlib.Path) -> Figure:
    """Accuracy in replays of a bank against live searches."""
    table = read_table((results / "bank.md").read_text(encoding="utf-8"), "replay")
    figure, (axes,) = make_panels(1, height=4.2)
    axes.plot((0.1, 0.8), (0.1, 0.8), color="#999999", linewidth=1.0)
    points: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in table.as_mappings():
        label = line["strategy"].replace("constant +", "constant action: +")
        points[label].append((float(line["live"]), float(line["replay"])))
    for label, look in appearances(points).items():
        style: dict[str, Any] = {"marker": look.marker, "color": look.color, "linestyle": "none"}
        axes.plot(*zip(*points[label], strict=True), **style, label=look.title)
    axes.set_aspect("equal")
    frame(
        figure,
        [axes],
        "Replays of a step bank against live searches",
        "policy weak, validation questions; a point for each PRM and N; on the line: equal",
        "accuracy of live searches",
        "accuracy of replays, mean of four",
    )
    return figure


def _grading(results: pathlib.Path) -> Figure:
    """Pairs on which each grader agrees with the label."""
    table = read_table((results / "grading.md").read_text(encoding="utf-8"), "math-verify agrees")
    panels = _panels()
    for line in table.as_mappings():
        same = line["label"] == "the same"
        title = "pairs of equal answers" if same else "pairs of different answers"
        for name in ("cats-jax", "math-verify"):
            _, share = numbers(line[f"{name} agrees"])
            row = f"{line['data']} ({line['pairs']})"
            panels[title][name].append(Value(row, share, share, share))
    return draw_intervals(
        panels,
        title="Agreement of two graders with the labels of pairs of answers",
        note="in brackets: number of pairs",
        x_title="share of pairs on which the grader agrees with the label",
    )


def _speed(results: pathlib.Path) -> Figure:
    """Throughput of searches on serving engines as a share of the bare engine's."""
    text = (results / "speed.md").read_text(encoding="utf-8")
    table = read_table(text, "share of bare by the clock")
    panels = _panels()
    for line in table.as_mappings():
        row = line[""]
        for short, long in _SPEED_ROWS.items():
            row = row.replace(short, long)
        value = Value(row, *numbers(line["share of bare by the clock"]))
        panels[""]["measured"].append(value)
        for target in numbers(line["target"])[:1]:
            panels[""]["target"].append(Value(row, target, target, target))
    return draw_intervals(
        panels,
        title="Throughput of whole searches on serving engines",
        note="vLLM on a CPU, embedded models; bars: range over rounds",
        x_title="generated tokens per second, as a share of the bare engine's",
    )


def _world(results: pathlib.Path) -> Figure:
    """What policies could reach and what best-of-N reaches with each PRM."""
    world = json.loads((ASSETS / "world.json").read_text(encoding="utf-8"))
    if not (results / "world.md").is_file():
        raise FileNotFoundError(results / "world.md")
    questions = world["policies"]["weak"]["figures"]["questions"]
    figure, panels = make_panels(2, height=3.6)
    for (name, policy), style in zip(world["policies"].items(), ("--", ":"), strict=True):
        shares = {
            int(key.removeprefix("pass@")): share
            for key, share in policy["figures"].items()
            if key.removeprefix("pass@").isdigit()
        }
        for axes in panels if name == "weak" else panels[:1]:
            look = Appearance("", "#000000", "*", style)
            _draw_line(axes, shares, look, f"pass@N of policy {name}")
    looks = appearances(PRMS)
    for prm in PRMS:
        best = {int(size): share for size, share in world["prms"][prm]["best_of_n"]["min"].items()}
        _draw_line(panels[1], best, looks[prm], f"best-of-N with PRM {prm}")
    for axes, title in zip(panels, ("some path is right", "best-of-N, policy weak"), strict=True):
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        axes.set_title(title)
        axes.set_ylim(0.0, 1.03)
    frame(
        figure,
        panels,
        "The embedded policies and PRMs",
        f"{questions} validation questions, temperature 1; best-of-N by the worst step's score",
        "N: paths per question",
        "accuracy (share of questions)",
    )
    return figure


def _draw_line(axes: Any, values: Mapping[int, float], look: Appearance, label: str) -> None:
    axes.plot(
        list(values),
        list(values.values()),
        color=look.color,
        marker=look.marker,
        linestyle=look.line,
        label=label,
    )


def _prm_calibration(results: pathlib.Path) -> Figure:
    """Calibration of published PRMs, from the kept figures of `cats-jax quality`."""
    path = results.parent / "figures" / "prm_quality.json"
    groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
    return draw_calibration(
        {
            group["group"]: {prm["prm"]: list(map(_bin, prm["curve"])) for prm in group["prms"]}
            for group in groups
        }
    )


def _simulator(results: pathlib.Path) -> Figure:
    """The comparison that `studies.world.models.fit_simulator` keeps."""
    path = results.parent / "figures" / "simulator_vs_world.json"
    return draw_simulator(json.loads(path.read_text(encoding="utf-8")))


def _bin(kept: Mapping[str, Any]) -> Reliability:
    return Reliability(**{**kept, "share_right": Estimate(**kept["share_right"])})
