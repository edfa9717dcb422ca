"""`cats-jax show`: the questions of a run, and the search trees of one of them."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import tyro

from ..errors import BadInputError

if TYPE_CHECKING:
    from rich.console import Console

    from ..live.results import SearchResult
    from ..reporting.selection import Selection
    from ..runs.folder import Row, RunFolder

_MAX_COMMAND = 1000
_QUESTIONS, _TREES = 20, 4
"""Default of `limit`: for the table of questions, and for the trees of a question."""


def show(
    run: tyro.conf.Positional[pathlib.Path],
    *,
    question: str | None = None,
    strategies: tuple[str, ...] = (),
    num_candidates: tuple[int, ...] = (),
    prms: tuple[str, ...] = (),
    levels: tuple[str, ...] = (),
    statuses: tuple[str, ...] = (),
    wrong: bool = False,
    differ: tuple[str, str] | None = None,
    limit: int | None = None,
    show_dropped: int = 2,
) -> int:
    """Look at the questions of a run, finished or not, and at the search trees of one of them.

    Without --question, it prints a table of the questions with a mark for each strategy, PRM and N.
    With --question, it draws that question's trees and names the step at which the right path was
    lost; for models other than the embedded world's, it says whether a finished path was right.

    Args:
        run: run folder.
        question: id of a question, or the beginning of an id: draw its trees.
        strategies: labels of strategies; default: all.
        num_candidates: values of N; default: all. A strategy that ignores N is always shown.
        prms: labels of PRMs; default: all. A strategy that reads no scores is always shown.
        levels: levels of questions, where the data set has them.
        statuses: how searches ended: answered, no_answer, budget, max_tokens, max_seconds, failed.
        wrong: only questions that some chosen strategy, N and PRM got wrong.
        differ: two strategies: only these and those of --strategies, and only questions on which
            one of the two is right and the other wrong with the same N and PRM.
        limit: number of questions (default 20), or of trees with --question (default 4).
        show_dropped: largest number of dropped steps drawn per node.
    """
    from ..reporting.selection import (
        Selection,
        check_differ,
        differing_rows,
        in_question_order,
        select,
    )
    from ..runs.folder import read_run
    from .terminal import make_console

    if limit is not None and limit < 1:
        raise BadInputError(f"--limit {limit}: must be at least 1")
    if show_dropped < 0:
        raise BadInputError(f"--show-dropped {show_dropped}: must be at least 0")
    found = read_run(run)
    if not found.rows:
        raise BadInputError(f"{str(run)!r} has no rows yet: run `cats-jax evaluate` first")
    selection = Selection(
        strategies=tuple(dict.fromkeys((*strategies, *(differ or ())))),
        num_candidates=num_candidates,
        prms=prms,
        levels=levels,
        statuses=statuses,
    )
    if differ is not None:
        check_differ(found.rows, *differ)
    rows = in_question_order(select(found.rows, selection))
    if differ is not None:
        rows = _of_questions(rows, {row.question for row, _ in differing_rows(rows, *differ)})
    if wrong:
        rows = _of_questions(rows, {row.question for row in rows if not row.correct})
    console = make_console()
    if question is not None:
        _show_question(console, found, rows, question, limit or _TREES, show_dropped)
    elif rows:
        _show_questions(console, found, rows, limit or _QUESTIONS)
        first = [row for row in rows if row.question == rows[0].question]
        command = _command_of_trees(found, first, selection, differ)
        console.print(f"One question's trees: {command}", markup=False, soft_wrap=True)
    else:
        console.print("No question fits these filters.")
    return 0


def _of_questions(rows: Sequence[Row], questions: Collection[str]) -> list[Row]:
    return [row for row in rows if row.question in questions]


def _show_questions(console: Console, run: RunFolder, rows: Sequence[Row], limit: int) -> None:
    """Print the table of questions and what it leaves out."""
    from ..reporting.plain_text import one_line
    from ..reporting.question_table import MARKS, question_table
    from ..reporting.step_boundaries import without_boundaries
    from .terminal import say

    questions = list(dict.fromkeys(row.question for row in rows))
    shown = questions[:limit]
    damaged: list[str] = []
    texts = {question: _text(run, question, damaged) for question in shown}
    name = one_line(str(run.manifest["config"]["name"]), 60)
    everything = len({row.question for row in run.rows})
    title = f"{name}: {len(questions)} of {everything} questions"
    known = {question: text for question, text in texts.items() if text is not None}
    found = question_table(_of_questions(rows, shown), known, console.width, title)
    console.print(found.table)
    notes = [MARKS, *run.notes]
    if found.shown < found.configurations:
        notes.append(
            f"{found.configurations - found.shown} of {found.configurations} strategies with PRMs "
            f"do not fit into {console.width} columns: choose by --strategies and --prms, or use a "
            "wider terminal. The column `right` counts all of them."
        )
    if len(shown) < len(questions):
        notes.append(
            f"{len(questions) - len(shown)} more questions: --limit {len(questions)} shows all."
        )
    warning = without_boundaries(run)
    notes += [] if warning is None else [warning]
    notes += [f"left out: {line}" for line in damaged]
    for note in notes:
        say(console, one_line(note, 1000))


def _command_of_trees(
    run: RunFolder, rows: Sequence[Row], selection: Selection, differ: tuple[str, str] | None
) -> str:
    """The command that draws a question's trees of the same strategies, N and PRMs.

    With `differ`, it names one N and one PRM at which the two strategies differ.
    """
    from ..reporting.plain_text import one_line
    from ..reporting.selection import differing_rows

    sizes, prms = selection.num_candidates, selection.prms
    if differ is not None:
        # A strategy that ignores N has N = 1, one that reads no scores has no PRM.
        pair = differing_rows(rows, *differ)[0]
        sizes = (max(row.num_candidates for row in pair),)
        prms = tuple({row.prm: None for row in pair if row.prm is not None})
    options = {
        "question": (rows[0].question,),
        "strategies": selection.strategies,
        "num-candidates": sizes,
        "prms": prms,
        "statuses": selection.statuses,
    }
    words = ["cats-jax", "show", str(run.folder)]
    for name, values in options.items():
        words += [f"--{name}", *map(str, values)] if values else []
    return one_line(shlex.join(words), _MAX_COMMAND)


def _text(run: RunFolder, question: str, damaged: list[str]) -> str | None:
    """Text of a question, from its smallest tree; None without a whole tree, which has the text."""
    rows = [row for row in run.rows if row.question == question and row.tree is not None]
    for row in sorted(rows, key=lambda row: row.tree[1] if row.tree else 0):
        if (tree := _tree(run, row, damaged)) is not None:
            return tree.question.text
    return None


def _tree(run: RunFolder, row: Row, damaged: list[str]) -> SearchResult | None:
    """The tree of a row; None without one, or if it is damaged, which adds a line to `damaged`."""
    try:
        return None if row.tree is None else run.tree(row)
    except BadInputError as error:
        damaged.append(str(error))
        return None


def _show_question(
    console: Console, run: RunFolder, rows: Sequence[Row], given: str, limit: int, show_dropped: int
) -> None:
    """Print the outcome of a question in each configuration, and draw its trees."""
    from ..grading.graders import make_grader, recorded_grader
    from ..reporting.draw import LEGEND
    from ..reporting.printing import show_table
    from ..reporting.question_view import arrange, outcome_table, question_header, search_view
    from ..reporting.right_path import follow_right_path
    from ..reporting.selection import find_question
    from .terminal import say

    question = find_question(run.rows, given)
    rows = [row for row in rows if row.question == question]
    if not rows:
        raise BadInputError(
            f"--question {question}: no row of it fits the other filters: leave some of them out"
        )
    grader = make_grader(recorded_grader(run.manifest["config"]))
    damaged: list[str] = []
    trees = {row.key: tree for row in rows if (tree := _tree(run, row, damaged)) is not None}
    fates = {
        row.key: follow_right_path(run, row, trees[row.key], grader)
        for row in rows
        if row.key in trees
    }
    console.print(question_header(rows[0], _text(run, question, [])))
    show_table(console, outcome_table(rows, fates))
    drawn = [row for row in rows if row.key in fates][:limit]
    views = [search_view(row, trees[row.key], fates[row.key], show_dropped) for row in drawn]
    for view in arrange(views, console.width):
        console.print(view)
    if drawn:
        say(console, LEGEND)
        say(console, fates[drawn[0].key].knowledge)
    if len(fates) > len(drawn):
        say(
            console,
            f"{len(fates) - len(drawn)} more trees: choose by --strategies, --num-candidates and "
            f"--prms, or draw all by --limit {len(fates)}.",
        )
    for line in damaged:
        say(console, f"left out: {line}")
    if lacking := sum(row.tree is None for row in rows):
        say(
            console,
            f"{lacking} rows have no tree: set `trees: true` in the recipe; by "
            "default trees are written for N up to 64.",
        )
