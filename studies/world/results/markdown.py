"""Tables in Markdown, and numbers as their cells print them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from theory.estimators import Estimate


@dataclass(frozen=True)
class Table:
    """A table of the study: its file's name without suffix, its columns, and lines of cells."""

    name: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as the text of its file."""
        rows = [self.header, ["---"] * len(self.header), *self.lines]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)

    def as_mappings(self) -> list[dict[str, str]]:
        """The cells of each line by the name of their column."""
        return [dict(zip(self.header, line, strict=True)) for line in self.lines]


def read_table(text: str, column: str = "") -> Table:
    """The first table of a text that has a column of that name; "" takes the first table.

    Raises:
        ValueError: there is no such table.
    """
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            if not column or column in rows[0]:
                return Table("", rows[0], rows[2:])
            rows = []
    raise ValueError(f"the text has no table with a column {column!r}")


def numbers(cell: str) -> list[float]:
    """The numbers in a cell: [.672, 214] in ".672 (214)", [.93, .86, 1.01] in ".93 (.86-1.01)"."""
    cell = cell.replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", " ")
    return [float(number) for number in re.findall(r"(?:(?<![\d)])[-+])?\d*\.?\d+", cell)]


def share(value: float) -> str:
    """Three decimals without the zero in front: .672."""
    return f"{value:.3f}".removeprefix("0")


def at_cost(accuracy: float, cost: float) -> str:
    """An accuracy and the mean cost of a question: .672 (214)."""
    return f"{share(accuracy)} ({cost:.0f})"


def difference(interval: Estimate) -> str:
    """A difference with its interval: +0.050 (+0.023 to +0.076)."""
    return f"{interval.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
