"""Grading a file of answers: rows in, the same rows with grades out."""

from __future__ import annotations

import json
import pathlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..datasets.layout import BadRowError, answer_text, column, tolerance_of
from ..errors import BadInputError
from ..grading.math_grader import Grade, MathGrader
from ..storage.durable import whole_text
from ..storage.tables import numbered_rows

_WAITING_PER_WORKER = 64
"""Rows read ahead per worker: no worker waits, and memory stays small."""


@dataclass
class GradeTally:
    """Numbers of rows, of correct rows, and of rows that could not be graded."""

    rows: int = 0
    correct: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class _Task:
    row: dict[str, Any]
    prediction: str | None
    gold: str
    tolerance: float | None


def count_rows(path: str | pathlib.Path) -> int:
    """Check every row of a file and return the number of rows; nothing is graded.

    Raises:
        BadInputError: no such file, a row that breaks a rule (named by line), or no row.
    """
    count = sum(1 for _ in _tasks(pathlib.Path(path)))
    if not count:
        raise BadInputError(f"{str(path)!r} has no rows")
    return count


def grade_file(
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    grader: MathGrader,
    on_row: Callable[[Grade], None] = lambda grade: None,
) -> GradeTally:
    """Grade rows `{"prediction", "answer"}`, write them with `correct` added, and count them.

    The target is written whole or not at all. A row that can't be graded within the grader's limits
    counts as wrong and gets the reason as `error`.

    Args:
        source: JSONL. `prediction`: a solution, an answer alone, or null. `answer`: a text, a
            number, or a list of answers in any order. `tolerance`, or OlympiadBench's `error`:
            largest absolute difference between numbers that count as equal.
        target: JSONL, replaced if it exists.
        grader: grades the rows within its limits, in its worker processes.
        on_row: called with the grade of each row, in order.

    Raises:
        BadInputError: the source can't be read, or the target can't be written.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    tally = GradeTally()
    with whole_text(target) as lines:
        for task, grade in _graded(source, grader):
            row = {**task.row, "correct": grade.correct}
            if "correct" in task.row and tolerance_of(row.get("error")) is None:
                row.pop("error", None)  # of an earlier grading
            if grade.error:
                row["error"] = grade.error
            lines.write(json.dumps(row) + "\n")
            tally.rows += 1
            tally.correct += grade.correct
            tally.errors += bool(grade.error)
            on_row(grade)
    return tally


def _graded(source: pathlib.Path, grader: MathGrader) -> Iterator[tuple[_Task, Grade]]:
    """Rows with their grades, in order; as many at a time as the grader has workers."""
    waiting: deque[tuple[_Task, Future[Grade]]] = deque()
    with ThreadPoolExecutor(grader.workers, thread_name_prefix="grade") as pool:
        try:
            for task in _tasks(source):
                waiting.append((task, pool.submit(_grade, grader, task)))
                if len(waiting) >= _WAITING_PER_WORKER * grader.workers:
                    first, grade = waiting.popleft()
                    yield first, grade.result()
            for task, grade in waiting:
                yield task, grade.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _grade(grader: MathGrader, task: _Task) -> Grade:
    if task.prediction is None:
        return Grade(False)
    return grader.grade(task.prediction, task.gold, task.tolerance)


def _tasks(path: pathlib.Path) -> Iterator[_Task]:
    for where, row in numbered_rows(path):
        try:
            yield _task(row)
        except BadRowError as error:
            raise BadInputError(f"{where}: {error}") from error


def _task(row: dict[str, Any]) -> _Task:
    prediction = column(row, "prediction")
    if prediction is not None and not isinstance(prediction, str):
        prediction = answer_text(prediction, "prediction")
    gold = answer_text(column(row, "answer"), "answer")
    return _Task(row, prediction, gold, _tolerance(row))


def _tolerance(row: Mapping[str, Any]) -> float | None:
    """The row's `tolerance`, or its `error` if that is OlympiadBench's number, not a message."""
    value = row.get("tolerance")
    if value in (None, ""):
        return tolerance_of(row.get("error"))
    tolerance = tolerance_of(value)
    if tolerance is None:
        raise BadRowError(f"'tolerance' must be a number, finite and at least 0, got {value!r}")
    return tolerance
