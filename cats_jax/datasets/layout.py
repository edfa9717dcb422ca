"""How a table of questions is read: which columns, and how the gold answer is written in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BadInputError, known_names
from ..protocols import Question
from .question_set import QuestionSet

_MAX_META_CHARS = 100
"""Longer texts (reference solutions) have no place in a result row."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer, and the largest absolute difference to it that counts as none."""

    answer: str
    tolerance: float | None = None


class BadRowError(ValueError):
    """A row breaks a rule; whoever knows where it stands turns this into a BadInputError."""


@dataclass(frozen=True)
class Layout:
    """Columns of a table of questions.

    Attributes:
        gold: the gold answer of a row.
        question: names the question's column may have; the first one present counts.
        id: column of the id; where there is none the row's number, from 0, is the id.
        prefix: begins every id, so that data sets don't collide.
        context: column of a text that belongs before the question, or None.
        keep: which rows belong to the data set.
        check: raises `BadRowError` for a row that must not be in it.
    """

    gold: Callable[[Row], Gold]
    question: tuple[str, ...]
    id: str | None = None
    prefix: str = ""
    context: str | None = None
    keep: Callable[[Row], bool] = lambda row: True
    check: Callable[[Row], None] = lambda row: None


def to_question_set(rows: Iterable[tuple[str, Row]], layout: Layout, source: str) -> QuestionSet:
    """Questions from rows, each with the place it stands at.

    Raises:
        BadInputError: a row breaks a rule (named by its place), an id occurs twice, or no row.
    """
    questions: list[Question] = []
    answers: dict[str, str] = {}
    tolerances: dict[str, float] = {}
    meta: dict[str, dict[str, Any]] = {}
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
            raise BadInputError(f"{where}: id {identity!r} occurs twice: ids must be unique")
        questions.append(Question(identity, text))
        answers[identity] = gold.answer
        if gold.tolerance is not None:
            tolerances[identity] = gold.tolerance
        meta[identity] = {
            name: value
            for name, value in row.items()
            if name not in (layout.id, *layout.question, "answer") and _is_short(value)
        }
    if not questions:
        raise BadInputError(f"{source} has no questions")
    return QuestionSet(source, tuple(questions), answers, meta, tolerances)


def column(row: Row, *names: str) -> Any:
    """The value of the first of these columns that a row has; one that is not null if it can be.

    Raises:
        BadRowError: none is there; the message names the nearest that is.
    """
    present = [name for name in names if name in row]
    if present:
        filled = [name for name in present if row[name] is not None]
        return row[(filled or present)[0]]
    raise BadRowError(
        f"column {' or '.join(map(repr, names))} is missing: {known_names(names[0], row)}"
    )


def answer_text(value: Any, name: str) -> str:
    """An answer column's value as a text; a list of answers is written with commas.

    Raises:
        BadRowError: it is neither a text, a number nor a list of them, or it is empty.
    """
    if isinstance(value, list | tuple) and value:
        return ", ".join(answer_text(one, name) for one in value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise BadRowError(f"{name!r} must be a text or a number, not empty")


def _question(row: Row, layout: Layout) -> str:
    text = column(row, *layout.question)
    if not isinstance(text, str) or not text.strip():
        raise BadRowError(f"{layout.question[0]!r} must be a text that is not blank")
    context = row.get(layout.context) if layout.context else None
    return f"{context.strip()}\n{text}" if isinstance(context, str) and context.strip() else text


def _identity(row: Row, layout: Layout, number: int) -> str:
    value = row.get(layout.id) if layout.id else None
    if value is None:
        return f"{layout.prefix}{number}"
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadRowError(f"{layout.id!r} must be a text or a number, not empty")
    return f"{layout.prefix}{value}"


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_META_CHARS
    if isinstance(value, float):
        return math.isfinite(value)  # JSON has no others
    return value is None or isinstance(value, bool | int)
