"""The run folder: one versioned schema, one writer, one reader.

    manifest.json     what was run: configuration, models, questions, versions, seeds
    results.jsonl     one row per question x strategy x N x PRM x seed, append-only
    trees.jsonl.gz    the search trees, one gzip member per row, append-only
    paths.jsonl       samples and scores that the rows of an unfinished run share
    summary.json      aggregated figures, rewritten at the end
    *.png             plots

A question's tree is on disk before its row, which holds the place of the tree, and so are the paths
that the row shares. A killed process, or a power cut, leaves at most one incomplete end per file
and some trees without rows. The reader skips them, and the writer removes them when the run is
continued.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadInputError
from ..live.results import SearchResult
from ..storage import durable
from ..storage.manifest import MANIFEST, SCHEMA
from ..storage.reading import bounded_lines, inflated_lines, parse_json, reading
from . import run_manifest
from .appender import PATHS, RESULTS, TREES, Appender
from .rows import Row
from .stored_trees import tree_from_lines, tree_to_lines

SUMMARY = "summary.json"


def row_key(strategy: str, num_candidates: int, prm: str | None, seed: int, question: str) -> str:
    """Key of a row by its strategy's and PRM's labels, N, run seed and question id."""
    return f"{strategy}|{num_candidates}|{prm or '-'}|{seed}|{question}"


@dataclass(frozen=True)
class RunFolder:
    """A run folder as read.

    Attributes:
        folder: path of the run folder.
        manifest: content of manifest.json.
        rows: complete result rows, ordered by the recipe's cells and then by question, so that
            tables and their resampling do not depend on the number of workers.
        tree_folders: for the rows of a merged run whose trees are not in `folder`: run folder by
            the row's key.
    """

    folder: pathlib.Path
    manifest: Mapping[str, Any]
    rows: tuple[Row, ...]
    tree_folders: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the run should know, one line each; older runs have none."""
        notes = self.manifest.get("notes")
        known = notes if isinstance(notes, list) else []
        return tuple(note for note in known if isinstance(note, str))

    @property
    def max_depth(self) -> int:
        """Largest number of steps of a path.

        Raises:
            BadInputError: the manifest does not say it.
        """
        with reading(repr(str(self.folder / MANIFEST))):
            return int(self.manifest["config"]["max_depth"])

    def tree(self, row: Row) -> SearchResult:
        """The search result behind a row; its candidates have no token ids, which are not stored.

        Raises:
            BadInputError: the row has no tree, or the file is damaged there.
        """
        folder = self.tree_folders.get(row.key, self.folder)
        if row.tree is None:
            raise BadInputError(f"row {row.key!r:.200} of {str(folder)!r} has no tree")
        offset, length = row.tree
        way_out = f"delete the row in {RESULTS}; its question will be searched again"
        what = f"is damaged at the tree of {row.key!r:.200}"
        with reading(repr(str(folder / TREES)), way_out, what):
            with (folder / TREES).open("rb") as file:
                file.seek(offset)
                member = file.read(length)
            return tree_from_lines(row, map(parse_json, inflated_lines(member)))


def read_run(folder: str | pathlib.Path) -> RunFolder:
    """Read a run folder, whether finished, interrupted or in use; nothing in it is changed.

    Raises:
        BadInputError: not a run folder, another schema, or a damaged row (named by line).
    """
    folder = pathlib.Path(folder)
    manifest = run_manifest.read(folder)
    if manifest is None:
        raise BadInputError(
            f"{str(folder)!r} is no run folder: it has no {MANIFEST}; name a folder that "
            "`cats-jax evaluate` wrote"
        )
    run_manifest.check(folder, manifest)
    rows = [row for row, _ in _complete_rows(folder)]
    return RunFolder(folder, manifest, tuple(_in_order(rows, manifest["config"])))


def _in_order(rows: Sequence[Row], config: object) -> list[Row]:
    """The rows by cell and question; labels that the recipe lacks come last, as written."""
    prms = _places([None, *_labels(config, "prms"), *(row.prm for row in rows)])
    strategies = _places([*_labels(config, "strategies"), *(row.strategy for row in rows)])
    datasets = _places([*_labels(config, "questions"), *(row.dataset for row in rows)])

    def place(row: Row) -> tuple[int, int, int, int, int, str]:
        cell = prms[row.prm], strategies[row.strategy], row.num_candidates, row.seed
        return *cell, datasets[row.dataset], row.question

    return sorted(rows, key=place)


def _places(labels: Iterable[str | None]) -> dict[str | None, int]:
    return {label: place for place, label in enumerate(dict.fromkeys(labels))}


def _labels(config: object, kind: str) -> list[str]:
    """The labels of a kind in a manifest; damaged entries are left out."""
    specs = config.get(kind) if isinstance(config, dict) else None
    specs = specs if isinstance(specs, list) else []
    labels = [spec.get("label") for spec in specs if isinstance(spec, dict)]
    return [label for label in labels if isinstance(label, str)]


def write_summary(folder: str | pathlib.Path, summary: Mapping[str, Any]) -> None:
    """Write summary.json to a run folder, replacing an old one."""
    durable.replace_json(pathlib.Path(folder) / SUMMARY, {"schema": SCHEMA, **summary})


class RunWriter:
    """Appends rows and trees to a run folder, which it creates or continues.

    Args:
        folder: path of the run folder.
        manifest: manifest of the run, from `manifest.make_manifest`.

    Attributes:
        keys: keys of the rows in the folder, which need not be searched again.

    Raises:
        BadInputError: the folder is another run's, is not a run folder, or is in use.
    """

    def __init__(self, folder: str | pathlib.Path, manifest: Mapping[str, Any]) -> None:
        self.folder = pathlib.Path(folder)
        self._lock = durable.hold(self.folder)
        try:
            old = run_manifest.read(self.folder)
            kept = _complete_rows(self.folder)
            run_manifest.begin(self.folder, old, manifest, filled=len(kept) > 0)
            self.keys = self._repair(kept)
            self._appender = Appender(self.folder, self._lock)
        except OSError as error:
            self._lock.close()
            raise durable.unwritable(self.folder, error) from error
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def add(self, row: Row, result: SearchResult | None) -> None:
        """Queue a row, and the tree of `result` if one is given, for the writing thread.

        Raises:
            ValueError: the folder has a row with this key already.
            RunStoppedError: an earlier row could not be written.
        """
        if row.key in self.keys:
            raise ValueError(f"row {row.key!r} is already in {str(self.folder)!r}")
        self._appender.add(row, None if result is None else tree_to_lines(row.key, result))
        self.keys.add(row.key)

    def complete(self) -> None:
        """Say that all rows are queued; `close` then removes the paths that they share."""
        self._appender.is_complete = True

    @property
    def seconds(self) -> float:
        """Seconds that the writing thread spent compressing and writing."""
        return self._appender.seconds

    def close(self) -> None:
        """Wait until everything is on the disk, and release the folder's lock.

        Raises:
            RunStoppedError: something could not be written.
        """
        self._appender.close()

    def _repair(self, kept: Sequence[tuple[Row, bytes]]) -> set[str]:
        """Remove incomplete rows and what belongs to no row; returns the keys of the others."""
        results, trees = self.folder / RESULTS, self.folder / TREES
        lines = b"".join(line for _, line in kept)
        if results.exists() and results.read_bytes() != lines:
            durable.replace(results, lines)
        if not kept:  # the folder may have been another run's
            (self.folder / PATHS).unlink(missing_ok=True)
        if trees.exists():
            end = max((sum(row.tree) for row, _ in kept if row.tree is not None), default=0)
            durable.truncate(trees, end)
        return {row.key for row, _ in kept}


def _complete_rows(folder: pathlib.Path) -> list[tuple[Row, bytes]]:
    """(row, line) of each row whose line and tree are complete."""
    path, trees = folder / RESULTS, folder / TREES
    if not path.exists():
        return []
    tree_bytes = trees.stat().st_size if trees.exists() else 0
    rows: list[tuple[Row, bytes]] = []
    keys: set[str] = set()
    way_out = "delete the line; its question will be searched again"
    with reading(repr(str(path))):
        for number, line in enumerate(bounded_lines(path), 1):
            if not line.endswith(b"\n"):
                break  # cut off when the process was killed
            where = f"{path}:{number}:"
            with reading(where, way_out, "a damaged result row"):
                row = Row.from_dict(parse_json(line))
            if row.key in keys:
                raise BadInputError(f"{where} row {row.key!r:.200} occurs twice: delete one")
            keys.add(row.key)
            if row.tree is None or sum(row.tree) <= tree_bytes:
                rows.append((row, line))
    return rows
