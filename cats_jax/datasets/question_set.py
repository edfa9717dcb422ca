"""`QuestionSet`, the questions that searches receive and, apart from them, their gold answers."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import BadInputError
from ..grading.graders import grade_answer
from ..protocols import AnswerGrader, Question


@dataclass(frozen=True)
class QuestionSet:
    """Questions with their gold answers and other columns.

    Attributes:
        source: where the questions come from, for manifests and titles.
        questions: the questions as searches see them.
        answers: gold answer by question id.
        meta: other columns by question id, such as the level.
        tolerances: largest absolute difference to the gold answer at which an answer is right, by
            question id; only for questions that allow a difference.
        datasets: label of the data set by question id; empty if there is only one data set.
        notes: lines about the selection for the user.
        contents: by label, the digest of a whole published data set as read from the hub, before
            the selection.
    """

    source: str
    questions: tuple[Question, ...]
    answers: Mapping[str, str]
    meta: Mapping[str, Mapping[str, Any]]
    tolerances: Mapping[str, float] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    contents: Mapping[str, str] = field(default_factory=dict)

    def fingerprint(self) -> dict[str, Any]:
        """Source, count and hashes of the questions and of the answers."""
        texts = [[question.id, question.text] for question in self.questions]
        answers = [
            [question.id, self.answers[question.id], *self._tolerance(question.id)]
            for question in self.questions
        ]
        return {
            "source": self.source,
            "count": len(self.questions),
            "sha256": _digest(texts),
            "answers_sha256": _digest(answers),
        }

    def select(
        self, *, shuffle: int | None = None, start: int = 0, count: int | None = None
    ) -> QuestionSet:
        """`count` questions from index `start` on, after a shuffle by the seed `shuffle` if given.

        If there are fewer, all of them are selected, and a note states this.

        Raises:
            BadInputError: no question is selected.
        """
        chosen = list(self.questions)
        source = self.source
        if shuffle is not None:
            random.Random(f"cats-jax questions {shuffle}").shuffle(chosen)
            source += f", shuffled by {shuffle}"
        stop = None if count is None else start + count
        chosen = chosen[start:stop]
        notes = selection_notes(self.source, len(self.questions), start, count)
        if start or stop is not None:
            source += f", rows {start + 1} to {start + len(chosen)}"
        ids = [question.id for question in chosen]
        return replace(
            self,
            source=source,
            questions=tuple(chosen),
            answers={identity: self.answers[identity] for identity in ids},
            meta={identity: self.meta.get(identity, {}) for identity in ids},
            tolerances={i: self.tolerances[i] for i in ids if i in self.tolerances},
            datasets={i: self.datasets[i] for i in ids if i in self.datasets},
            notes=(*self.notes, *notes),
        )

    def is_right(self, grader: AnswerGrader, identity: str, answer: str | None) -> bool:
        """Whether an answer to the question with this id is right."""
        tolerance = self.tolerances.get(identity)
        return grade_answer(grader, answer, self.answers[identity], tolerance).correct

    def _tolerance(self, identity: str) -> list[float]:
        return [self.tolerances[identity]] if identity in self.tolerances else []


def joined(sets: Sequence[tuple[str, QuestionSet]]) -> QuestionSet:
    """Join (label, set) pairs into one set; its `datasets` has the labels of several sets.

    Raises:
        BadInputError: a question id occurs in two sets.
    """
    if len(sets) == 1:
        return sets[0][1]
    owner: dict[str, str] = {}
    for label, one in sets:
        for question in one.questions:
            if question.id in owner:
                raise BadInputError(
                    f"questions: id {question.id!r} occurs in {owner[question.id]!r} and in "
                    f"{label!r}: ids must be unique in a run; rows without ids have their numbers "
                    "as ids: give one file a column of ids, and name it by the key id_column"
                )
            owner[question.id] = label
    return QuestionSet(
        source="; ".join(one.source for _, one in sets),
        questions=tuple(question for _, one in sets for question in one.questions),
        answers={i: answer for _, one in sets for i, answer in one.answers.items()},
        meta={i: meta for _, one in sets for i, meta in one.meta.items()},
        tolerances={i: value for _, one in sets for i, value in one.tolerances.items()},
        datasets=owner,
        notes=tuple(note for _, one in sets for note in one.notes),
        contents={label: digest for _, one in sets for label, digest in one.contents.items()},
    )


def selection_notes(source: str, rows: int, start: int, count: int | None) -> list[str]:
    """A note if a source has fewer than `count` of its `rows` from index `start` on; else none.

    Raises:
        BadInputError: no row is left.
    """
    left = rows - start
    if left <= 0:
        raise BadInputError(
            f"questions: {source} has {rows} rows, so start={start} leaves none: lower start"
        )
    if count is None or count <= left:
        return []
    after = f" from start {start} on" if start else ""
    return [f"questions: {source} has {left} rows{after}, fewer than count {count}: all are taken"]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
