"""Tables for a terminal."""

from __future__ import annotations

from rich.table import Table


def new_table(title: str, *columns: str) -> Table:
    """A table without rows, whose columns are never wrapped.

    Args:
        title: title above the table.
        columns: names of the columns. Columns are right-aligned; those whose name begins with "<",
            which is not shown, are left-aligned.
    """
    table = Table(title=title, title_justify="left")
    for column in columns:
        justify = "left" if column.startswith("<") else "right"
        table.add_column(column.removeprefix("<"), justify=justify, no_wrap=True)
    return table
