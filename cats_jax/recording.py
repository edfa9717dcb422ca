"""From the end of a search to its row: the only place where gold answers are known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from .answers import BoxedIntegerJudge
from .cells import Cell
from .config import Recipe
from .datasets import QuestionSet
from .grading import Grade, MathJudge
from .protocols import AnswerJudge
from .results import SearchResult
from .runs import Row, RunWriter
from .wall_times import WallTimes


class Observer(Protocol):
    """Follows an evaluation, for progress bars."""

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """A cell with `total` questions begins, of which `rows` are done already."""
        ...

    def row(self, row: Row) -> None:
        """One more question has ended; its row is on its way to the disk."""
        ...


def needs_math(recipe: Recipe) -> bool:
    """Whether answers are mathematics in general; the embedded world's are integers in a box."""
    return any(spec.world is None for spec in recipe.questions)


def default_judge(recipe: Recipe) -> AnswerJudge:
    """The judge of a recipe's answers."""
    return MathJudge() if needs_math(recipe) else BoxedIntegerJudge()


def grade_answer(
    judge: AnswerJudge, answer: str | None, gold: str, tolerance: float | None
) -> Grade:
    """The verdict on one answer; none is wrong."""
    if answer is None:
        return Grade(False)
    if isinstance(judge, MathJudge):
        return judge.compare(answer, gold, tolerance)
    return Grade(judge.equivalent(answer, gold))


def is_covered(
    judge: AnswerJudge, result: SearchResult, gold: str, tolerance: float | None
) -> bool:
    """Whether some finished path gives the right answer."""
    answers = dict.fromkeys(path.answer for path in result.paths)
    return any(grade_answer(judge, answer, gold, tolerance).correct for answer in answers)


class Recorder:
    """Grades a result and writes it."""

    def __init__(
        self,
        cell: Cell,
        questions: QuestionSet,
        judge: AnswerJudge,
        writer: RunWriter,
        with_trees: bool,
        observers: Sequence[Observer],
        times: WallTimes,
    ) -> None:
        """`with_trees` says whether the trees of this cell are written."""
        self._cell = cell
        self._questions = questions
        self._judge = judge
        self._writer = writer
        self._with_trees = with_trees
        self._observers = observers
        self._times = times

    def __call__(self, result: SearchResult) -> None:
        """Take one result."""
        started = time.perf_counter()
        cell, identity = self._cell, result.question.id
        gold = self._questions.answers[identity]
        tolerance = self._questions.tolerances.get(identity)
        grade = grade_answer(self._judge, result.answer, gold, tolerance)
        row = Row(
            key=cell.key(identity),
            question=identity,
            strategy=cell.spec.label,
            num_candidates=cell.num_candidates,
            prm=None if cell.prm is None else cell.prm.label,
            seed=cell.seed,
            meta=self._questions.meta.get(identity, {}),
            answer=result.answer,
            gold=gold,
            correct=grade.correct,
            status=result.status,
            reason=result.reason or (grade.error and f"not graded: {grade.error}"),
            steps=result.steps,
            ledger=result.ledger,
            actions=_count_actions(result),
            dataset=self._questions.datasets.get(identity, ""),
            tolerance=tolerance,
            covered=grade.correct or is_covered(self._judge, result, gold, tolerance),
        )
        self._writer.add(row, result if self._with_trees else None)
        for observer in self._observers:
            observer.row(row)
        self._times.recording += time.perf_counter() - started


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
