"""Layouts, which define how a table of questions is read: its columns and its gold answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BadInputError, known_names, quoted
from ..grading.plain_numbers import plain_number
from ..protocols import Question
from .question_set import QuestionSet

_MAX_META_CHARS = 100
"""Longest text of a column that is copied to result rows; reference solutions are longer."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer, and the largest absolute difference at which an answer counts as equal."""

    answer: str
    tolerance: float | None = None


class BadRowError(ValueError):
    """A row breaks a rule; callers add the row's place and raise a BadInputError."""


@dataclass(frozen=True)
class Layout:
    """Columns of a table of questions.

    Attributes:
        gold: function from a row to its gold answer.
        question: possible names of the question's column; the first with a value is used.
        id: column of the id, or None. A row without an id gets its number, from 0, as id.
        prefix: text at the beginning of every id, which keeps ids of data sets distinct.
        context: column of a text that is put before the question, or None.
        answer: column of the gold answer, which stays apart from the other columns.
        keep: function that returns whether a row belongs to the data set.
        check: function that raises `BadRowError` for a row that must not be in the data set.
    """

    gold: Callable[[Row], Gold]
    question: tuple[str, ...]
    id: str | None = None
    prefix: str = ""
    context: str | None = None
    answer: str = "answer"
    keep: Callable[[Row], bool] = lambda row: True
    check: Callable[[Row], None] = lambda row: None


def to_question_set(rows: Iterable[tuple[str, Row]], layout: Layout, source: str) -> QuestionSet:
    """The question set of a table's rows, pairs (place, row) with places for messages.

    `source` is where the rows come from, for manifests and messages.

    Raises:
        BadInputError: a row breaks a rule (named by its place), an id occurs twice, or there is no
            row.
    """
    questions: list[Question] = []
    answers: dict[str, str] = {}
    tolerances: dict[str, float] = {}
    meta: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    where = ""
    for where, row in rows:
        try:
            if not layout.keep(row):
                continue
            layout.check(row)
            text = _question(row, layout)
            gold = layout.gold(row)
            identity = _identity(row, layout, len(questions))
        except BadRowError as error:
            raise BadInputError(f"{where}: {error}") from error
        if identity in answers:
            raise BadInputError(
                f"{where}: id {identity!r} occurs twice, first at {places[identity]}: ids must be "
                "unique; a file may also leave them out"
            )
        places[identity] = where
        questions.append(Question(identity, text))
        answers[identity] = gold.answer
        if gold.tolerance is not None:
            tolerances[identity] = gold.tolerance
        meta[identity] = {
            name: value
            for name, value in row.items()
            if name not in (layout.id, *layout.question, layout.answer) and _is_short(value)
        }
    if not questions and where:
        raise BadInputError(
            f"{source} has rows, but none of this data set: check that it is the file of 'dataset'"
        )
    if not questions:
        raise BadInputError(
            f"{source} has no rows: write a question a line, such as "
            '{"question": "What is 4*6?", "answer": 24}'
        )
    return QuestionSet(source, tuple(questions), answers, meta, tolerances)


def column(row: Row, *names: str) -> Any:
    """The first value that is not None among a row's columns `names`, or None if all are None.

    Raises:
        BadRowError: the row has none of the columns; the message names the nearest one it has.
    """
    present = [name for name in names if name in row]
    if present:
        filled = [name for name in present if row[name] is not None]
        return row[(filled or present)[0]]
    raise BadRowError(
        f"column {' or '.join(map(repr, names))} is missing: {known_names(names[0], row)}"
    )


def answer_text(value: Any, name: str) -> str:
    """An answer column's value as a text; the answers of a list are joined by commas.

    Semicolons join them if one has thousands separators.

    Raises:
        BadRowError: the value is not a text, a number or a list of these, or it is empty.
    """
    if isinstance(value, list | tuple) and value:
        texts = [answer_text(one, name) for one in value]
        # The comma of 1,234 separates no answers.
        separators = any("," in text and plain_number(text) is not None for text in texts)
        return ("; " if separators else ", ").join(texts)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise BadRowError(f"{name!r} must be a text or a number, not empty, got {quoted(value)}")


def _question(row: Row, layout: Layout) -> str:
    text = column(row, *layout.question)
    if not isinstance(text, str) or not text.strip():
        name = next((n for n in layout.question if n in row), layout.question[0])
        raise BadRowError(f"{name!r} must be a text that is not blank, got {quoted(text)}")
    context = row.get(layout.context) if layout.context else None
    return f"{context.strip()}\n{text}" if isinstance(context, str) and context.strip() else text


def _identity(row: Row, layout: Layout, number: int) -> str:
    value = row.get(layout.id) if layout.id else None
    if value is None:
        return f"{layout.prefix}{number}"
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise BadRowError(
            f"{layout.id!r} must be a text or a whole number, not blank, got {quoted(value)}"
        )
    return f"{layout.prefix}{value}"


def tolerance_of(value: Any) -> float | None:
    """A column's value as a tolerance, or None if it is not a finite number from 0."""
    try:
        tolerance = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return tolerance if 0 <= tolerance < math.inf else None


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_META_CHARS
    if isinstance(value, float):
        return math.isfinite(value)  # JSON has no others
    # Rows of a run can't have longer integers.
    return value is None or (isinstance(value, int) and abs(value) < 1 << 63)
