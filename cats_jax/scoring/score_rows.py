"""Scoring a file of paths: rows of questions and steps in, the same rows with scores out."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from ..errors import BadInputError, ScorerContractError
from ..protocols import Path, Question, Step, StepScorer, facts_of
from ..storage.durable import whole_text
from ..storage.tables import numbered_rows


class CountingScorer(StepScorer, Protocol):
    """A scorer that can check beforehand whether a path can be scored."""

    def count_tokens(self, question: Question, path: Path) -> int:
        """Number of tokens of the path; raises ScorerContractError if the model can't read it."""
        ...


@dataclass
class ScoreTally:
    """Counts of a scored file; `tokens` are those the model computed."""

    rows: int = 0
    errors: int = 0
    tokens: int = 0


@dataclass(slots=True)
class _Task:
    row: dict[str, Any]
    question: Question
    path: Path
    error: str = ""
    scores: list[float] | None = None  # of the steps, or the one of a finished answer


def count_rows(path: str | pathlib.Path) -> int:
    """Check every line of a file before the model is loaded, and count the rows.

    Raises:
        BadInputError: the file has no row or does not exist, or a line is not a JSON object.
    """
    count = sum(1 for _ in numbered_rows(pathlib.Path(path)))
    if not count:
        raise BadInputError(f"{str(path)!r} has no rows")
    return count


def score_file(
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    scorer: CountingScorer,
    *,
    held_tokens: int = 1 << 15,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> ScoreTally:
    """Score rows `{"question", "steps"}`; write the same rows with `scores`, or `error`.

    An outcome model reads the steps as one finished answer, and gives the row one `score`.

    Args:
        source, target: JSONL files; the target is replaced as a whole or not at all.
        scorer: PRM that scores the rows.
        held_tokens: most tokens of the rows that are scored together, whose keys and values the
            model holds.
        on_rows: called with the number of rows done so far.

    Raises:
        BadInputError: the source can't be read, or the target can't be written.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    tally = ScoreTally()
    with whole_text(target) as lines:
        tasks = (_task(row) for _, row in numbered_rows(source))
        for batch in _batches(tasks, scorer, held_tokens):
            tally.tokens += _score([task for task in batch if not task.error], scorer)
            for task in batch:
                answer = _answer(task, whole=facts_of(scorer).finished_only)
                lines.write(json.dumps(answer) + "\n")
                tally.errors += bool(task.error)
            tally.rows += len(batch)
            on_rows(tally.rows)
    return tally


def _task(row: dict[str, Any]) -> _Task:
    """A row's question and steps, if they are texts."""
    question, steps = row.get("question"), row.get("steps")
    if not _is_text(question):
        return _Task(row, Question("", ""), (), "question: must be a text")
    if not isinstance(steps, list) or not steps:
        return _Task(row, Question("", ""), (), "steps: must be a list of texts, one or more")
    for index, step in enumerate(steps):
        if not _is_text(step):
            return _Task(row, Question("", ""), (), f"steps[{index}]: must be a text")
    # Rows with the same question share the prompt and the common beginning of their steps.
    return _Task(row, Question("", question), tuple(Step(step, ()) for step in steps))


def _is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text, without an unpaired surrogate, which no tokenizer can read."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _batches(
    tasks: Iterable[_Task], scorer: CountingScorer, held_tokens: int
) -> Iterator[list[_Task]]:
    """Consecutive tasks of about so many tokens; a task that can't be scored gets its error."""
    batch: list[_Task] = []
    tokens = 0
    for task in tasks:
        if not task.error:
            try:
                tokens += scorer.count_tokens(task.question, task.path)
            except ScorerContractError as error:
                task.error = _reason(error)
        batch.append(task)
        # Rows with errors have no tokens, so the number of rows is limited, too.
        if tokens >= held_tokens or len(batch) >= held_tokens:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def _score(tasks: list[_Task], scorer: CountingScorer) -> int:
    """Scores every step of every task; returns the tokens that went through the model.

    An outcome model scores the last step alone. If a score breaks the contract, only its own row
    gets an error.
    """
    whole = facts_of(scorer).finished_only
    ends = [range(len(task.path) if whole else 1, len(task.path) + 1) for task in tasks]
    asked = [(task, end) for task, places in zip(tasks, ends, strict=True) for end in places]
    questions = [task.question for task, _ in asked]
    prefixes = [task.path[:end] for task, end in asked]
    try:
        scoring = scorer.score(questions, prefixes)
        scores = iter(scoring.all_scores())
    except ScorerContractError as error:
        if len(tasks) == 1:
            tasks[0].error = _reason(error)
            return 0
        return sum(_score([task], scorer) for task in tasks)
    finally:
        for question in set(questions):
            scorer.keep_only(question, [])
    for task, places in zip(tasks, ends, strict=True):
        task.scores = [next(scores) for _ in places]
    return sum(usage.computed for usage in scoring.usage)


def _reason(error: ScorerContractError) -> str:
    """The number of the step, if it is known, and its error, without the question's name."""
    if error.step is None:
        return str(error)
    reason = str(error).partition(f"step {error.step}: ")[2] or str(error)
    return f"steps[{error.step}]: {reason}"


def _answer(task: _Task, *, whole: bool) -> dict[str, Any]:
    written = ("score" if whole else "scores", "error")
    row = {key: value for key, value in task.row.items() if key not in written}
    if task.error:
        return {**row, "error": task.error}
    assert task.scores is not None
    return row | ({"score": task.scores[0]} if whole else {"scores": task.scores})
