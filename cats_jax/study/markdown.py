"""Tables in Markdown, and numbers as their cells print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..reporting.statistics import Interval


@dataclass(frozen=True)
class Table:
    """A table of the study.

    Attributes:
        name: name of the table's file, without the suffix.
        header: names of the columns.
        lines: the cells of each line, in the order of the header.
    """

    name: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as the text of its file."""
        rows = [self.header, ["---"] * len(self.header), *self.lines]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def share(value: float) -> str:
    """Three decimals without the zero in front: .672."""
    return f"{value:.3f}".removeprefix("0")


def at_cost(accuracy: float, cost: float) -> str:
    """An accuracy and the mean cost of a question: .672 (214)."""
    return f"{share(accuracy)} ({cost:.0f})"


def difference(interval: Interval) -> str:
    """A difference with its interval: +0.050 (+0.023 to +0.076)."""
    return f"{interval.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
