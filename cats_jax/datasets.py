"""Questions and, apart from them, their gold answers.

`QuestionSet.questions` is what searches receive; `QuestionSet.answers` only ever reaches grading.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import BadInputError
from .protocols import Question

_COLUMNS = ("id", "question", "answer")
# Longer texts (reference solutions) have no place in a result row.
_MAX_META_CHARS = 100


@dataclass(frozen=True)
class QuestionSet:
    """Questions with what is known about them.

    Attributes:
        source: where they come from, for manifests and titles.
        questions: as searches see them.
        answers: gold answer by question id.
        meta: other columns by question id, such as the level.
    """

    source: str
    questions: tuple[Question, ...]
    answers: Mapping[str, str]
    meta: Mapping[str, Mapping[str, Any]]

    def fingerprint(self) -> dict[str, Any]:
        """Source, count and hashes of the questions and of the answers."""
        texts = [[question.id, question.text] for question in self.questions]
        answers = [[question.id, self.answers[question.id]] for question in self.questions]
        return {
            "source": self.source,
            "count": len(self.questions),
            "sha256": _digest(texts),
            "answers_sha256": _digest(answers),
        }


def world_questions(
    split: str, count: int, *, seed: int = 0, levels: Sequence[int] | None = None
) -> QuestionSet:
    """Questions of the embedded world.

    Raises:
        BadInputError: unknown split or level, or a count below 1.
    """
    from .world import task

    if count < 1:
        raise BadInputError(f"questions: count={count}: at least one question is needed")
    try:
        problems = task.problems(
            split,  # type: ignore[arg-type]  # checked by the callee
            count,
            seed=seed,
            levels=task.LEVELS if levels is None else tuple(levels),
        )
    except ValueError as error:
        raise BadInputError(f"questions of the embedded world: {error}") from error
    return QuestionSet(
        source=f"the embedded world, set {split}, seed {seed}",
        questions=tuple(Question(problem.id, problem.text) for problem in problems),
        answers={problem.id: problem.answer for problem in problems},
        meta={problem.id: {"level": problem.level} for problem in problems},
    )


def read_jsonl(path: str | pathlib.Path, count: int | None = None) -> QuestionSet:
    """Questions from a JSONL file with the columns id, question and answer; others become meta.

    Args:
        path: of the file.
        count: use the first so many; all by default.

    Raises:
        BadInputError: no such file, a row that breaks a rule (named by line), or no row.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise BadInputError(f"question file {str(path)!r} does not exist: check the path")
    questions: list[Question] = []
    answers: dict[str, str] = {}
    meta: dict[str, dict[str, Any]] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if count is not None and len(questions) == count:
                break
            where = f"{path}:{number}"
            row = _parse_row(line, where)
            identity = str(row["id"])
            if identity in answers:
                raise BadInputError(f"{where}: id {identity!r} occurs twice: ids must be unique")
            questions.append(Question(identity, row["question"]))
            answers[identity] = str(row["answer"])
            meta[identity] = {
                name: value
                for name, value in row.items()
                if name not in _COLUMNS and _is_short(value)
            }
    if not questions:
        raise BadInputError(
            f"question file {str(path)!r} has no rows: give one JSON object per line with "
            f"{', '.join(_COLUMNS)}"
        )
    return QuestionSet(path.name, tuple(questions), answers, meta)


def _parse_row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{where}: not a JSON object ({reason}): fix or drop it") from error
    if not isinstance(row, dict):
        raise BadInputError(f"{where}: a row must be a JSON object, got {type(row).__name__}")
    for name in _COLUMNS:
        if name not in row:
            raise BadInputError(
                f"{where}: column {name!r} is missing: a row needs {', '.join(_COLUMNS)}"
            )
    if not isinstance(row["question"], str) or not row["question"].strip():
        raise BadInputError(f"{where}: 'question' must be a text that is not blank")
    for name in ("id", "answer"):
        value = row[name]
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise BadInputError(f"{where}: {name!r} must be a text or a number, not empty")
    return row


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_META_CHARS
    return value is None or isinstance(value, bool | int | float)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
