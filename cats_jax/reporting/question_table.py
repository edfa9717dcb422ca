"""A run's questions in a table: for each configuration whether its answer is right."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..runs.folder import Row
from .plain_text import one_line
from .selection import level_of

MARKS = "✓ right, ✗ wrong, ! failed (which counts as wrong), · no row"

_MAX_LABEL, _MAX_ANSWER, _MAX_QUESTION = 20, 10, 60
_LEAST_TEXT, _LEAST_SHOWN = 12, 3
"""The text has room for `_LEAST_TEXT` characters, even if columns are left out for it; the first
`_LEAST_SHOWN` columns always stay."""

_GAP = 2
"""Characters between two columns."""


@dataclass(frozen=True)
class QuestionTable:
    """A table with a line for each question, and how many of the rows' configurations it shows."""

    table: Table
    configurations: int
    shown: int


def question_table(
    rows: Sequence[Row], texts: Mapping[str, str], width: int, title: str
) -> QuestionTable:
    """The table of the questions of `rows`, in order of first appearance.

    A column is for one strategy and PRM. A cell has a mark for each N and seed, or a mark and the
    answer if there is only one. If columns do not fit, the last ones are left out. The column
    `right` counts all rows.

    Args:
        rows: at least one row.
        texts: texts of questions by id; a question without an entry is shown without its text.
        width: columns of the terminal.
        title: title of the table.
    """
    by_question: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_question[row.question].append(row)
    order = list(dict.fromkeys((row.strategy, row.prm) for row in rows))
    shown = len(order)
    room = width - full_width(_table(by_question, order, {}, 0, title))
    # The text of a question takes precedence over all configurations but the first few.
    while shown and (room < 0 or (texts and shown > _LEAST_SHOWN and room < _LEAST_TEXT + _GAP)):
        shown -= 1
        room = width - full_width(_table(by_question, order[:shown], {}, 0, title))
    table = _table(by_question, order[:shown], texts, room - _GAP, title)
    return QuestionTable(table, len(order), shown)


def _table(
    by_question: Mapping[str, Sequence[Row]],
    columns: Sequence[tuple[str, str | None]],
    texts: Mapping[str, str],
    text_width: int,
    title: str,
) -> Table:
    everything = [row for rows in by_question.values() for row in rows]
    table = Table(
        title=Text(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, _GAP - 1, 0, 0),
    )
    cells: list[list[str | Text]] = []

    def add(head: str | Text, column: Iterable[str | Text], **look: Any) -> None:
        table.add_column(head, no_wrap=True, **look)
        cells.append(list(column))

    of_questions = by_question.values()
    firsts = [rows[0] for rows in of_questions]
    add("question", (one_line(question, _MAX_LABEL) for question in by_question))
    if len({row.dataset for row in everything}) > 1:
        add("data set", (one_line(row.dataset, _MAX_LABEL) for row in firsts))
    if any(map(level_of, everything)):
        add("level", (one_line(level_of(row), _MAX_ANSWER) for row in firsts), justify="right")
    add("gold", (one_line(row.gold, _MAX_ANSWER) for row in firsts), justify="right")
    right = (f"{sum(row.correct for row in rows)}/{len(rows)}" for rows in of_questions)
    add("right", right, justify="right")
    for column in columns:
        strategy, prm = column
        mine = [[r for r in rows if (r.strategy, r.prm) == column] for rows in of_questions]
        values = sorted({(row.num_candidates, row.seed) for rows in mine for row in rows})
        sizes = ",".join(str(n) for n in dict.fromkeys(n for n, _ in values))
        head = "\n".join(
            one_line(line, _MAX_LABEL) for line in (strategy, prm or "no PRM", f"N={sizes}")
        )
        add(Text(head), (_cell(rows, values) for rows in mine))
    if texts and text_width >= _LEAST_TEXT:
        most = min(text_width, _MAX_QUESTION)
        shown = (one_line(texts.get(question, ""), most) for question in by_question)
        add("text", shown, max_width=text_width)
    for line in zip(*cells, strict=True):
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in line))
    return table


def _cell(rows: Sequence[Row], values: Sequence[tuple[int, int]]) -> Text:
    """Marks in order of N and seed; those of one N stand together."""
    by_value = {(row.num_candidates, row.seed): row for row in rows}
    text, previous = Text(), None
    for value in values:
        if previous is not None and value[0] != previous:
            text.append(" ")
        previous = value[0]
        text.append_text(mark(by_value.get(value)))
    if len(values) == 1 and rows:
        answer = rows[0].answer
        text.append(" " + ("no answer" if answer is None else one_line(answer, _MAX_ANSWER)))
    return text


def mark(row: Row | None) -> Text:
    """One character for the grade of a row."""
    if row is None:
        return Text("·", style="dim")
    if row.status == "failed":
        return Text("!", style="bold red")
    return Text("✓", style="green") if row.correct else Text("✗", style="red")


def full_width(view: RenderableType) -> int:
    """Width of what is printed where room is not short, in characters."""
    return Console(width=1_000_000, file=io.StringIO()).measure(view).maximum
