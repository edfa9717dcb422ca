"""Loading of the questions that a recipe names."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

from ..errors import BadInputError, known_names
from ..grading.extraction import final_answer
from ..protocols import Question
from ..specs.recipe import QuestionSpec
from ..storage.tables import read_rows
from .hub import chosen_split, hub_rows
from .layout import BadRowError, Gold, Layout, Row, answer_text, column, to_question_set
from .published import PUBLISHED, Published
from .question_set import QuestionSet, joined, selection_notes
from .world import world_questions


def load_questions(specs: Sequence[QuestionSpec]) -> QuestionSet:
    """The questions of all data sets of a recipe, as one set.

    Raises:
        BadInputError: a data set can't be read, or an id occurs in two of them.
    """
    return joined([(spec.label, _load(spec)) for spec in specs])


def count_questions(spec: QuestionSpec) -> tuple[int, tuple[str, ...]]:
    """Number of questions that a spec selects, and the selection's notes; nothing is downloaded.

    Without a copy on this machine, the published number of rows of a data set counts.

    Raises:
        BadInputError: a file can't be read, the data set is unknown, or no question is selected.
    """
    count, notes, _ = survey([spec])
    return count, notes


def survey(specs: Sequence[QuestionSpec]) -> tuple[int, tuple[str, ...], tuple[Question, ...]]:
    """What is known of the questions of a recipe's data sets; nothing is downloaded.

    Returns:
        Number of questions and notes of all data sets, as `count_questions` has them for one, and
        the questions of those that are on this machine.

    Raises:
        BadInputError: as for `count_questions`, or an id occurs in two data sets on this machine.
    """
    here: list[tuple[str, QuestionSet]] = []
    count = 0
    notes: list[str] = []
    for spec in specs:
        if spec.dataset is None or (spec.file is not None and pathlib.Path(spec.file).exists()):
            found = _load(spec)
            here.append((spec.label, found))
            count += len(found.questions)
            notes += found.notes
            continue
        published = find_published(spec.dataset)
        first = next(iter(published.splits))
        rows = published.splits[first if spec.file else chosen_split(published, spec.split)]
        notes += selection_notes(published.path, rows, spec.start, spec.count)
        left = rows - spec.start
        count += left if spec.count is None else min(left, spec.count)
    return count, tuple(notes), joined(here).questions if here else ()


def read_questions(path: str | pathlib.Path, *, layout: str | None = None) -> QuestionSet:
    """Questions from a JSONL or Parquet file.

    Args:
        path: path of the file.
        layout: a key of `PUBLISHED`, whose layout the file has. None for a file with the columns
            `question`, `answer` and optionally `id`.

    Raises:
        BadInputError: there is no such file or layout, a row breaks a rule (named by its place), or
            there is no row.
    """
    return _load(QuestionSpec(file=str(path), dataset=layout))


def _load(spec: QuestionSpec) -> QuestionSet:
    if spec.world is not None:
        assert spec.count is not None
        return world_questions(spec.world, spec.count, seed=spec.seed, levels=spec.levels)
    published = None if spec.dataset is None else find_published(spec.dataset)
    layout = _file_layout(spec) if published is None else published.layout
    if spec.file is not None:
        questions = to_question_set(read_rows(spec.file), layout, spec.file)
    else:
        assert published is not None
        split = chosen_split(published, spec.split)
        source = f"{published.path}, split {split}"
        questions = to_question_set(hub_rows(published, split), layout, source)
        found = questions.fingerprint()
        content = f"{found['sha256']} {found['answers_sha256']}"
        questions = dataclasses.replace(questions, contents={spec.label: content})
    return questions.select(shuffle=spec.shuffle, start=spec.start, count=spec.count)


def find_published(name: str) -> Published:
    """A published data set by its name in recipes, or by its name on the hub.

    Raises:
        BadInputError: the name is unknown; the message has the nearest known name.
    """
    known = {**PUBLISHED, **{one.path: one for one in PUBLISHED.values() if one.on_hub}}
    if name in known:
        return known[name]
    raise BadInputError(f"unknown data set {name!r}: {known_names(name, PUBLISHED)}")


def _file_layout(spec: QuestionSpec) -> Layout:
    """The layout of a user's file, by the names of its columns."""

    def gold(row: Row) -> Gold:
        text = answer_text(column(row, spec.answer_column), spec.answer_column)
        return Gold(final_answer(text) or text)  # the column may hold solutions

    def check(row: Row) -> None:
        # Rows without the usual column of ids get numbers; a name of the user's must be there.
        named = () if spec.id_column == "id" else ("id_column",)
        for option in ("question_column", "answer_column", *named):
            name = getattr(spec, option)
            if name not in row:
                raise BadRowError(
                    f"column {name!r} is missing: {known_names(name, row)}; a recipe names another "
                    f"column by the key {option}"
                )

    return Layout(
        gold, (spec.question_column,), spec.id_column, answer=spec.answer_column, check=check
    )
