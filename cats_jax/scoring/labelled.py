"""Reasoning steps that are labelled right or wrong, read from JSONL files.

Three layouts are recognized by their keys: plain rows, rows of PRM800K (Lightman et al. 2023,
github.com/openai/prm800k) and rows of ProcessBench (Zheng et al. 2024, arXiv:2412.06559).
"""

from __future__ import annotations

import codecs
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import BadInputError
from ..storage.reading import parse_json, read_text, reading
from ..storage.tables import numbered_rows

Neutral = Literal["right", "wrong", "out"]
"""The label that stands for PRM800K's rating 0; "out" means no label."""

UNNAMED = "scores"
"""Name of the PRM whose scores are a plain list in the rows."""

ALL = "all"
"""The group of every path if no column is named."""

_NEUTRAL: Mapping[Neutral, int | None] = {"right": 1, "wrong": 0, "out": None}


@dataclass(frozen=True, slots=True)
class LabelledSteps:
    """A path of steps; some are labelled, and the last one always is.

    Attributes:
        row: value of its row's "row", or else the row's place, such as FILE:LINE; paths with the
            same one and the same question belong to one solution.
        question: text of the question.
        steps: texts of the steps, at least one.
        labels: label of each step: 1 right, 0 wrong, None not labelled.
        scores: scores in [0, 1], one for each step, by name of the PRM.
        group: value of the column by which rows are grouped, as text.
    """

    row: str
    question: str
    steps: tuple[str, ...]
    labels: tuple[int | None, ...]
    scores: Mapping[str, tuple[float, ...]]
    group: str


@dataclass(frozen=True)
class LabelledData:
    """The contents of files of labelled steps.

    Attributes:
        paths: paths, in the order of the rows.
        num_rows: number of rows read.
        num_unlabelled: number of these rows without a labelled step; they have no path.
        prms: names of the PRMs whose scores every path has, in the order of the first row.
    """

    paths: tuple[LabelledSteps, ...]
    num_rows: int
    num_unlabelled: int
    prms: tuple[str, ...]

    def by_group(self) -> dict[str, list[LabelledSteps]]:
        """The paths of each group."""
        groups: dict[str, list[LabelledSteps]] = {}
        for path in self.paths:
            groups.setdefault(path.group, []).append(path)
        return groups


def labelled_scores(paths: Sequence[LabelledSteps], prm: str) -> np.ndarray:
    """A PRM's scores of the labelled steps of the paths, f64[n]."""
    return np.array(
        [
            score
            for path in paths
            for score, label in zip(path.scores[prm], path.labels, strict=True)
            if label is not None
        ]
    )


def read_labelled(
    files: Sequence[str | pathlib.Path], *, neutral: Neutral = "right", by: str | None = None
) -> LabelledData:
    """The labelled steps of files, each row checked.

    * plain rows: `{"question", "steps", "labels"}`, with `"scores"` or without. Labels are 1
      (right), 0 (wrong) or null, and may be fewer than the steps. Scores are a list as long as
      the steps, or a mapping from names of PRMs to such lists. Rows with the same value of
      `"row"`, if there is one, belong to one solution.
    * ProcessBench: `{"problem", "steps", "label"}`, with `"scores"` as above or without. The label
      is the index of the first wrong step, or -1 if all steps are right. Steps before the first
      wrong one are right, and steps after it are not labelled.
    * PRM800K: `{"question": {"problem"}, "label": {"steps": [...]}}`. Rating 1 is right and -1 is
      wrong; a step with null, or with a rating that the labeller flagged, has no label, and so does
      a completion that the labeller wrote. The chosen completions are one path. Each other
      completion ends a path of its own, whose earlier steps have labels only in the path of the
      chosen completions, so that they count once.

    Steps after a path's last labelled step are left out, and so are rows without a labelled step.

    Args:
        files: one JSON object a line, or a JSON array of them.
        neutral: label that PRM800K's rating 0 stands for.
        by: column whose values are the groups.

    Raises:
        BadInputError: a file does not exist, a row breaks its layout, rows have scores of different
            PRMs, or no step is labelled.
    """
    paths: list[LabelledSteps] = []
    num_rows = num_unlabelled = 0
    prms: tuple[str, ...] = ()
    for file in files:
        for where, row in _rows(pathlib.Path(file)):
            found, names = _paths(where, row, neutral, by)
            if num_rows == 0:
                prms = names
            elif sorted(names) != sorted(prms):
                raise BadInputError(
                    f"{where}: has scores of {_listed(names)}, the first row of {_listed(prms)}: "
                    "every row needs the scores of the same PRMs"
                )
            num_rows += 1
            num_unlabelled += not found
            paths += found
    named = ", ".join(repr(str(file)) for file in files)
    if not num_rows:
        raise BadInputError(f"{named}: no rows: give a file of labelled steps")
    if not paths:
        raise BadInputError(f"{named}: no step of {num_rows} rows is labelled: give labelled ones")
    return LabelledData(tuple(paths), num_rows, num_unlabelled, prms)


def _rows(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each JSON object, one a line or in one array."""
    if not path.is_file():
        raise BadInputError(f"input {str(path)!r} does not exist: check the path")
    with reading(repr(str(path))), path.open("rb") as file:
        is_array = file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
    if not is_array:
        yield from numbered_rows(path)
        return
    with reading(repr(str(path)), "fix it", "is no JSON array"):
        rows = parse_json(read_text(path), any_integer=True)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise BadInputError(f"{path}, row {number}: a row must be a JSON object")
        yield f"{path}, row {number}", row


def _paths(
    where: str, row: dict[str, Any], neutral: Neutral, by: str | None
) -> tuple[list[LabelledSteps], tuple[str, ...]]:
    """The paths of a row, and the names of the PRMs in its scores."""
    group = ALL if by is None else _group(where, row, by)
    if isinstance(row.get("question"), dict):
        if "scores" in row:
            raise BadInputError(
                f'{where}: "scores" has no place in PRM800K\'s layout: score the steps by --prms, '
                "or give plain rows"
            )
        question, pairs = _prm800k(where, row, neutral)
        paths = [
            LabelledSteps(where, question, tuple(steps), tuple(labels), {}, group)
            for steps, labels in pairs
        ]
        return paths, ()
    if "problem" in row and "labels" not in row:
        question, steps = _text(where, "problem", row["problem"]), _steps(where, row)
        labels: Sequence[int | None] = _processbench(where, row, len(steps))
    else:
        if "question" not in row or "labels" not in row:
            raise BadInputError(
                f"{where}: has the keys {', '.join(row) or 'none'}: a row is "
                '{"question", "steps", "labels"}, one of ProcessBench {"problem", "steps", '
                '"label"}, one of PRM800K {"question": {"problem"}, "label": {"steps"}}'
            )
        question, steps = _text(where, "question", row["question"]), _steps(where, row)
        labels = _labels(where, row["labels"], len(steps))
    scores = _scores(where, row, len(steps))
    length = max((i + 1 for i, label in enumerate(labels) if label is not None), default=0)
    if not length:
        return [], tuple(scores)
    path = LabelledSteps(
        row=where if row.get("row") is None else str(row["row"]),
        question=question,
        steps=tuple(steps[:length]),
        labels=tuple(labels[:length]),
        scores={name: values[:length] for name, values in scores.items()},
        group=group,
    )
    return [path], tuple(scores)


def _group(where: str, row: dict[str, Any], by: str) -> str:
    value = row.get(by)
    if by not in row or isinstance(value, dict | list):
        reason = "is no single value" if by in row else "is missing"
        raise BadInputError(
            f"{where}: column {by!r}, by which rows are to be grouped, {reason}: the columns are "
            f"{', '.join(row) or 'none'}"
        )
    return str(value)


def _text(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInputError(f"{where}: {name} must be a text, got {type(value).__name__}")
    return value


def _steps(where: str, row: dict[str, Any]) -> list[str]:
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps:
        raise BadInputError(f"{where}: steps must be a list of texts, one or more")
    return [_text(where, f"steps[{index}]", step) for index, step in enumerate(steps)]


def _labels(where: str, labels: Any, num_steps: int) -> list[int | None]:
    if not isinstance(labels, list):
        raise BadInputError(f"{where}: labels must be a list of 0, 1 and null")
    if len(labels) > num_steps:
        raise BadInputError(
            f"{where}: {len(labels)} labels for {num_steps} steps: a label belongs to the step in "
            "its place, so that there may be fewer, not more"
        )
    for index, label in enumerate(labels):
        if label is not None and not (isinstance(label, bool | int | float) and label in (0, 1)):
            raise BadInputError(
                f"{where}: labels[{index}]={label!r}: must be 1 (right), 0 (wrong) or null (not "
                "labelled); ratings of -1, 0 and 1 belong in PRM800K's layout"
            )
    return [None if label is None else int(label) for label in labels]


def _processbench(where: str, row: dict[str, Any], num_steps: int) -> list[int]:
    label = row.get("label")
    if isinstance(label, bool) or not isinstance(label, int) or not -1 <= label < num_steps:
        raise BadInputError(
            f"{where}: label={label!r}: must be the index of the first wrong of {num_steps} steps, "
            "from 0, or -1 if all are right"
        )
    return [1] * num_steps if label < 0 else [1] * label + [0]


def _scores(where: str, row: dict[str, Any], num_steps: int) -> dict[str, tuple[float, ...]]:
    """Scores of a row, by name of the PRM."""
    if row.get("scores") is None:
        return {}
    scores = row["scores"] if isinstance(row["scores"], dict) else {UNNAMED: row["scores"]}
    found = {}
    for name, values in scores.items():
        place = "scores" if name == UNNAMED else f"scores of {name!r}"
        if not isinstance(values, list) or len(values) != num_steps:
            got = f"{len(values)}" if isinstance(values, list) else type(values).__name__
            raise BadInputError(
                f"{where}: {place}: {got} for {num_steps} steps: every step needs one score, also "
                "those after the last label"
            )
        for index, value in enumerate(values):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= 1:  # the interval excludes NaN, too
                raise BadInputError(
                    f"{where}: {place}[{index}]={value!r}: must be a number in [0, 1], the "
                    "probability that the step is right"
                )
        found[name] = tuple(float(value) for value in values)
    return found


def _prm800k(
    where: str, row: dict[str, Any], neutral: Neutral
) -> tuple[str, list[tuple[list[str], list[int | None]]]]:
    """The question and (steps, labels) of each path; the path of chosen completions is first."""
    question = _text(where, "question.problem", row["question"].get("problem"))
    label = row.get("label")
    entries = label.get("steps") if isinstance(label, dict) else None
    if not isinstance(entries, list):
        raise BadInputError(f"{where}: label.steps must be a list, as in PRM800K's files")
    steps: list[str] = []
    labels: list[int | None] = []
    others: list[tuple[list[str], list[int | None]]] = []
    for index, entry in enumerate(entries):
        place = f"label.steps[{index}]"
        if not isinstance(entry, dict):
            raise BadInputError(f"{where}: {place} must be an object, as in PRM800K's files")
        completions = entry.get("completions") or []
        if not isinstance(completions, list):
            raise BadInputError(
                f"{where}: {place}.completions must be a list, as in PRM800K's files"
            )
        rated = [
            _completion(where, f"{place}.completions[{i}]", completion, neutral)
            for i, completion in enumerate(completions)
        ]
        chosen = entry.get("chosen_completion")
        if chosen is not None and (type(chosen) is not int or not 0 <= chosen < len(completions)):
            raise BadInputError(
                f"{where}: {place}.chosen_completion={chosen!r}: must be the index of one of "
                f"{len(completions)} completions, or null"
            )
        for i, (text, rating) in enumerate(rated):
            if i != chosen and rating is not None:
                others.append(([*steps, text], [None] * len(steps) + [rating]))
        if chosen is not None:
            following = rated[chosen]
        elif entry.get("human_completion") is not None:
            human = entry["human_completion"]
            # A text in the published description, an object in the files.
            text = human.get("text") if isinstance(human, dict) else human
            following = (_text(where, f"{place}.human_completion", text), None)
        else:
            break  # nothing was chosen: the path ends here
        steps.append(following[0])
        labels.append(following[1])
    while labels and labels[-1] is None:
        steps.pop()
        labels.pop()
    return question, [(steps, labels)] * bool(steps) + others


def _completion(
    where: str, place: str, completion: Any, neutral: Neutral
) -> tuple[str, int | None]:
    """Text and label of a completion."""
    if not isinstance(completion, dict):
        raise BadInputError(f"{where}: {place} must be an object, as in PRM800K's files")
    rating = completion.get("rating")
    if isinstance(rating, bool) or rating not in (-1, 0, 1, None):
        raise BadInputError(
            f"{where}: {place}.rating={rating!r}: must be -1 (wrong), 0 (neutral), 1 (right) or "
            "null (not labelled)"
        )
    text = _text(where, f"{place}.text", completion.get("text"))
    if rating is None or completion.get("flagged"):
        return text, None
    return text, {1: 1, 0: _NEUTRAL[neutral], -1: 0}[int(rating)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(str, names)) or "no PRM"
