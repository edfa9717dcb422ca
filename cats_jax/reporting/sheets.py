"""A table as data: records with raw values, and columns that say how they are read.

Every form of a table, on the terminal or in a file, is made from one `Sheet`.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .plain_text import one_line

Value = str | int | float | None
"""A raw value; None if it is missing."""

Record = Mapping[str, Value]
"""Raw values by plain name."""

NO_VALUE = "-"
"""Text of a cell if one of its values is None."""

_MAX_TEXT = 200
"""Most characters of a cell."""


@dataclass(frozen=True)
class Column:
    """A column of a sheet.

    Attributes:
        title: heading.
        values: names of the raw values that a cell shows, at least one.
        text: function from these values to the text of a cell; it is not called if a value is None.
        rank: 0 for a column that identifies a row, which is always shown in full. If room is short,
            the other columns are left out, those of the largest rank first.
        left: whether cells are left-aligned.
    """

    title: str
    values: tuple[str, ...]
    text: Callable[..., str]
    rank: int
    left: bool = False

    def cell(self, record: Record) -> str:
        """Text of the column's cell in a record."""
        values = [record[name] for name in self.values]
        return NO_VALUE if None in values else one_line(self.text(*values), _MAX_TEXT)


@dataclass(frozen=True)
class Sheet:
    """A table.

    Attributes:
        name: stem of the names of its files.
        title: what the table is about.
        columns: columns, from left to right.
        records: rows, from top to bottom. All have values of the same names, at least those that
            columns and sections name. Files of raw values contain all values.
        sections: names of values; where one of them changes, a section begins.
        notes: lines below the table.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    records: tuple[Record, ...]
    sections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def rows(self) -> list[list[str]]:
        """Text of every cell."""
        return [[column.cell(record) for column in self.columns] for record in self.records]

    def begins_section(self, index: int) -> bool:
        """Whether the record of this index begins a section; the first one does not."""
        if index == 0:
            return False
        before, record = self.records[index - 1], self.records[index]
        return any(before[name] != record[name] for name in self.sections)

    def value_names(self) -> list[str]:
        """Names of the raw values, in the records' order; without records, those of the columns."""
        shown = [name for column in self.columns for name in column.values]
        return list(dict.fromkeys(self.records[0] if self.records else shown))


def named_after(sheet: Sheet, label: str) -> Sheet:
    """The sheet with the label of a data set in the name of its files; "" changes nothing."""
    return dataclasses.replace(sheet, name=f"{sheet.name}-{label}") if label else sheet


def unique_names(sheets: Sequence[Sheet]) -> Iterator[tuple[str, Sheet]]:
    """Each sheet with a name for its files. Names are distinct, even if case is ignored.

    Names consist of ASCII letters, digits, ".", "-" and "_", and begin with a letter or digit.
    """
    taken: set[str] = set()
    for sheet in sheets:
        plain = "".join(
            char if char.isascii() and (char.isalnum() or char in "._-") else "_"
            for char in sheet.name[:80]
        )
        stem = plain if plain[:1].isalnum() else f"table{plain}"
        yield distinct_name(stem, taken), sheet


def distinct_name(stem: str, taken: set[str]) -> str:
    """The stem, or the stem with "-2" and so on if it is in `taken`, which gets the name.

    Case is ignored, as some file systems do.
    """
    name, number = stem, 1
    while name.lower() in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name.lower())
    return name


def plain(value: Value) -> str:
    """The value itself as text."""
    return str(value)


share = "{:.3f}".format
"""An accuracy or another share: 0.672."""

span = "{:.3f}-{:.3f}".format
"""An interval of shares: 0.512-0.640."""

signed = "{:+.3f}".format
"""A difference: +0.050."""

signed_span = "{:+.3f} to {:+.3f}".format
"""An interval of differences: -0.010 to +0.110."""


def down(value: float, digits: int = 3) -> str:
    """A certified lower bound: 0.399 for 0.3999, because 0.400 was not proved."""
    return _towards(decimal.ROUND_FLOOR, value, digits)


def up(value: float, digits: int = 3) -> str:
    """A certified upper bound, or a threshold from which on something is certified."""
    return _towards(decimal.ROUND_CEILING, value, digits)


def _towards(rounding: str, value: float, digits: int) -> str:
    if not math.isfinite(value):
        return str(value)
    # Twelve digits leave out the error of a computed 0.3, which is no part of a bound.
    exact = decimal.Decimal(f"{value:.12g}")
    return f"{exact.quantize(decimal.Decimal(1).scaleb(-digits), rounding):f}"


count = "{:.0f}".format
"""A count, or a mean of counts: 1234."""


def giga(value: float) -> str:
    """Billions to three digits, without an exponent: 0.0234, 14200."""
    return three_digits(value / 1e9)


def giga_up(value: float) -> str:
    """Billions to three digits, not below the value."""
    digits = 2 - math.floor(math.log10(value / 1e9)) if value > 0 else 0
    return three_digits(float(up(value / 1e9, digits)))


def three_digits(value: float) -> str:
    """A number, at least 0, to three digits, without an exponent: 0.0234, 14200."""
    if value == 0:
        return "0"
    exact = float(f"{value:.3g}")
    return (
        f"{exact:.0f}"
        if abs(exact) >= 100
        else f"{exact:#.3g}"
        if abs(exact) >= 1e-4
        else "<0.0001"
    )
