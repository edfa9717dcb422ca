"""Scores of a PRM for labelled steps, and the rows that keep them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from ..errors import BadInputError
from ..storage.durable import whole_text
from ..storage.tables import numbered_rows
from .labelled import LabelledData
from .score_rows import CountingScorer, score_file


class RescoredSteps(NamedTuple):
    """Labelled steps with the scores of one more PRM.

    Rows that could not be scored are left out; `errors` has row and reason of each such path.
    """

    labelled: LabelledData
    errors: tuple[str, ...]


def add_scores(
    labelled: LabelledData,
    scorer: CountingScorer,
    name: str,
    *,
    held_tokens: int = 1 << 15,
    on_paths: Callable[[int], None] = lambda paths: None,
) -> RescoredSteps:
    """Score every path up to its last labelled step.

    If a path of a row can't be scored (a blank step, more tokens than the model has positions), the
    row is left out, so that all PRMs are compared on the same steps.

    Args:
        labelled: labelled steps from `read_labelled`.
        scorer, name: the PRM, and its name, which is not among `labelled.prms`.
        held_tokens: most tokens of the paths that are scored together.
        on_paths: called with the number of paths done so far.

    Raises:
        BadInputError: no row could be scored.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "paths.jsonl"), pathlib.Path(folder, "scored.jsonl")
        with whole_text(source) as lines:
            for path in labelled.paths:
                lines.write(json.dumps({"question": path.question, "steps": path.steps}) + "\n")
        score_file(source, target, scorer, held_tokens=held_tokens, on_rows=on_paths)
        rows = [row for _, row in numbered_rows(target)]
    pairs = list(zip(labelled.paths, rows, strict=True))
    errors = tuple(f"{path.row}: {row['error']}" for path, row in pairs if "error" in row)
    # Rows of other questions may have the same value of "row".
    failed = {(path.question, path.row) for path, row in pairs if "error" in row}
    paths = tuple(
        dataclasses.replace(path, scores={**path.scores, name: tuple(row["scores"])})
        for path, row in pairs
        if (path.question, path.row) not in failed
    )
    if not paths:
        raise BadInputError(
            f"PRM {name!r} can score none of {len(labelled.paths)} paths: {errors[0]}"
        )
    return RescoredSteps(
        dataclasses.replace(labelled, paths=paths, prms=(*labelled.prms, name)), errors
    )


def write_labelled(path: pathlib.Path, labelled: LabelledData, *, by: str | None = None) -> None:
    """Write plain rows for `read_labelled`, which end at the last labelled step.

    The file is replaced as a whole or not at all; `by` is the column for each path's group.

    Raises:
        BadInputError: it can't be written.
    """
    with whole_text(path) as lines:
        for each in labelled.paths:
            row = {
                "row": each.row,
                "question": each.question,
                "steps": each.steps,
                "labels": each.labels,
                "scores": dict(each.scores),
            }
            lines.write(json.dumps(row | ({} if by is None else {by: each.group})) + "\n")
