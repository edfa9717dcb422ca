"""Small labels beside points of a drawn panel, only where they hide nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_SIZE = 8.0
_RADIUS = 5.0
_PLACES = (
    *((0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1), (1, 0), (-1, 0)),
    *((0, -2), (0, 2), (2, -1), (2, 1), (-2, -1), (-2, 1)),
)


@dataclass(frozen=True)
class DrawnSeries:
    """A series of a panel.

    Attributes:
        points: (x, y, low, high) of each point in data units; low and high end its bar.
        labels: text to place beside each point; "" for none.
        color: colour of the series.
        connected: whether a line joins the points.
    """

    points: Sequence[tuple[float, float, float, float]]
    labels: Sequence[str]
    color: str
    connected: bool = True


def place_labels(axes: Axes, series: Sequence[DrawnSeries]) -> list[str]:
    """Write labels beside points, each at the first free place around its point.

    A place is free if it lies inside the panel and covers no marker, bar, line or other label. A
    label without a free place is left out. Consecutive points of a series that cover one another
    share one label, such as "4, 16". The layout must be final: call `Figure.draw_without_rendering`
    first, because places are in pixels.

    Returns:
        The labels that were written.
    """
    from matplotlib.transforms import Bbox

    scale = axes.figure.dpi / 72.0
    boxes: list[Bbox] = []
    segments: list[tuple[tuple[float, float], tuple[float, float]]] = []
    centers: list[list[tuple[float, float]]] = []
    for each in series:
        places = []
        for x, y, low, high in each.points:
            center, below, above = axes.transData.transform([(x, y), (x, low), (x, high)])
            radius = _RADIUS * scale
            boxes.append(Bbox.from_extents(*(center - radius), *(center + radius)))
            half = 2.5 * scale  # of the bar's caps
            boxes.append(Bbox.from_extents(below[0] - half, below[1], above[0] + half, above[1]))
            places.append((float(center[0]), float(center[1])))
        centers.append(places)
        if each.connected:
            segments += itertools.pairwise(places)
    written = []
    for each, places in zip(series, centers, strict=True):
        for label, center in _joined(each.labels, places, _RADIUS * scale):
            if _place(axes, label, each.color, center, boxes, segments, scale):
                written.append(label)
    return written


def _joined(
    labels: Sequence[str], places: Sequence[tuple[float, float]], radius: float
) -> list[tuple[str, tuple[float, float]]]:
    """Labels with their places; neighbours whose markers cover one another share one label."""
    found: list[tuple[str, tuple[float, float]]] = []
    for label, place in zip(labels, places, strict=True):
        if label and found and math.dist(found[-1][1], place) < radius:
            found[-1] = (f"{found[-1][0]}, {label}", found[-1][1])
        elif label:
            found.append((label, place))
    return found


def _place(
    axes: Axes,
    label: str,
    color: str,
    center: tuple[float, float],
    boxes: list[Bbox],
    segments: Sequence[tuple[tuple[float, float], tuple[float, float]]],
    scale: float,
) -> bool:
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox

    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": _SIZE, "color": color}
    place: dict[str, Any] = {"xycoords": "figure pixels", "textcoords": "offset points"}
    text = axes.annotate(label, center, xytext=(0, 0), in_layout=False, **place, **look)
    size = text.get_window_extent()
    gap = (_RADIUS + 0.5) * scale
    for right, up in _PLACES:
        x = center[0] + right * (gap + size.width / 2)
        y = center[1] + up * (gap + size.height / 2)
        box = Bbox.from_bounds(x - size.width / 2, y - size.height / 2, size.width, size.height)
        inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1
        inside = inside and axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1
        if (
            inside
            and not any(box.overlaps(other) for other in boxes)
            and not any(Path(ends).intersects_bbox(box, filled=False) for ends in segments)
        ):
            text.set_position(((x - center[0]) / scale, (y - center[1]) / scale))
            # In data units, so that it stays where it is at any resolution.
            text.xycoords = "data"
            text.xy = tuple(axes.transData.inverted().transform(center).tolist())
            boxes.append(box)
            return True
    text.remove()
    return False
