"""The run folder: one versioned schema, one writer, one reader.

    manifest.json     what was run: configuration, models, questions, versions, seeds
    results.jsonl     one row per question x strategy x N x PRM x seed, append-only
    trees.jsonl.gz    the search trees, one gzip member per row, append-only
    summary.json      aggregated figures, rewritten at the end
    *.png             plots

A question's tree is on disk before its row, and the row says where the tree lies. So a process
that is killed at any moment leaves at most one cut tail per file and some trees without rows: the
reader passes over them, and the writer drops them when it goes on.
"""

from __future__ import annotations

import dataclasses
import fcntl
import gzip
import importlib.metadata
import json
import math
import operator
import os
import pathlib
import platform
import queue
import subprocess
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .errors import BadInputError, RunStoppedError
from .ledger import Ledger
from .protocols import Question
from .results import Candidate, DecisionRow, SearchPath, SearchResult

SCHEMA = 1
"""Version of everything in the folder; a reader refuses any other."""

MANIFEST = "manifest.json"
RESULTS = "results.jsonl"
TREES = "trees.jsonl.gz"
SUMMARY = "summary.json"
_LOCK = ".lock"

_LEDGER_FIELDS = tuple(field.name for field in dataclasses.fields(Ledger))
# What a resumed run must share with its beginning; versions and times may differ.
_IDENTITY = ("schema", "config", "models", "questions")
_VERSIONED = (
    "cats-jax",
    "jax",
    "flax",
    "numpy",
    "scipy",
    "torch",
    "transformers",
    "math-verify",
    "sympy",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One question searched once.

    Attributes:
        key: unique in the run: strategy, N, PRM, seed and question id.
        question: its id.
        strategy: label of the strategy.
        num_candidates: N.
        prm: label of the PRM, or None if it was not called.
        seed: run seed.
        meta: what the question file says about the question, such as its level.
        answer: the final answer, or None.
        gold: the answer it was graded against.
        correct: whether the two are the same; a failed question is wrong.
        status: of `SearchResult`.
        reason: one line on a failure or a limit.
        steps: reasoning steps completed.
        ledger: what it cost.
        actions: (num_extra, num_retain, temperature, top_p, top_k, times) of its decisions.
        tree: offset and length of its member in the tree file, or None if none was written.
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
    status: str
    reason: str
    steps: int
    ledger: Ledger
    actions: tuple[tuple[int, int, float, float, int, int], ...] = ()
    tree: tuple[int, int] | None = None
    dataset: str = ""
    tolerance: float | None = None
    covered: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Flat, as it stands in the file; the ledger's fields are columns."""
        row = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "ledger"
        }
        return {**row, **self.ledger.as_dict(), "seconds": self.ledger.seconds}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Row:
        """The inverse of `as_dict`; runs of earlier versions lack the PRM's part of the FLOPs."""
        row = {"prm_flops": 0.0, **row}
        names = {field.name for field in dataclasses.fields(cls)} - {"ledger", "actions", "tree"}
        return cls(
            **{name: row[name] for name in names},
            ledger=Ledger(**{name: row[name] for name in _LEDGER_FIELDS}),
            actions=tuple(tuple(action) for action in row["actions"]),
            tree=None if row["tree"] is None else tuple(row["tree"]),
        )


@dataclass(frozen=True)
class Run:
    """A run folder as read.

    Attributes:
        folder: where it is.
        manifest: content of manifest.json.
        rows: complete result rows, in order of writing.
    """

    folder: pathlib.Path
    manifest: Mapping[str, Any]
    rows: tuple[Row, ...]

    def tree(self, row: Row) -> SearchResult:
        """The search behind a row; token ids and the answer's gold are not in the file.

        Raises:
            BadInputError: the row has no tree, or the file is damaged there.
        """
        if row.tree is None:
            raise BadInputError(f"row {row.key!r} of {str(self.folder)!r} has no tree")
        offset, length = row.tree
        with (self.folder / TREES).open("rb") as file:
            file.seek(offset)
            member = file.read(length)
        try:
            lines = [json.loads(line) for line in gzip.decompress(member).splitlines()]
            if lines[0]["key"] != row.key:
                raise ValueError(f"it holds {lines[0]['key']!r}")
        except (OSError, EOFError, ValueError, IndexError, KeyError, zlib.error) as error:
            raise BadInputError(
                f"{str(self.folder / TREES)!r} is damaged at the tree of {row.key!r}: {error}"
            ) from error
        return _tree_from_lines(lines, row)


def read_run(folder: str | pathlib.Path) -> Run:
    """Read a run folder, finished, killed or still growing; nothing in it is changed.

    Raises:
        BadInputError: not a run folder, another schema, or a damaged row (named by line).
    """
    folder = pathlib.Path(folder)
    manifest = _read_manifest(folder)
    if manifest is None:
        raise BadInputError(f"{str(folder)!r} is no run folder: it has no {MANIFEST}")
    return Run(folder, manifest, tuple(row for row, _ in _complete_rows(folder)))


def write_summary(folder: str | pathlib.Path, summary: Mapping[str, Any]) -> None:
    """Replace summary.json."""
    _replace(pathlib.Path(folder) / SUMMARY, {"schema": SCHEMA, **summary})


def make_manifest(
    *,
    config: Mapping[str, Any],
    models: Mapping[str, Any],
    questions: Mapping[str, Any],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """Everything needed to know what was run, and to refuse going on with something else."""
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dict(config),
        "models": dict(models),
        "questions": dict(questions),
        "seeds": list(seeds),
        "versions": _versions(),
        "git": _git_hash(),
    }


class RunWriter:
    """Appends rows and trees to a run folder; makes it, or goes on with it.

    Args:
        folder: made if need be.
        manifest: from `make_manifest`.

    Attributes:
        keys: of the rows that are there; not to be searched again.

    Raises:
        BadInputError: the folder is another run's, is not a run folder, or is in use.
    """

    def __init__(self, folder: str | pathlib.Path, manifest: Mapping[str, Any]) -> None:
        self.folder = pathlib.Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInputError(f"{str(self.folder)!r} is a file: choose another output folder")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # The kernel frees the lock when the process dies, however it dies.
            self._lock = (self.folder / _LOCK).open("w")
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise BadInputError(
                f"{str(self.folder)!r} is in use by another process: wait, or choose another folder"
            ) from error
        try:
            self._begin(manifest)
            self.keys = self._repair()
            self._appender = _Appender(self.folder)
        except OSError as error:
            self._lock.close()
            raise _unwritable(self.folder, error) from error
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def add(self, row: Row, result: SearchResult | None) -> None:
        """Append a row, and before it the tree of `result` if one is given.

        The disk is left to a thread of its own; `close` waits for it.

        Raises:
            ValueError: a row of this key is there already.
            RunStoppedError: an earlier row could not be written.
        """
        if row.key in self.keys:
            raise ValueError(f"row {row.key!r} is already in {str(self.folder)!r}")
        self._appender.add(row, None if result is None else _tree_to_lines(row.key, result))
        self.keys.add(row.key)

    @property
    def seconds(self) -> float:
        """Time that the thread which compresses and writes was at work."""
        return self._appender.seconds

    def close(self) -> None:
        """Wait until everything is on the disk, and free the folder.

        Raises:
            RunStoppedError: something could not be written.
        """
        try:
            self._appender.close()
        finally:
            self._lock.close()

    def _begin(self, manifest: Mapping[str, Any]) -> None:
        existing = _read_manifest(self.folder)
        if existing is not None:
            new = json.loads(json.dumps(manifest))
            changes = [
                change
                for name in _IDENTITY
                for change in _differences(existing.get(name), new.get(name), name)
            ]
            if changes:
                shown = "; ".join(changes[:4]) + ("; ..." if len(changes) > 4 else "")
                raise BadInputError(
                    f"{str(self.folder)!r} was begun differently: {shown}. Go on with the same "
                    "settings, or choose another output folder"
                )
            return
        strangers = {path.name for path in self.folder.iterdir()} - {_LOCK, MANIFEST + ".new"}
        if strangers:
            raise BadInputError(
                f"{str(self.folder)!r} holds {sorted(strangers)[0]!r} but no {MANIFEST}, so it is "
                "no run folder: choose another output folder"
            )
        _replace(self.folder / MANIFEST, manifest)

    def _repair(self) -> set[str]:
        """Drop cut tails and trees without a row; returns the keys of the rows that stay."""
        results, trees = self.folder / RESULTS, self.folder / TREES
        kept = _complete_rows(self.folder)
        lines = b"".join(line for _, line in kept)
        if results.exists() and results.read_bytes() != lines:
            _replace_bytes(results, lines)
        if trees.exists():
            end = max((sum(row.tree) for row, _ in kept if row.tree is not None), default=0)
            with trees.open("r+b") as file:
                file.truncate(end)
        return {row.key for row, _ in kept}


def _complete_rows(folder: pathlib.Path) -> list[tuple[Row, bytes]]:
    """Rows whose line and tree are complete, each with its line."""
    path, trees = folder / RESULTS, folder / TREES
    if not path.exists():
        return []
    tree_bytes = trees.stat().st_size if trees.exists() else 0
    rows: list[tuple[Row, bytes]] = []
    keys: set[str] = set()
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break  # cut off by a kill
        try:
            row = Row.from_dict(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(
                f"{path}:{number}: a damaged result row ({error}): delete the line; its question "
                "will be searched again"
            ) from error
        if row.key in keys:
            raise BadInputError(f"{path}:{number}: row {row.key!r} occurs twice: delete one")
        keys.add(row.key)
        if row.tree is None or sum(row.tree) <= tree_bytes:
            rows.append((row, line))
    return rows


def _read_manifest(folder: pathlib.Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_text())
        schema = manifest["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{str(path)!r} is no manifest of a run ({error})") from error
    if schema != SCHEMA:
        raise BadInputError(
            f"{str(path)!r} has schema {schema}, this version reads {SCHEMA}: use the version of "
            "cats-jax that wrote it"
        )
    return manifest


def _differences(old: Any, new: Any, name: str) -> list[str]:
    """Where two JSON values differ, as "name: old -> new"."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            change
            for key in sorted({*old, *new})
            for change in _differences(old.get(key), new.get(key), f"{name}.{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            change
            for index, (one, two) in enumerate(zip(old, new, strict=True))
            for change in _differences(one, two, f"{name}[{index}]")
        ]
    return [] if old == new else [f"{name}: {_shorten(old)} -> {_shorten(new)}"]


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


# Trees


def _tree_to_lines(key: str, result: SearchResult) -> bytes:
    """One JSON line about the search, one per candidate, one per decision."""
    lines: list[dict[str, Any]] = [
        {
            "key": key,
            "kind": "search",
            "question": result.question.id,
            "text": result.question.text,
            "chosen": result.chosen,
            "paths": [list(path.nodes) for path in result.paths],
        }
    ]
    for candidate in result.candidates:
        line = {
            "key": key,
            "kind": "candidate",
            **dict(zip(_CANDIDATE, _of_candidate(candidate), strict=True)),
        }
        if not math.isfinite(candidate.log_prob):
            line["log_prob"] = None
        lines.append(line)
    for decision in result.decisions:
        line = {
            "key": key,
            "kind": "decision",
            **dict(zip(_DECISION, _of_decision(decision), strict=True)),
        }
        lines.append(line)
    return b"".join(map(_line, lines))


def _tree_from_lines(lines: list[dict[str, Any]], row: Row) -> SearchResult:
    head = lines[0]
    candidates = []
    for line in lines:
        if line["kind"] == "candidate":
            fields = {name: line[name] for name in _CANDIDATE}
            fields["log_prob"] = -math.inf if line["log_prob"] is None else line["log_prob"]
            candidates.append(Candidate(**fields, token_ids=()))
    decisions = []
    for line in lines:
        if line["kind"] == "decision":
            fields = {name: line[name] for name in _DECISION}
            decisions.append(DecisionRow(**{**fields, "features": tuple(line["features"])}))
    return SearchResult(
        question=Question(head["question"], head["text"]),
        answer=row.answer,
        chosen=head["chosen"],
        status=row.status,  # type: ignore[arg-type]
        reason=row.reason,
        steps=row.steps,
        paths=[_path_of(nodes, candidates) for nodes in head["paths"]],
        candidates=candidates,
        decisions=decisions,
        ledger=row.ledger,
    )


def _path_of(nodes: list[int], candidates: list[Candidate]) -> SearchPath:
    steps = [candidates[node - 1] for node in nodes]
    return SearchPath(
        steps=tuple(step.text for step in steps),
        step_scores=tuple(step.score for step in steps if step.score is not None),
        path_score=steps[-1].path_score,
        answer=steps[-1].answer,
        nodes=tuple(nodes),
    )


_CANDIDATE = tuple(
    field.name for field in dataclasses.fields(Candidate) if field.name != "token_ids"
)
_DECISION = tuple(field.name for field in dataclasses.fields(DecisionRow))
_of_candidate = operator.attrgetter(*_CANDIDATE)
_of_decision = operator.attrgetter(*_DECISION)
# Made once: `json.dumps` with any setting makes a new one for every line.
_encode = json.JSONEncoder(allow_nan=False, check_circular=False).encode


def _line(value: Any) -> bytes:
    return _encode(value).encode() + b"\n"


# Files


class _Appender:
    """A thread that compresses and writes, so that searches do not wait for the disk.

    Whatever has piled up goes out together: first the trees, then, once those are on the disk,
    the rows that point at them.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.seconds = 0.0
        self._folder = folder
        self._queue: queue.SimpleQueue[tuple[Row, bytes | None] | None] = queue.SimpleQueue()
        self._results = _open_to_append(folder / RESULTS)
        self._trees = _open_to_append(folder / TREES)
        _sync_folder(folder)
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="run folder", daemon=True)
        self._thread.start()

    def add(self, row: Row, tree: bytes | None) -> None:
        if self._error is not None:
            raise _stopped(self._folder, self._error)
        self._queue.put((row, tree))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        os.close(self._results)
        os.close(self._trees)
        if self._error is not None:
            raise _stopped(self._folder, self._error)

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
            except OSError as error:  # the disk is full, or gone: `add` or `close` tells
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
            lines += _line(dataclasses.replace(row, tree=place).as_dict())
        _append(self._trees, trees)
        _append(self._results, lines)


def _unwritable(folder: pathlib.Path, error: OSError) -> BadInputError:
    return BadInputError(
        f"{str(folder)!r} can't be written ({error.strerror}): choose another output folder, or "
        "free space"
    )


def _stopped(folder: pathlib.Path, error: OSError) -> RunStoppedError:
    return RunStoppedError(
        f"{str(folder)!r} can't be written any more ({error.strerror}): free space, and the same "
        "command goes on where it stopped"
    )


def _open_to_append(path: pathlib.Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _append(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of it, normally in one call, and wait until it is on the disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if data:
        os.fsync(descriptor)


def _replace(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    _replace_bytes(path, json.dumps(value, indent=2).encode() + b"\n")


def _replace_bytes(path: pathlib.Path, data: bytes) -> None:
    """Readers see the old content or the new, never a part."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _sync_folder(folder: pathlib.Path) -> None:
    """New names are only safe once the folder itself is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    from . import __version__

    return {**versions, "cats-jax": __version__}


def _git_hash() -> str | None:
    """Commit of the checkout this package runs from, "+" if changed; None outside a checkout."""
    root = pathlib.Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
