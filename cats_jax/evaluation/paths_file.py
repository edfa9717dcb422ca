"""A file of samples and scores of questions, from which a resumed run reads on.

Each line is a JSON mapping of `pool`, `prm`, `question`, `paths`, `version` and `content`, which is
a gzip member of JSON lines in base64. The file may be torn, damaged or somebody else's: a line that
can't be read, or that another version of cats-jax wrote, counts as absent.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import pathlib
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from ..errors import BadInputError
from ..storage import durable
from ..storage.json_numbers import plain
from ..storage.reading import MAX_INFLATED, MAX_LINE, inflated_lines, parse_json, reading
from ..storage.rules import COUNT, TEXT, check_entries, one_of, optional
from ..version import __version__

T = TypeVar("T")


class Name(NamedTuple):
    """What a line holds: samples of a pool, or scores of a PRM (its label), of one question."""

    pool: str
    prm: str | None
    question: str


class PathsFile:
    """Content of the file by name; only the places of the lines are in memory.

    On a full disk, nothing is stored. The writer of a run folder waits until the file is on the
    disk before it writes rows, see `runs.appender`.

    Attributes:
        close: closes the file; a temporary one is gone.
    """

    def __init__(self, path: pathlib.Path | None) -> None:
        """Open or create the file, or without a path a temporary one.

        Raises:
            BadInputError: the path is a link or no plain file.
        """
        self._lock = threading.Lock()
        self._descriptor = _open(path)
        # A runner that is dropped closes its file, too.
        self.close = weakref.finalize(self, os.close, self._descriptor)
        if path is not None:
            with contextlib.suppress(OSError):
                durable.sync_folder(path.parent)
        # (number of paths, offset, length) of each line.
        self._places: dict[Name, tuple[int, int, int]] = {}
        self._end = 0
        for offset, line in _lines(self._descriptor):
            # What follows the last whole line is overwritten.
            self._end = offset + len(line)
            with contextlib.suppress(BadInputError):
                name, paths, _ = _parse(line)
                # More paths may have been replaced by fewer only because they could not be read.
                if paths >= self._places.get(name, (0,))[0]:
                    self._places[name] = paths, offset, len(line)

    def load(
        self, name: Name, paths: int, decode: Callable[[Iterable[Any]], T]
    ) -> tuple[T, int] | None:
        """The content of `name` if it is of `paths` paths or more, and its number of paths.

        `decode` makes the content from JSON values. Content is absent if `decode` raises an error.
        """
        with self._lock:
            found = self._places.get(name)
        if found is None or found[0] < paths:
            return None
        stored, offset, length = found
        try:
            with reading("a file of paths"):
                *head, content = _parse(os.pread(self._descriptor, length, offset))
                if head != [name, stored]:
                    raise ValueError("the line is another one")
                lines = inflated_lines(base64.b64decode(content))
                return decode(parse_json(line, any_integer=True) for line in lines), stored
        except BadInputError:
            with self._lock:
                self._places.pop(name, None)
            return None

    def save(self, name: Name, paths: int, values: Iterable[Mapping[str, Any]]) -> None:
        """Store the content of `name` as JSON values, in place of what is stored.

        Content that is too long, or is not JSON, is not stored.
        """
        try:
            content = b"".join(_ENCODER.encode(value).encode() + b"\n" for value in values)
        except (TypeError, ValueError):
            return
        if len(content) > MAX_INFLATED:
            return
        member = gzip.compress(content, compresslevel=1, mtime=0)
        text = base64.b64encode(member).decode()
        head = {**name._asdict(), "paths": paths, "version": _VERSION, "content": text}
        line = _ENCODER.encode(head).encode() + b"\n"
        if len(line) > MAX_LINE:
            return
        with self._lock:
            written = 0
            try:
                while written < len(line):
                    place = self._end + written
                    written += os.pwrite(self._descriptor, line[written:], place)
            except OSError:  # no room on the disk, which the rows need
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, self._end)
                return
            self._places[name] = paths, self._end, len(line)
            self._end += len(line)


def _open(path: pathlib.Path | None) -> int:
    if path is not None:
        with contextlib.suppress(OSError):  # a file that can't be written
            return durable.open_unlinked(path, os.O_RDWR | os.O_CREAT)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _lines(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a file and their offsets; longer ones come in pieces of `MAX_LINE`."""
    offset = 0
    with os.fdopen(os.dup(descriptor), "rb") as file:
        while (line := file.readline(MAX_LINE)).endswith(b"\n") or len(line) == MAX_LINE:
            yield offset, line
            offset += len(line)


def _parse(line: bytes) -> tuple[Name, int, str]:
    """Name, number of paths and content of a line; BadInputError if it is none."""
    with reading("a file of paths"):
        head = parse_json(line)
        check_entries(head, _RULES)
        return Name(head["pool"], head["prm"], head["question"]), head["paths"], head["content"]


_VERSION = f"1, cats-jax {__version__}"
"""The format of a line and the version whose rules made its content."""

_RULES = {
    "version": one_of(_VERSION),
    **dict.fromkeys(("pool", "question", "content"), TEXT),
    "prm": optional(TEXT),
    "paths": COUNT,
}
_ENCODER = json.JSONEncoder(allow_nan=False, check_circular=False, default=plain)
