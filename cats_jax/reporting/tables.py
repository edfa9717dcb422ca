"""Tables for a terminal."""

from __future__ import annotations

from rich.table import Table


def new_table(title: str, *columns: str) -> Table:
    """A table without rows, whose columns are never wrapped.

    Args:
        title: above it.
        columns: their names. Columns are aligned on the right, as numbers are, but for those whose
            name has a "<" in front, which is not shown.
    """
    table = Table(title=title, title_justify="left")
    for column in columns:
        justify = "left" if column.startswith("<") else "right"
        table.add_column(column.removeprefix("<"), justify=justify, no_wrap=True)
    return table
