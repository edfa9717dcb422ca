"""How every figure is set up and saved: fonts, sizes, panels, legend, file formats.

Figures are made without pyplot: no global state and no display. The same data give the same bytes,
without dates, versions or random names.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from ..errors import BadInputError, known_names
from ..storage.durable import replace
from .plain_text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
"""Formats that figures are written in."""

WIDTH = 8.8
"""Width of a figure of several panels, in inches. Shown about 740 pixels wide on a page, text of
10 points is 12 pixels high."""

_NARROW = 6.4
_CHARACTER = 0.09
"""Upper estimate of the mean width of a character, in inches."""

_LINE = 0.21
"""Height of a line of text, in inches."""

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 10.0,
    "legend.fontsize": 9.5,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 6.0,
    # A label such as "$x" is shown as it is, not as mathematics.
    "text.parse_math": False,
    # Text stays text, which can be searched and read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "cats-jax",
    "pdf.fonttype": 42,
}
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """The style of all figures; they are made, drawn on and saved inside this context."""
    import matplotlib

    with matplotlib.rc_context(cast("Any", _STYLE)), warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font")
        yield


def check_formats(formats: Sequence[str]) -> None:
    """Raise BadInputError if a format of figures is not one of `FORMATS`."""
    for name in formats:
        if name not in FORMATS:
            raise BadInputError(f"figure format {name!r}: {known_names(name, FORMATS)}")


def check_suffix(option: str, path: pathlib.Path) -> None:
    """Raise BadInputError, before expensive work, if a figure's path has no suffix of `FORMATS`."""
    if path.suffix.removeprefix(".") not in FORMATS:
        names = ", ".join(f".{name}" for name in FORMATS)
        raise BadInputError(f"{option} {str(path)!r}: the suffix is the format, one of {names}")


def make_panels(
    count: int, *, height: float = 3.4, most_columns: int = 3, share_y: bool | Literal["row"] = True
) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels with a common x axis, in rows.

    Args:
        count: number of panels, at least 1.
        height: height of a row of panels, in inches.
        most_columns: largest number of panels in a row.
        share_y: True: all panels have a common y axis; "row": the panels of a row have one; False:
            each panel has its own.

    Returns:
        The figure and its `count` panels in reading order.
    """
    rows, columns = _rows_and_columns(count, most_columns)
    figure = _new_figure(count, height * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=share_y, squeeze=False).flatten()
    for empty in grid[count:]:
        empty.remove()
    for axes in grid[max(count - columns, 0) : count]:
        axes.tick_params(labelbottom=True)  # the place below may be empty
    return figure, list(grid[:count])


def make_panels_with_strips(
    count: int, *, height: float, strip_title: str, share_x: bool = True, share_strips: bool = True
) -> tuple[Figure, list[Axes], list[Axes]]:
    """A figure like that of `make_panels`, with a low strip for counts below each panel.

    Args:
        count: number of panels, at least 1.
        height: height of a panel with its strip, in inches.
        strip_title: title of the strips' y axis.
        share_x: whether all panels share one x axis; a panel and its strip always share theirs.
        share_strips: whether all strips have one y axis.

    Returns:
        The figure, its panels and their strips, both in reading order.
    """
    rows, columns = _rows_and_columns(count, 3)
    figure = _new_figure(count, height * rows)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3.0, 1.0] * rows)
    panels: list[Axes] = []
    strips: list[Axes] = []
    for place in range(count):
        row, column = divmod(place, columns)
        first = panels[0] if panels else None
        own_x = first if share_x else None
        own_y = strips[0] if strips and share_strips else None
        panel = figure.add_subplot(grid[2 * row, column], sharex=own_x, sharey=first)
        strip = figure.add_subplot(grid[2 * row + 1, column], sharex=panel, sharey=own_y)
        panel.tick_params(labelbottom=False, labelleft=column == 0)
        strip.tick_params(labelbottom=not share_x or place + columns >= count)
        strip.tick_params(labelleft=column == 0 or not share_strips)
        if column == 0:
            strip.set_ylabel(strip_title)
        panels.append(panel)
        strips.append(strip)
    return figure, panels, strips


def _rows_and_columns(count: int, most_columns: int) -> tuple[int, int]:
    """Fewest rows, and then fewest columns, that hold the panels: four panels are 2 x 2."""
    rows = -(-count // most_columns)
    return rows, -(-count // rows)


def _new_figure(count: int, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_NARROW if count == 1 else WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def frame(
    figure: Figure, panels: Sequence[Axes], title: str, note: str, x_title: str, y_title: str
) -> None:
    """Write titles for a figure and its axes, and one legend below all panels.

    The panels get the remaining room, so that no text covers another.

    Args:
        figure, panels: figure made by this module, with everything drawn.
        title, note: two lines above the panels, cut at the figure's width; the note may be empty.
        x_title: title of the common x axis.
        y_title: title of each row's y axis; empty if the panels have their own.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    titles = [axes.get_title() for axes in panels]
    for axes, own in zip(panels, titles, strict=True):
        place = axes.get_subplotspec()
        if place is None:
            continue
        if y_title and place.is_first_col():
            axes.set_ylabel(y_title)
        room = figure.get_size_inches()[0] / place.get_gridspec().ncols - 0.3
        axes.set_title(distinct_shown(titles, int(room / _CHARACTER))[own])
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    names, handles = list(distinct_shown(entries).values()), list(entries.values())
    width, of_panels = figure.get_size_inches()
    # 0.75 inches for the line and the gaps.
    of_entry = _CHARACTER * max(map(len, names), default=0) + 0.75
    rows = -(-len(entries) // max(1, int(width / of_entry)))
    of_legend = _LINE * rows + 0.1 if rows else 0.0
    of_top = _LINE * (2 if note else 1) + 0.08
    bottom = of_legend + _LINE
    height = of_panels + of_top + bottom
    figure.set_size_inches(width, height)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0.0, bottom / height, 1.0, of_panels / height))
    figure.text(0.5, (of_legend + 0.04) / height, x_title, ha="center", va="bottom")
    left, second = 0.1 / width, 1 - (_LINE + 0.06) / height
    head: dict[str, Any] = {"va": "top", "fontsize": 11.0, "fontweight": "bold"}
    figure.text(left, 1 - 0.05 / height, shown(title, int(11 * width)), **head)
    below: dict[str, Any] = {"va": "top", "fontsize": 9.5, "color": "#444444"}
    figure.text(left, second, shown(note, int(14 * width)), **below)
    if rows:
        where: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.0)}
        where |= {"ncols": -(-len(entries) // rows), "borderaxespad": 0.2, "labelspacing": 0.35}
        figure.legend(handles, names, frameon=False, handlelength=3.0, **where)


def label_log_axis(axis: Axis) -> None:
    """Set ticks of a logarithmic axis at powers of ten, and on a short axis also at 3 times them.

    Call it after the data are drawn.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    low, high = axis.get_data_interval()
    axis.set_major_locator(LogLocator(subs=(1, 3) if high < 400 * low else (1,), numticks=12))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_minor_formatter(NullFormatter())


def shown(text: str, most: int = 40) -> str:
    """Text of a run as figures show it: one line of at most `most` printable characters."""
    return one_line(text, most)


def distinct_shown(texts: Iterable[str], most: int = 40) -> dict[str, str]:
    """Each text as by `shown`; texts that the cut would make equal also keep their ends."""
    distinct = list(dict.fromkeys(texts))
    cut = Counter(shown(text, most) for text in distinct)
    found: dict[str, str] = {}
    for text in distinct:
        name = shown(text, most)
        if cut[name] > 1:
            name = shown(text, most - 14) + shown(text[-14:], 14)
        found[text] = f"{name} ({len(found) + 1})" if name in found.values() else name
    return found


def file_name(*parts: str) -> str:
    """Name of a figure's file, without suffix: the parts that are not empty, joined by "-".

    A run of characters other than letters, digits and "_.+-" becomes "_"; a part is cut to 60
    bytes.
    """
    names = (re.sub(r"[^\w.+-]+", "_", part).encode()[:60] for part in parts if part)
    return "-".join(name.decode(errors="ignore") for name in names)


def save_figure(figure: Figure, path: pathlib.Path) -> pathlib.Path:
    """Write a figure in the format of the path's suffix, replacing an old file; returns the path.

    Raises:
        BadInputError: the suffix is not one of `FORMATS`.
    """
    check_suffix("figure", path)
    kind = path.suffix.removeprefix(".")
    image = io.BytesIO()
    figure.savefig(image, format=kind, dpi=150, metadata=_METADATA[kind])
    replace(path, image.getvalue())
    return path
