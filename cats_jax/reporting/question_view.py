"""One question of a run: its outcome in each configuration, and the trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ..live.results import SearchResult
from ..runs.folder import Row
from .draw import describe_result, draw_search
from .plain_text import one_line
from .printing import new_table
from .question_table import full_width, mark
from .right_path import RightPath
from .selection import level_of

_MAX_LABEL, _MAX_TEXT = 40, 400
_GAP = 4
"""Columns between two trees that stand side by side."""


def question_header(row: Row, text: str | None) -> Text:
    """Id, data set, level and gold answer of a question, and its text."""
    level = level_of(row)
    parts = [
        f"question {one_line(row.question, _MAX_LABEL)}",
        f"data set {one_line(row.dataset, _MAX_LABEL)}" if row.dataset else "",
        f"level {one_line(level, _MAX_LABEL)}" if level else "",
        f"gold answer {one_line(row.gold, _MAX_LABEL)}",
    ]
    header = Text(", ".join(filter(None, parts)), style="bold")
    return header if text is None else header.append(f"\n{one_line(text, _MAX_TEXT)}")


def outcome_table(rows: Sequence[Row], fates: Mapping[str, RightPath]) -> Table:
    """Grade, answer and cost of a question in each configuration.

    `fates` has the fate of the right path by the rows' keys; rows without a tree have no entry.
    """
    seeds = len({row.seed for row in rows}) > 1
    table = new_table(
        "", "<strategy", "N", "<PRM", *(["seed"] if seeds else []), "<", "<answer", "tokens",
        "<right path",
    )  # fmt: skip
    for row in rows:
        fate = fates.get(row.key)
        table.add_row(
            Text(one_line(row.strategy, _MAX_LABEL)),
            str(row.num_candidates),
            Text("-" if row.prm is None else one_line(row.prm, _MAX_LABEL)),
            *([str(row.seed)] if seeds else []),
            mark(row),
            Text("none" if row.answer is None else one_line(row.answer, 16)),
            f"{row.ledger.tokens:,}",
            "no tree" if fate is None else fate.summary,
        )
    return table


@dataclass(frozen=True)
class SearchView:
    """A drawn search; `heading` has configuration and grade, `outcome` right path and cost."""

    heading: Text
    tree: Tree
    outcome: tuple[Text, Text]


def search_view(row: Row, result: SearchResult, fate: RightPath, max_dropped: int) -> SearchView:
    """The tree of one search with its configuration and its outcome."""
    grade = "failed" if row.status == "failed" else "right" if row.correct else "wrong"
    prm = "" if row.prm is None else f", PRM {one_line(row.prm, _MAX_LABEL)}"
    title = f"{one_line(row.strategy, _MAX_LABEL)}, N = {row.num_candidates}{prm}, seed {row.seed}"
    color = "green" if row.correct else "red"
    return SearchView(
        Text.assemble((title, "bold underline"), ": ", (grade, color)),
        draw_search(result, max_dropped, fate.remarks),
        (Text(fate.sentence, style="yellow"), Text(describe_result(result))),
    )


def arrange(views: Sequence[SearchView], width: int) -> list[RenderableType]:
    """Two trees beside each other if the terminal has room for both, else one below the other."""
    widths = [max(full_width(view.tree), view.heading.cell_len) for view in views]
    if len(views) != 2 or sum(widths) + _GAP > width:
        return [Group(view.heading, view.tree, *view.outcome, "") for view in views]
    grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    spare = (width - sum(widths) - _GAP) // 2
    for size in widths:
        grid.add_column(width=size + spare)
    grid.add_row(*(view.heading for view in views))
    grid.add_row(*(view.tree for view in views))
    for lines in zip(*(view.outcome for view in views), strict=True):
        grid.add_row(*lines)
    return [grid]
