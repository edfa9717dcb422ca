"""Evaluation until a claim on an accuracy is settled, by e-processes; see `theory.sequential`.

The order of the questions depends on the seed and on their ids alone. Questions are searched in
batches of fixed sizes, and the claim is tested after each question in that order. So a run that was
killed and resumed gets the same rows and the same decision.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import theory

from ..errors import BadInputError, known_names
from ..protocols import Question
from ..runs.folder import Row
from .cells import Cell

FIRST_BATCH = 32
"""Number of questions of each of the first batches. A later batch has a quarter of the number of
questions before it: engines are busy, and at most a fifth of all questions is searched after the
decision."""

NOTE = (
    "the run ends when its own results settle a claim: its certificate allows for that, and the "
    "plain intervals of its tables do not"
)


@dataclass(frozen=True)
class AccuracyClaim:
    """The claim that an accuracy is above a target, or little below that of another strategy.

    Attributes:
        target: the accuracy to be exceeded; with `against`, the accuracy that may be lost; in
            (0, 1).
        delta: largest probability that a decision is false, in (0, 1).
        against: label of the strategy to compare with, at its largest N; None: no comparison.
        against_num_candidates: this N, for `words`; None before the cells are known.
    """

    target: float
    delta: float = 0.05
    against: str | None = None
    against_num_candidates: int | None = None

    def __post_init__(self) -> None:
        """Raise BadInputError if `target` or `delta` is not between 0 and 1."""
        for option, value in (("--until-certified", self.target), ("--delta", self.delta)):
            if not 0 < value < 1:
                raise BadInputError(f"{option}={value:g}: must be between 0 and 1, such as 0.05")

    @property
    def words(self) -> str:
        """The claim as a clause."""
        if self.against is None:
            return f"accuracy above {self.target:g}"
        return f"accuracy at most {self.target:g} below that of {self._rival}"

    @property
    def contrary(self) -> str:
        """The contrary of the claim as a clause."""
        if self.against is None:
            return f"the accuracy is not above {self.target:g}"
        return f"the accuracy is more than {self.target:g} below that of {self._rival}"

    @property
    def _rival(self) -> str:
        number = self.against_num_candidates
        return f"{self.against}" if number is None else f"{self.against} N={number}"

    @property
    def mean(self) -> float:
        """The mean that `value` exceeds if the claim is true."""
        return self.target if self.against is None else (1 - self.target) / 2

    def value(self, rows: Sequence[Row]) -> float:
        """The value in [0, 1] of a question, from its rows of all cells.

        It is the share of right answers over the seeds. With `against`, it is (1 - D) / 2 of the
        loss D, the other strategy's share minus this one's.
        """
        mine = [row.correct for row in rows if not self.is_other(row, rows)]
        other = [row.correct for row in rows if self.is_other(row, rows)]
        share = sum(mine) / len(mine)
        return (1 - sum(other) / len(other) + share) / 2 if other else share

    def is_other(self, row: Row, rows: Sequence[Row]) -> bool:
        """Whether a row, one of all rows of a question, is of the strategy to compare with."""
        found = _compared(((each.strategy, each.num_candidates) for each in rows), self.against)
        return (row.strategy, row.num_candidates) == found

    def of(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest of a run that this claim ends; with another claim, it is another run."""
        named = {} if self.against is None else {"against": self.against}
        return {
            **manifest,
            "notes": [*manifest["notes"], NOTE],
            "until_certified": {"target": self.target, "delta": self.delta, **named},
        }

    def check(self, cells: Sequence[Cell], num_questions: int) -> None:
        """Refuse a claim that no answers could certify, before a model is loaded.

        Raises:
            BadInputError: the cells are not those of one configuration and the one compared with,
                or there are too few questions.
        """
        labels = [cell.spec.label for cell in cells]
        if self.against is not None and self.against not in labels:
            raise BadInputError(f"--against {self.against!r}: {known_names(self.against, labels)}")
        other = _compared(((cell.spec.label, cell.num_candidates) for cell in cells), self.against)
        for relation, is_other in (("about", False), ("against", True)):
            found = [c for c in cells if ((c.spec.label, c.num_candidates) == other) == is_other]
            without_seeds = {cell.title.rpartition(" seed ")[0]: cell for cell in found}
            titles = [cell.title for cell in without_seeds.values()]
            if len(titles) > 1 or (relation == "about" and not titles):
                some = f", such as {titles[0]} and {titles[1]}" if titles else " beside --against"
                raise BadInputError(
                    f"--until-certified: a claim is {relation} one configuration, and the recipe "
                    f"has {len(titles)}{some}: name one by --strategies, --num-candidates and "
                    "--prms"
                )
        needed = least_questions(self, len(cells))
        if num_questions < needed:
            raise BadInputError(
                f"--until-certified={self.target:g}: {num_questions} questions certify nothing, "
                f"whatever the answers are: it takes at least {needed} with --delta={self.delta:g}"
            )


class UntilCertified:
    """Batches of questions until a claim is settled; a `recording.Observer` of all cells.

    The run seed, `seed`, fixes the order of the questions.
    """

    def __init__(self, claim: AccuracyClaim, seed: int) -> None:
        self._claim, self._seed = claim, seed
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """Read the rows that an earlier start has written."""
        for row in rows:
            self._rows[row.question].append(row)

    def row(self, title: str, row: Row) -> None:
        """Read one more row."""
        self._rows[row.question].append(row)

    def batches(self, questions: Sequence[Question]) -> Iterator[list[Question]]:
        """The questions, batch by batch, up to the one that settles the claim.

        All cells must have searched a batch before the next one is taken. Batches include the
        questions that have rows of an earlier start.
        """
        ordered = in_order(questions, self._seed)
        done = 0
        while done < len(ordered):
            end = min(done + max(FIRST_BATCH, done // 4), len(ordered))
            yield ordered[done:end]
            done = end
            looked = [self._rows[item.id] for item in ordered[:done]]
            if settled(self._claim, looked).decision != "open":
                return


def in_order(questions: Sequence[Question], seed: int) -> list[Question]:
    """The questions in an order that depends on the seed and on each question's id alone."""

    def place(question: Question) -> bytes:
        return hashlib.sha256(f"{seed}|{question.id}".encode()).digest()

    return sorted(questions, key=place)


def settled(claim: AccuracyClaim, looked: Sequence[Sequence[Row]]) -> theory.Settled:
    """The state of a claim after the first questions, each with its rows of all cells.

    One row a question gives the exact process of right and wrong answers.
    """
    settle = theory.settle if len(looked[0]) == 1 else theory.settle_mean
    values = [claim.value(rows) for rows in looked]
    return settle(values, target=claim.mean, delta=claim.delta)


def least_questions(claim: AccuracyClaim, num_cells: int = 1) -> int:
    """Number of questions that certify a claim if each of them has the largest value, 1."""
    settle = theory.settle if num_cells == 1 else theory.settle_mean
    number = 1
    while True:
        found = settle([1.0] * number, target=claim.mean, delta=claim.delta)
        if found.decision == "above":
            return found.trials
        number *= 2


def _compared(found: Iterable[tuple[str, int]], against: str | None) -> tuple[str, int] | None:
    """Label and largest N of the strategy that a claim compares with; None without one."""
    values = [number for label, number in found if label == against]
    return None if against is None or not values else (against, max(values))
