"""Rows of a run, selected by strategy, N, PRM, level, status, and by right and wrong answers."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from ..errors import BadInputError, known_names
from ..live.results import Status
from ..runs.folder import Row, RunFolder
from .plain_text import one_line

_MAX_ID = 1000
"""Characters of an id that a printed command has at most."""


@dataclass(frozen=True)
class Selection:
    """Which rows to look at; an empty field chooses all.

    Attributes:
        strategies: labels of strategies.
        num_candidates: values of N. A strategy that ignores N has N = 1, and its rows always stay.
        prms: labels of PRMs. Rows of a strategy that reads no scores always stay.
        levels: levels of questions, as text.
        statuses: how searches ended, see `SearchResult.status`.
    """

    strategies: tuple[str, ...] = ()
    num_candidates: tuple[int, ...] = ()
    prms: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()


def select(rows: Sequence[Row], selection: Selection) -> list[Row]:
    """The chosen rows, in their order.

    Raises:
        BadInputError: a strategy, N, PRM or level that no row has, or an unknown status.
    """
    ignoring = _ignoring_num_candidates(rows)
    _check("strategies", selection.strategies, (row.strategy for row in rows))
    _check("num-candidates", selection.num_candidates, (row.num_candidates for row in rows))
    _check("prms", selection.prms, (row.prm for row in rows if row.prm is not None))
    _check("levels", selection.levels, (level for row in rows if (level := level_of(row))))
    _check("statuses", selection.statuses, get_args(Status))
    return [
        row
        for row in rows
        if _has(selection.strategies, row.strategy)
        and (row.strategy in ignoring or _has(selection.num_candidates, row.num_candidates))
        and (row.prm is None or _has(selection.prms, row.prm))
        and _has(selection.levels, level_of(row))
        and _has(selection.statuses, row.status)
    ]


def select_runs(runs: Sequence[RunFolder], selection: Selection) -> list[RunFolder]:
    """The runs that have chosen rows, with these only.

    If all rows of a run are chosen, the run itself is returned, not a copy.

    Raises:
        BadInputError: no run has a chosen strategy, N, PRM or level, or no row is chosen.
    """
    chosen = {id(row) for row in select([row for run in runs for row in run.rows], selection)}
    if not chosen:
        raise BadInputError("no row is of such a strategy, N and PRM: ask for less")
    selected = []
    for run in runs:
        rows = tuple(row for row in run.rows if id(row) in chosen)
        if rows:
            whole = len(rows) == len(run.rows)
            selected.append(run if whole else dataclasses.replace(run, rows=rows))
    return selected


def level_of(row: Row) -> str:
    """The question's level as text; "" if its data set has none."""
    level = row.meta.get("level")
    return "" if level is None else str(level)


def in_question_order(rows: Iterable[Row]) -> list[Row]:
    """Rows by data set, level and question id; numbers in texts are compared by value.

    Rows of one question keep their order.
    """

    def place(row: Row) -> tuple[object, ...]:
        return row.dataset, _natural(level_of(row)), _natural(row.question), row.question

    return sorted(rows, key=place)


def _natural(text: str) -> list[str | tuple[int, str]]:
    """A sort key with "q9" before "q10": every second entry is a number, by length and digits."""
    parts: list[str | tuple[int, str]] = list(re.split(r"([0-9]+)", text))
    for place in range(1, len(parts), 2):
        digits = str(parts[place]).lstrip("0")
        parts[place] = (len(digits), digits)
    return parts


def find_question(rows: Iterable[Row], given: str) -> str:
    """The id of a question from the id or its beginning, also as `show` prints it on one line.

    Raises:
        BadInputError: no row, or rows of several questions, have such an id.
    """
    ids = list(dict.fromkeys(row.question for row in rows))
    if given in ids:
        return given
    shown = {identity: one_line(identity, _MAX_ID) for identity in ids}
    printed = one_line(given, _MAX_ID)
    fitting = [identity for identity in ids if shown[identity] == printed] or [
        identity
        for identity in ids
        if identity.startswith(given) or shown[identity].startswith(printed)
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise BadInputError(
            f"--question {given!r} is the beginning of {len(fitting)} ids, such as {fitting[0]!r} "
            f"and {fitting[1]!r}: give more of it"
        )
    raise BadInputError(
        f"--question {given!r} is not in the run: {known_names(given, ids[:10])}"
        + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
    )


def check_differ(rows: Iterable[Row], first: str, second: str) -> None:
    """Raise BadInputError if a label is that of no row of a run, or one is given twice."""
    if first == second:
        raise BadInputError(f"--differ {first} {second}: name two different strategies")
    _check("differ", (first, second), (row.strategy for row in rows))


def differing_rows(rows: Sequence[Row], first: str, second: str) -> list[tuple[Row, Row]]:
    """Pairs of rows on which two strategies differ, in the order of the first one's rows.

    Two rows of a question differ if one is right and the other is wrong, with the same N, PRM and
    seed. A strategy that ignores N is compared at every N and seed. A strategy that reads no scores
    is compared with every PRM.

    Args:
        rows: rows of a run.
        first, second: labels of two different strategies.
    """
    # A grid runs the strategies that ignore N at one seed. Others may have been selected at N = 1.
    seeds = {(row.strategy, row.seed) for row in rows}
    number = Counter(strategy for strategy, _ in seeds)
    ignoring = {each for each in _ignoring_num_candidates(rows) if number[each] == 1}
    seconds: dict[str, list[Row]] = {}
    for row in rows:
        if row.strategy == second:
            seconds.setdefault(row.question, []).append(row)

    def comparable(one: Row, other: Row) -> bool:
        return (
            (one.num_candidates == other.num_candidates or bool({first, second} & ignoring))
            and (one.prm == other.prm or None in (one.prm, other.prm))
            and (one.seed == other.seed or bool({first, second} & ignoring))
        )

    return [
        (row, other)
        for row in rows
        if row.strategy == first
        for other in seconds.get(row.question, ())
        if comparable(row, other) and row.correct != other.correct
    ]


def _ignoring_num_candidates(rows: Iterable[Row]) -> set[str]:
    """Strategies whose rows all have N = 1: a grid runs those that ignore N once."""
    values: dict[str, set[int]] = {}
    for row in rows:
        values.setdefault(row.strategy, set()).add(row.num_candidates)
    return {strategy for strategy, found in values.items() if found == {1}}


def _has(chosen: Sequence[object], value: object) -> bool:
    return not chosen or value in chosen


def _check(flag: str, chosen: Iterable[object], known: Iterable[object]) -> None:
    values = list(dict.fromkeys(known))
    for name in chosen:
        # Not as texts: "4" would pass, and then fit no row.
        if name not in values:
            names = [str(value) for value in values] or ["none"]
            near = "" if str(name) in names else str(name)
            known_as = known_names(near, names)
            raise BadInputError(f"--{flag}: {name!r} is not in the run: {known_as}")
