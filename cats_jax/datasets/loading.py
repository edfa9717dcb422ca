"""The questions a recipe names."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from ..errors import BadInputError, known_names
from ..specs.recipe import QuestionSpec
from ..storage.tables import read_rows
from .hub import chosen_split, hub_rows
from .layout import Gold, Layout, Row, answer_text, column, to_question_set
from .published import PUBLISHED, Published
from .question_set import QuestionSet, joined
from .world import world_questions


def load_questions(specs: Sequence[QuestionSpec]) -> QuestionSet:
    """The questions of all data sets of a recipe.

    Raises:
        BadInputError: one can't be read, or an id occurs in two of them.
    """
    return joined([(spec.label, _load(spec)) for spec in specs])


def count_questions(spec: QuestionSpec) -> int:
    """How many questions a spec selects, without downloading anything.

    Raises:
        BadInputError: a file can't be read, or the data set is unknown.
    """
    if spec.dataset is None or spec.file is not None:
        return len(_load(spec).questions)
    published = find_published(spec.dataset)
    rows = published.splits[chosen_split(published, spec.split)]
    left = max(0, rows - spec.start)
    return left if spec.count is None else min(left, spec.count)


def read_questions(path: str | pathlib.Path, *, layout: str | None = None) -> QuestionSet:
    """Questions from a JSONL or Parquet file.

    Args:
        path: of the file.
        layout: a name of `PUBLISHED`; None: columns question and answer, perhaps id.

    Raises:
        BadInputError: no such file or layout, a row that breaks a rule (named by line), or no row.
    """
    return _load(QuestionSpec(file=str(path), dataset=layout))


def _load(spec: QuestionSpec) -> QuestionSet:
    if spec.world is not None:
        assert spec.count is not None
        return world_questions(spec.world, spec.count, seed=spec.seed, levels=spec.levels)
    layout = _file_layout(spec) if spec.dataset is None else find_published(spec.dataset).layout
    if spec.file is not None:
        questions = to_question_set(read_rows(spec.file), layout, spec.file)
    else:
        assert spec.dataset is not None
        published = find_published(spec.dataset)
        split = chosen_split(published, spec.split)
        source = f"{published.path}, split {split}"
        questions = to_question_set(hub_rows(published, split), layout, source)
    return questions.select(shuffle=spec.shuffle, start=spec.start, count=spec.count)


def find_published(name: str) -> Published:
    """A published data set by its name in recipes, or by its name on the hub.

    Raises:
        BadInputError: unknown; the message names the nearest.
    """
    known = {**PUBLISHED, **{one.path: one for one in PUBLISHED.values() if one.on_hub}}
    if name in known:
        return known[name]
    raise BadInputError(f"unknown data set {name!r}: {known_names(name, PUBLISHED)}")


def _file_layout(spec: QuestionSpec) -> Layout:
    """Of a user's file, by the names of its columns."""

    def gold(row: Row) -> Gold:
        return Gold(answer_text(column(row, spec.answer_column), spec.answer_column))

    return Layout(gold, (spec.question_column,), spec.id_column)
