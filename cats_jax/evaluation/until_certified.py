"""Evaluation until a claim on an accuracy is settled, by e-processes; see `theory.settle`.

The order of the questions depends on the seed and on their ids alone. Questions are searched in
batches of fixed sizes, and the claim is tested after each question in that order. A run that was
killed and resumed therefore gets the same rows and the same decision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import theory

from ..errors import BadInputError
from ..protocols import Question
from ..runs.folder import Row
from .cells import Cell

FIRST_BATCH = 32
"""Number of questions of each of the first batches. A later batch has a quarter of the number of
questions before it, so that engines are busy and at most a fifth of all questions is searched after
the decision."""

NOTE = (
    "the run ends when its own results settle a claim: its certificate allows for that, and the "
    "plain intervals of its tables do not"
)


@dataclass(frozen=True)
class AccuracyClaim:
    """The claim that an accuracy is above a target.

    Attributes:
        target: in (0, 1).
        delta: largest probability that a decision is false, in (0, 1).
    """

    target: float
    delta: float = 0.05

    def __post_init__(self) -> None:
        """Check the two numbers.

        Raises:
            BadInputError: one of them is not between 0 and 1.
        """
        for option, value in (("--until-certified", self.target), ("--delta", self.delta)):
            if not 0 < value < 1:
                raise BadInputError(f"{option}={value:g}: must be between 0 and 1, such as 0.05")

    @property
    def words(self) -> str:
        """The claim as a clause."""
        return f"accuracy above {self.target:g}"

    def of(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest of a run that this claim ends; with another claim, it is another run."""
        return {
            **manifest,
            "notes": [*manifest["notes"], NOTE],
            "until_certified": {"target": self.target, "delta": self.delta},
        }

    def check(self, cells: Sequence[Cell], num_questions: int) -> None:
        """Refuse a claim that no answers could certify, before a model is loaded.

        Raises:
            BadInputError: there are several cells, or too few questions.
        """
        if len(cells) != 1:
            raise BadInputError(
                f"--until-certified: a claim is about one configuration, and the recipe has "
                f"{len(cells)}, such as {cells[0].title} and {cells[1].title}: name one by "
                "--strategies, --num-candidates, --prms and --seeds"
            )
        needed = least_questions(self.target, self.delta)
        if num_questions < needed:
            raise BadInputError(
                f"--until-certified={self.target:g}: {num_questions} questions certify nothing, "
                f"whatever the answers are: it takes at least {needed} with --delta={self.delta:g}"
            )


class UntilCertified:
    """Batches of questions until a claim is settled; a `recording.Observer` of the one cell.

    Args:
        claim: the claim.
        seed: the run seed, which fixes the order of the questions.
    """

    def __init__(self, claim: AccuracyClaim, seed: int) -> None:
        self._claim, self._seed = claim, seed
        self._right: dict[str, bool] = {}

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """Read the rows that an earlier start has written."""
        self._right = {row.question: row.correct for row in rows}

    def row(self, title: str, row: Row) -> None:
        """Read one more row."""
        self._right[row.question] = row.correct

    def batches(self, questions: Sequence[Question]) -> Iterator[list[Question]]:
        """The questions that have no row yet, batch by batch, up to the one that settles the claim.

        A batch must have ended before the next one is taken. Questions that an earlier start has
        searched are left out of their batch. An empty batch is skipped.
        """
        ordered = in_order(questions, self._seed)
        done = 0
        while done < len(ordered):
            end = min(done + max(FIRST_BATCH, done // 4), len(ordered))
            if todo := [item for item in ordered[done:end] if item.id not in self._right]:
                yield todo
            done = end
            right = [self._right[item.id] for item in ordered[:done]]
            if settled(self._claim, right).decision != "open":
                return


def in_order(questions: Sequence[Question], seed: int) -> list[Question]:
    """The questions in an order that depends on the seed and on each question's id alone."""

    def place(question: Question) -> bytes:
        return hashlib.sha256(f"{seed}|{question.id}".encode()).digest()

    return sorted(questions, key=place)


def settled(claim: AccuracyClaim, right: Sequence[bool]) -> theory.Settled:
    """The state of a claim after the answers to the first questions."""
    return theory.settle(right, target=claim.target, delta=claim.delta)


def least_questions(target: float, delta: float) -> int:
    """Number of questions that certify an accuracy above a target if all answers are right."""
    number = 1
    while theory.settle([True] * number, target=target, delta=delta).decision != "above":
        number *= 2
    return theory.settle([True] * number, target=target, delta=delta).trials
