"""The kept rows of the study's runs: without texts, trees and times.

With them tables can be made without hours of searching.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cats_jax.live.ledger import Ledger
from cats_jax.reporting.frontier.difficulty import PILOT, mean_path_score
from cats_jax.reporting.groups import Group, groups
from cats_jax.runs.folder import Row, read_run, row_key

_KEY = ("strategy", "num_candidates", "prm", "seed", "question")
_OUTCOME = ("correct", "covered")
_COSTS = ("candidates", "generated", "prompt_computed", "prm_computed", "flops")
_SCORE = "path_score"


def keep_run(folder: pathlib.Path, rows: pathlib.Path) -> pathlib.Path:
    """Write the rows of a run folder as one file of the same name into the folder `rows`.

    Returns:
        Path of the file.

    Raises:
        BadInputError: `folder` is no run folder.
    """
    run = read_run(folder)
    found = run.rows
    columns = {name: [getattr(row, name) for row in found] for name in (*_KEY, *_OUTCOME)}
    columns |= {name: [getattr(row.ledger, name) for row in found] for name in _COSTS}
    columns["level"] = [row.meta.get("level", 0) for row in found]
    columns["actions"] = [json.dumps(row.actions) for row in found]
    # Of the rows that a choice by predicted difficulty may read.
    columns[_SCORE] = [
        mean_path_score(run, row) if row.strategy == PILOT else None for row in found
    ]
    path = rows / f"{folder.name}.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", compression_level=19)
    return path


def load_groups(rows: pathlib.Path, policy: str, parts: Sequence[str]) -> list[Group]:
    """Groups of the kept runs `POLICY-PART`; parts without a kept run are skipped."""
    found: dict[str, Row] = {}
    for part in parts:
        path = rows / f"{policy}-{part}.parquet"
        if path.is_file():
            # Greedy decoding is in every run, and the same in each.
            found |= {row.key: row for row in map(_row, pq.read_table(path).to_pylist())}
    return groups(found.values())


def load_scores(rows: pathlib.Path, policy: str, part: str) -> dict[str, float]:
    """Mean path score of the finished paths of the pilot's rows, by key; see `difficulty`."""
    path = rows / f"{policy}-{part}.parquet"
    if not path.is_file():
        return {}
    table = pq.read_table(path)
    if _SCORE not in table.column_names:
        return {}
    return {
        row_key(**{name: values[name] for name in _KEY}): values[_SCORE]
        for values in table.to_pylist()
        if values[_SCORE] is not None
    }


def _row(values: Mapping[str, Any]) -> Row:
    return Row(
        key=row_key(**{name: values[name] for name in _KEY}),
        **{name: values[name] for name in (*_KEY, *_OUTCOME)},
        meta={"level": values["level"]},
        answer=None,
        gold="",
        status="answered",
        reason="",
        steps=0,
        # Runs that were kept before have no FLOPs.
        ledger=Ledger(**{name: values.get(name) or 0 for name in _COSTS}),
        actions=_actions(values["actions"]),
    )


@functools.lru_cache(maxsize=1024)  # most rows have no action, and short lists are common
def _actions(text: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(action) for action in json.loads(text))
