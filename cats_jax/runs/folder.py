"""The run folder: one versioned schema, one writer, one reader.

    manifest.json     what was run: configuration, models, questions, versions, seeds
    results.jsonl     one row per question x strategy x N x PRM x seed, append-only
    trees.jsonl.gz    the search trees, one gzip member per row, append-only
    summary.json      aggregated figures, rewritten at the end
    *.png             plots

A question's tree is on disk before its row, and the row says where the tree lies. A process that is
killed leaves at most one incomplete end per file and some trees without rows. The reader skips
them, and the writer removes them when the run is continued.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import os
import pathlib
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from ..errors import BadInputError
from ..live.ledger import Ledger
from ..live.results import SearchResult, Status
from ..storage import durable
from ..storage.manifest import MANIFEST, SCHEMA, begin_folder, with_current_names
from ..storage.reading import (
    bounded_lines,
    inflated_lines,
    parse_json,
    read_json,
    reading,
    reason,
)
from ..storage.rules import (
    AMOUNT,
    COUNT,
    INTEGER,
    MAPPING,
    NUMBER,
    TEXT,
    TRUTH,
    Rule,
    check_entries,
    list_of,
    mapping_with,
    one_of,
    optional,
)
from .stored_trees import json_line, tree_from_lines, tree_to_lines

RESULTS = "results.jsonl"
TREES = "trees.jsonl.gz"
SUMMARY = "summary.json"

_LEDGER_FIELDS = tuple(field.name for field in dataclasses.fields(Ledger))
_MAX_MEMBER = 1 << 26  # bytes of a compressed tree

_ROW = {
    **dict.fromkeys(("key", "question", "strategy", "gold", "reason", "dataset"), TEXT),
    **dict.fromkeys(("prm", "answer"), optional(TEXT)),
    "status": one_of(*get_args(Status)),
    "num_candidates": COUNT,
    "seed": INTEGER,
    "steps": COUNT,
    "tolerance": optional(NUMBER),
    "meta": MAPPING,
    "correct": TRUTH,
    "covered": TRUTH,
    # The time that is left over is a difference, which may be a little below 0.
    **{name: NUMBER if name.endswith("seconds") else AMOUNT for name in _LEDGER_FIELDS},
    "actions": list_of(
        Rule("a list of six numbers", lambda action: _fits(action, (COUNT, COUNT, *[NUMBER] * 4)))
    ),
    "tree": optional(
        Rule(
            "two whole numbers, offset and length",
            lambda tree: _fits(tree, (COUNT, COUNT)) and 0 < tree[1] <= _MAX_MEMBER,
        )
    ),
}

_MANIFEST = {
    "created": TEXT,
    "versions": MAPPING,
    "seeds": list_of(INTEGER),
    "models": MAPPING,
    "questions": MAPPING,
    "config": MAPPING,
}
_CONFIG = {
    "name": TEXT,
    "policy": MAPPING,
    "strategies": list_of(MAPPING),
    "prms": list_of(MAPPING),
    "questions": Rule(
        "a mapping or a list of mappings",
        lambda specs: MAPPING.holds(specs) or list_of(MAPPING).holds(specs),
    ),
}
_LIMITS = {"max_depth": COUNT, "budget": optional(COUNT)}
_DESCRIBED = _CONFIG | {
    "strategies": list_of(mapping_with(name=TEXT, label=TEXT)),
    "prms": list_of(mapping_with(label=TEXT)),
}
_MODELS = {"policy": MAPPING}
_QUESTIONS = {"source": TEXT}

# What a resumed run must share with its beginning; versions and times may differ.
_IDENTITY = ("schema", "config", "models", "questions", "revisions", "until_certified")

_SPENT = ("texts", "spent", "fitted_on", "chosen_on")


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one search of one question.

    Attributes:
        key: key of the row, unique in the run, from `row_key`.
        question: id of the question.
        strategy: label of the strategy.
        num_candidates: N.
        prm: label of the PRM, or None if it was not called.
        seed: run seed.
        meta: what the question file says about the question, such as its level.
        answer: the final answer, or None.
        gold: the answer it was graded against.
        correct: whether the two are the same; a failed question is wrong.
        status: how the search ended, as in `SearchResult`.
        reason: one line on a failure, a limit or an answer that could not be graded; else empty.
        steps: number of reasoning steps completed.
        ledger: cost of the search.
        actions: (num_extra, num_retain, temperature, top_p, top_k, times) of each distinct action,
            where `times` counts the decisions for it.
        tree: offset and length in bytes of the tree's gzip member in the tree file, or None if no
            tree was written.
        dataset: label of the question's data set in a run of several; "" in a run of one.
        tolerance: largest absolute difference to `gold` that counted as none, or None.
        covered: whether some finished path gives the right answer: what a perfect choice among
            them would have reached (pass@N for strategies that keep all N paths).
    """

    key: str
    question: str
    strategy: str
    num_candidates: int
    prm: str | None
    seed: int
    meta: Mapping[str, Any]
    answer: str | None
    gold: str
    correct: bool
    status: Status
    reason: str
    steps: int
    ledger: Ledger
    actions: tuple[tuple[int, int, float, float, int, int], ...] = ()
    tree: tuple[int, int] | None = None
    dataset: str = ""
    tolerance: float | None = None
    covered: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The row as a flat mapping for the results file; the ledger's fields are columns."""
        row = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "ledger"
        }
        return {**row, **self.ledger.as_dict(), "seconds": self.ledger.seconds}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Row:
        """The inverse of `as_dict`.

        Older runs have no `prm_flops` and no `prm_refused`, which default to 0; a path that the PRM
        refused failed its question then.

        Raises:
            ValueError: a value is missing, is of another type, or is out of range.
        """
        row = {"prm_flops": 0.0, "prm_refused": 0, **row}
        check_entries(row, _ROW)
        names = {field.name for field in dataclasses.fields(cls)} - {"ledger", "actions", "tree"}
        return cls(
            **{name: row[name] for name in names},
            ledger=Ledger(**{name: row[name] for name in _LEDGER_FIELDS}),
            actions=tuple(tuple(action) for action in row["actions"]),
            tree=None if row["tree"] is None else tuple(row["tree"]),
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _fits(value: Any, rules: Sequence[Rule]) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == len(rules)
        and all(rule.holds(item) for rule, item in zip(rules, value, strict=True))
    )


def row_key(strategy: str, num_candidates: int, prm: str | None, seed: int, question: str) -> str:
    """Key of a row by its strategy's and PRM's labels, N, run seed and question id."""
    return f"{strategy}|{num_candidates}|{prm or '-'}|{seed}|{question}"


@dataclass(frozen=True)
class Run:
    """A run folder as read.

    Attributes:
        folder: path of the run folder.
        manifest: content of manifest.json.
        rows: complete result rows by cell, as the recipe has them, and by question. Searches end in
            another order with every number of workers; tables and their resampling are the same.
        tree_folders: run folders of the rows whose trees are not in `folder`, by the rows' keys; a
            run that was merged of several has such rows.
    """

    folder: pathlib.Path
    manifest: Mapping[str, Any]
    rows: tuple[Row, ...]
    tree_folders: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the run should know, one line each; older runs have none."""
        notes = self.manifest.get("notes")
        return tuple(filter(_is_text, notes)) if isinstance(notes, list) else ()

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
            return tree_from_lines(
                row.key,
                map(parse_json, inflated_lines(member)),
                answer=row.answer,
                status=row.status,
                reason=row.reason,
                steps=row.steps,
                ledger=row.ledger,
            )


def read_run(folder: str | pathlib.Path) -> Run:
    """Read a run folder, whether finished, interrupted or in use; nothing in it is changed.

    Raises:
        BadInputError: not a run folder, another schema, or a damaged row (named by line).
    """
    folder = pathlib.Path(folder)
    manifest = _read_manifest(folder)
    if manifest is None:
        raise BadInputError(f"{str(folder)!r} is no run folder: it has no {MANIFEST}")
    _check_manifest(folder, manifest)
    rows = [row for row, _ in _complete_rows(folder)]
    return Run(folder, manifest, tuple(_in_order(rows, manifest["config"])))


def _in_order(rows: Sequence[Row], config: object) -> list[Row]:
    """The rows by cell and question; labels that the recipe lacks come last, as written."""
    prms = _places([None, *_labels(config, "prms"), *(row.prm for row in rows)])
    strategies = _places([*_labels(config, "strategies"), *(row.strategy for row in rows)])
    datasets = _places([*_labels(config, "questions"), *(row.dataset for row in rows)])

    def place(row: Row) -> tuple[int, int, int, int, int, str]:
        cell = prms[row.prm], strategies[row.strategy], row.num_candidates, row.seed
        return *cell, datasets[row.dataset], row.question

    return sorted(rows, key=place)


def check_described(run: Run) -> None:
    """Raise BadInputError unless the manifest has all that tables and merging read."""
    config, models = run.manifest["config"], run.manifest["models"]
    with _reading_manifest(run.folder):
        check_entries(config, _DESCRIBED, "config.")
        check_entries(models, _MODELS, "models.")
        check_entries(run.manifest["questions"], _QUESTIONS, "questions.")


def _check_manifest(folder: pathlib.Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadInputError if an entry that readers know is of another type; some may be missing."""
    with _reading_manifest(folder):
        check_entries(manifest, _MANIFEST)
        # Runs made before a method's rule was another have no entry for it.
        check_entries({"revisions": manifest.get("revisions")}, {"revisions": optional(MAPPING)})
        for name, rules in {
            "config": _CONFIG | _LIMITS,
            "models": _MODELS,
            "questions": _QUESTIONS,
        }.items():
            known = {entry: rule for entry, rule in rules.items() if entry in manifest[name]}
            check_entries(manifest[name], known, f"{name}.")


@contextlib.contextmanager
def _reading_manifest(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise BadInputError(
            f"{str(folder)!r} is no run folder: its {MANIFEST} is that of something else, or "
            f"damaged ({reason(error)}): copy it anew"
        ) from error


def _places(labels: Iterable[str | None]) -> dict[str | None, int]:
    return {label: place for place, label in enumerate(dict.fromkeys(labels))}


def _labels(config: object, kind: str) -> list[str]:
    """The labels of a kind in a manifest, which may be damaged: what is none is left out."""
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
            old = _read_manifest(self.folder)
            kept = _complete_rows(self.folder)
            # Runs of earlier versions do not have it, and go on.
            names = (*_IDENTITY, "asked") if old and "asked" in old else _IDENTITY
            begin_folder(self.folder, "run folder", old, manifest, names, filled=len(kept) > 0)
            if old and kept:
                _spend(self.folder, old, manifest)
            self.keys = self._repair(kept)
            self._appender = _Appender(self.folder)
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
        """Queue a row for writing, and the tree of `result` before it if one is given.

        A thread of its own writes the queue; `close` waits for it.

        Raises:
            ValueError: the folder has a row with this key already.
            RunStoppedError: an earlier row could not be written.
        """
        if row.key in self.keys:
            raise ValueError(f"row {row.key!r} is already in {str(self.folder)!r}")
        self._appender.add(row, None if result is None else tree_to_lines(row.key, result))
        self.keys.add(row.key)

    @property
    def seconds(self) -> float:
        """Seconds that the writing thread spent compressing and writing."""
        return self._appender.seconds

    def close(self) -> None:
        """Wait until everything is on the disk, and release the folder's lock.

        Raises:
            RunStoppedError: something could not be written.
        """
        try:
            self._appender.close()
        finally:
            self._lock.close()

    def _repair(self, kept: Sequence[tuple[Row, bytes]]) -> set[str]:
        """Remove all but the complete rows and their trees; returns the keys of these rows."""
        results, trees = self.folder / RESULTS, self.folder / TREES
        lines = b"".join(line for _, line in kept)
        if results.exists() and results.read_bytes() != lines:
            durable.replace(results, lines)
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
    for number, line in enumerate(_lines(path), 1):
        if not line.endswith(b"\n"):
            break  # cut off by a kill
        try:
            row = Row.from_dict(parse_json(line))
        # RecursionError: a line of brackets.
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInputError(
                f"{path}:{number}: a damaged result row ({reason(error)}): delete the line; its "
                "question will be searched again"
            ) from error
        if row.key in keys:
            raise BadInputError(f"{path}:{number}: row {row.key!r:.200} occurs twice: delete one")
        keys.add(row.key)
        if row.tree is None or sum(row.tree) <= tree_bytes:
            rows.append((row, line))
    return rows


def _lines(path: pathlib.Path) -> Iterator[bytes]:
    with reading(repr(str(path))):
        yield from bounded_lines(path)


def _read_manifest(folder: pathlib.Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = with_current_names(read_json(path))
        schema, _ = manifest["schema"], manifest["config"]["name"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInputError(
            f"{str(path)!r} is no manifest of a run ({reason(error)}): copy it anew"
        ) from error
    if schema != SCHEMA:
        raise BadInputError(
            f"{str(path)!r} has schema {schema!r:.80}, this version reads {SCHEMA}: use the "
            "version of cats-jax that wrote it"
        )
    return manifest


def _spend(folder: pathlib.Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Write what a continued run now says of spent questions, which its beginning may not know.

    Questions and settings agree, so that it holds for the rows that are there, too.
    """
    known = {name: new[name] for name in _SPENT if name in new}
    for name in ("fitted_on", "chosen_on"):  # numbers of questions
        known |= {name: max(known[name], old.get(name) or 0)} if name in known else {}
    if "spent" in known:
        before = old.get("spent") or {}
        digests = known["spent"].items()
        known["spent"] = {key: sorted({*all_, *before.get(key, ())}) for key, all_ in digests}
    if any(old.get(name) != value for name, value in known.items()):
        durable.replace_json(folder / MANIFEST, {**old, **known})


class _Appender:
    """A thread that compresses and writes, so that searches do not wait for the disk.

    All queued entries are written together: first the trees, then, once those are on the disk, the
    rows that point at them.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.seconds = 0.0
        self._folder = folder
        self._queue: queue.SimpleQueue[tuple[Row, bytes | None] | None] = queue.SimpleQueue()
        self._results = durable.open_to_append(folder / RESULTS)
        self._trees = durable.open_to_append(folder / TREES)
        durable.sync_folder(folder)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="run folder", daemon=True)
        self._thread.start()

    def add(self, row: Row, tree: bytes | None) -> None:
        self._check()
        self._queue.put((row, tree))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        os.close(self._results)
        os.close(self._trees)
        self._check()

    def _check(self) -> None:
        if isinstance(self._error, OSError):
            raise durable.stopped(self._folder, self._error)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        ended = False
        while not ended:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            started = time.perf_counter()
            ended = None in waiting
            try:
                self._write([entry for entry in waiting if entry is not None])
            except Exception as error:  # such as a full disk: `add` or `close` tells
                self._error = error
                return
            self.seconds += time.perf_counter() - started

    def _write(self, entries: list[tuple[Row, bytes | None]]) -> None:
        start = os.fstat(self._trees).st_size
        trees, lines = bytearray(), bytearray()
        for row, tree in entries:
            place = None
            if tree is not None:
                member = gzip.compress(tree, compresslevel=2, mtime=0)
                place = (start + len(trees), len(member))
                trees += member
            lines += json_line(dataclasses.replace(row, tree=place).as_dict())
        durable.append(self._trees, trees)
        durable.append(self._results, lines)
