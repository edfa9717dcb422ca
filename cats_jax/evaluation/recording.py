"""Grading of search results into rows, the only part of an evaluation that reads gold answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..datasets import QuestionSet
from ..grading.graders import grade_answer, is_covered
from ..live.abstention import decided
from ..live.results import SearchResult
from ..protocols import AnswerGrader
from ..runs.folder import Row, RunWriter
from .cells import Cell
from .wall_times import WallTimes


class Observer(Protocol):
    """Follows an evaluation, for progress bars.

    Several cells may be open at once, see `runners.CellRunner`; titles tell them apart.
    """

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """A cell of `total` questions begins; `rows` are the rows that it already has."""
        ...

    def row(self, title: str, row: Row) -> None:
        """One more question of a cell has ended; its row is queued for writing."""
        ...


@dataclass(frozen=True)
class RowRecorder:
    """Grades results of one cell, writes them as rows, and notifies the observers."""

    cell: Cell
    questions: QuestionSet
    grader: AnswerGrader
    writer: RunWriter
    with_trees: bool
    observers: Sequence[Observer]
    times: WallTimes

    def __call__(self, result: SearchResult) -> None:
        """Grade one result and write its row, with its tree if `with_trees` was given."""
        started = time.perf_counter()
        certified = self.cell.spec.certified
        if certified is not None:
            result = decided(result, certified.threshold)
        cell, identity = self.cell, result.question.id
        gold = self.questions.answers[identity]
        tolerance = self.questions.tolerances.get(identity)
        grade = grade_answer(self.grader, result.answer, gold, tolerance)
        row = Row(
            key=cell.key(identity),
            question=identity,
            strategy=cell.spec.label,
            num_candidates=cell.num_candidates,
            prm=None if cell.prm is None else cell.prm.label,
            seed=cell.seed,
            meta=self.questions.meta.get(identity, {}),
            answer=result.answer,
            gold=gold,
            correct=grade.correct,
            status=result.status,
            reason=result.reason or (grade.error and f"not graded: {grade.error}"),
            steps=result.steps,
            ledger=result.ledger,
            actions=_count_actions(result),
            dataset=self.questions.datasets.get(identity, ""),
            tolerance=tolerance,
            covered=grade.correct
            or is_covered(self.grader, [path.answer for path in result.paths], gold, tolerance),
        )
        # A replay of a bank has no tree.
        self.writer.add(row, result if self.with_trees and result.candidates else None)
        for observer in self.observers:
            observer.row(cell.title, row)
        self.times.recording += time.perf_counter() - started


def _count_actions(result: SearchResult) -> tuple[tuple[int, int, float, float, int, int], ...]:
    counts = Counter(
        (
            decision.num_extra,
            decision.num_retain,
            round(decision.temperature, 4),
            round(decision.top_p, 4),
            decision.top_k,
        )
        for decision in result.decisions
    )
    return tuple((*action, times) for action, times in sorted(counts.items()))
