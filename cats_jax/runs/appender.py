"""The thread that appends rows and trees to a run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import os
import pathlib
import queue
import threading
import time
from typing import TextIO

from ..errors import RunStoppedError
from ..storage import durable
from .rows import Row
from .stored_trees import json_line

PATHS = "paths.jsonl"
RESULTS = "results.jsonl"
TREES = "trees.jsonl.gz"


class Appender:
    """A thread that compresses and writes, so that searches do not wait for the disk.

    It writes all queued entries together: first the trees, then the rows that point to them. Before
    that, it waits until the paths that rows share are on the disk. It closes the folder's lock at
    its end: if `close` is interrupted, rows that are still queued go to a folder that is locked.

    Attributes:
        is_complete: whether the run needs no more rows; the shared paths are then removed.
    """

    def __init__(self, folder: pathlib.Path, lock: TextIO) -> None:
        self.seconds = 0.0
        self.is_complete = False
        # The code of a model may change the working directory.
        self._folder, self._lock = folder.absolute(), lock
        self._queue: queue.SimpleQueue[tuple[Row, bytes | None] | None] = queue.SimpleQueue()
        self._results = durable.open_to_append(folder / RESULTS)
        self._trees = durable.open_to_append(folder / TREES)
        durable.sync_folder(folder)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="run folder", daemon=True)
        self._thread.start()

    def add(self, row: Row, tree: bytes | None) -> None:
        """Queue a row, and the lines of its tree; raises the error of an earlier write."""
        self._check()
        self._queue.put((row, tree))

    def close(self) -> None:
        """Wait until everything is on the disk; raises the error of a write."""
        self._queue.put(None)
        self._thread.join()
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
            if self._error is None:
                try:
                    self._write([entry for entry in waiting if entry is not None])
                except Exception as error:  # such as a full disk: `add` or `close` raises it
                    self._error = error
            self.seconds += time.perf_counter() - started
        if self.is_complete and self._error is None:
            with contextlib.suppress(OSError):
                (self._folder / PATHS).unlink(missing_ok=True)
        with self._lock:
            for descriptor in (self._results, self._trees):
                try:
                    os.close(descriptor)
                except OSError as error:  # a network file system may write only now
                    self._error = self._error or error

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
        if entries:
            self._check_place()
            durable.sync(self._folder / PATHS)
        durable.append(self._trees, trees)
        durable.append(self._results, lines)

    def _check_place(self) -> None:
        """Raise RunStoppedError if the folder has moved: rows would go where nobody looks."""
        own = os.fstat(self._results)
        try:
            found = os.stat(self._folder / RESULTS)
            # Some network file systems give a file new numbers.
            is_there = own.st_nlink > 0 and (
                os.path.samestat(found, own) or found.st_size == own.st_size
            )
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise RunStoppedError(
                f"{str(self._folder)!r} was moved, deleted or replaced during the run: move it "
                "back, and the same command resumes the run"
            )
