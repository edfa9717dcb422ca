"""The kept rows of the study's runs, without texts, trees and times, from which tables are made."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cats_jax.live.ledger import Ledger
from cats_jax.reporting.frontier.difficulty import PILOT, mean_path_score
from cats_jax.reporting.groups import Group
from cats_jax.runs.folder import Row, read_run, row_key

_KEY = ("strategy", "num_candidates", "prm", "seed", "question")
_OUTCOME = ("correct", "covered")
_COSTS = ("candidates", "generated", "prompt_computed", "prm_computed", "flops")
_SCORE = "path_score"
_SCHEMA = pa.schema(
    {
        "strategy": pa.string(),
        "num_candidates": pa.int64(),
        "prm": pa.string(),
        "seed": pa.int64(),
        "question": pa.string(),
        **dict.fromkeys(_OUTCOME, pa.bool_()),
        **dict.fromkeys(_COSTS, pa.int64()),
        "flops": pa.float64(),
        "level": pa.int64(),
        "actions": pa.string(),
        _SCORE: pa.float64(),
    }
)
_NO_ACTIONS = "[]"


def keep_run(folder: pathlib.Path, rows: pathlib.Path) -> pathlib.Path:
    """Write the rows of a run folder as one file of the same name into `rows`; returns its path.

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


class KeptRows(Sequence[Row]):
    """Kept rows of one group as columns: a `Row` is made only where one is needed."""

    def __init__(self, columns: pa.Table):
        """Takes the columns of `keep_run`, at least one row."""
        self._columns = columns
        self._means: dict[str, dict[str, float]] = {}

    def __len__(self) -> int:
        return self._columns.num_rows

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[Row]:
        return map(_row, self._columns.to_pylist())

    @property
    def have_actions(self) -> bool:
        """Whether some row has an action."""
        return self._columns["actions"].unique().to_pylist() != [_NO_ACTIONS]

    def mean_over_seeds(self, value: str) -> dict[str, float]:
        """Mean over seeds of a column, by question id in order of first appearance."""
        if value not in self._means:
            questions = self._columns["question"].combine_chunks().dictionary_encode()
            numbers = questions.indices.to_numpy()
            totals = np.bincount(numbers, weights=self._values(value))
            means = (totals / np.bincount(numbers)).tolist()
            self._means[value] = dict(zip(questions.dictionary.to_pylist(), means, strict=True))
        return self._means[value]

    def _values(self, value: str) -> np.ndarray:
        if value == "tokens":
            return self._values("generated") + self._values("prm_computed")
        return np.asarray(self._columns[value].to_numpy(), float)


@dataclass(frozen=True)
class KeptGroup(Group):
    """A group of kept rows, with the figures of a `Group` of the same rows."""

    rows: KeptRows

    @property
    def takes_actions(self) -> bool:
        """Whether its searches took actions; fixed strategies take none."""
        return self.rows.have_actions

    def by_question(self, value: str = "correct") -> dict[str, float]:
        """Mean over seeds of a column, by question id."""
        return self.rows.mean_over_seeds(value)


def load_groups(rows: pathlib.Path, policy: str, parts: Sequence[str]) -> list[KeptGroup]:
    """Groups of the kept runs `POLICY-PART`; parts without a kept run are skipped.

    They are in order of first appearance of their strategy and PRM, and then of N.
    """
    paths = [rows / f"{policy}-{part}.parquet" for part in parts]
    tables = [_read(path) for path in paths if path.is_file()]
    if not tables:
        return []
    # Greedy decoding is in every run, and the same in each.
    table = _without_repetitions(pa.concat_tables(tables))
    settings = _codes(table, ("strategy", "prm", "num_candidates"))
    _, first, counts = np.unique(settings, return_index=True, return_counts=True)
    starts = np.cumsum(counts) - counts
    # Slices of one sorted table: taking each group's rows by themselves takes far longer.
    table = table.combine_chunks().take(np.argsort(settings, kind="stable"))
    found = []
    for setting in np.argsort(first):
        part = table.slice(int(starts[setting]), int(counts[setting]))
        strategy, size, prm = (part[name][0].as_py() for name in _KEY[:3])
        found.append(KeptGroup(strategy, size, prm, KeptRows(part)))
    order = list(dict.fromkeys((group.strategy, group.prm) for group in found))
    place = {pair: number for number, pair in enumerate(order)}
    return sorted(found, key=lambda g: (place[g.strategy, g.prm], g.num_candidates))


def load_scores(rows: pathlib.Path, policy: str, part: str) -> dict[str, float]:
    """Mean path score of the finished paths of the pilot's rows, by key; see `difficulty`."""
    path = rows / f"{policy}-{part}.parquet"
    if not path.is_file():
        return {}
    table = _read(path)
    scored = table.filter(table[_SCORE].is_valid())
    return {
        row_key(**{name: values[name] for name in _KEY}): values[_SCORE]
        for values in scored.select([*_KEY, _SCORE]).to_pylist()
    }


def _read(path: pathlib.Path) -> pa.Table:
    """The columns of a kept run in the types of `_SCHEMA`."""
    table = pq.read_table(path)
    columns = {name: table[name] for name in table.column_names}
    # Runs that were kept earlier have no FLOPs and no path scores.
    columns = {"flops": pa.repeat(0.0, len(table)), _SCORE: pa.nulls(len(table)), **columns}
    return pa.table({name: columns[name] for name in _SCHEMA.names}).cast(_SCHEMA)


def _without_repetitions(table: pa.Table) -> pa.Table:
    """Each row once: in its first place, with the values of its last."""
    keys = _codes(table, _KEY)
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    if first.size == keys.size:
        return table
    last = np.zeros(first.size, int)
    last[numbers] = np.arange(keys.size)
    return table.take(last[np.argsort(first)])


def _codes(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """A number for each row, the same where the columns are."""
    codes = np.zeros(table.num_rows, int)
    for name in names:
        column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    return codes


def _row(values: dict[str, Any]) -> Row:
    return Row(
        key=row_key(**{name: values[name] for name in _KEY}),
        **{name: values[name] for name in (*_KEY, *_OUTCOME)},
        meta={"level": values["level"]},
        answer=None,
        gold="",
        status="answered",
        reason="",
        steps=0,
        ledger=Ledger(**{name: values[name] for name in _COSTS}),
        actions=_actions(values["actions"]),
    )


@functools.lru_cache(maxsize=1024)  # most rows have no action, and short lists are common
def _actions(text: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(action) for action in json.loads(text))
