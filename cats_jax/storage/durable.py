"""Files that survive a kill, and folders that one process writes at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from ..errors import BadInputError, RunStoppedError

LOCK = ".lock"


def hold(folder: pathlib.Path) -> TextIO:
    """Make a folder if need be, and keep other processes out until the returned file is closed.

    Raises:
        BadInputError: it is a file, in use, or can't be written.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{str(folder)!r} is a file: choose another output folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The kernel frees the lock when the process dies, however it dies.
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise BadInputError(
            f"{str(folder)!r} is in use by another process: wait, or choose another output folder"
        ) from error
    return lock


def replace(path: pathlib.Path, data: bytes) -> None:
    """Readers see the old content or the new, never a part."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def replace_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    """The same with JSON, to be read by people too."""
    replace(path, json.dumps(value, indent=2).encode() + b"\n")


def check_output(option: str, path: pathlib.Path) -> None:
    """Check, before the work, that a file can be made at the path that an option names.

    Raises:
        BadInputError: the path is a folder, its folder is missing, or it can't be written.
    """
    if path.is_dir():
        raise BadInputError(f"{option} {str(path)!r} is a folder: name a file")
    if not path.parent.is_dir():
        raise BadInputError(f"{option}: folder {str(path.parent)!r} does not exist: make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadInputError(f"{option} {str(path)!r} can't be written: choose another folder")


@contextlib.contextmanager
def whole_text(path: pathlib.Path) -> Iterator[TextIO]:
    """A text to be written bit by bit, which is at `path` when the `with` ends, and not before.

    Raises:
        BadInputError: it can't be written. What was at `path` stays, as after any other error.
    """
    new = path.with_name(path.name + ".new")
    try:
        with new.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise BadInputError(f"{str(path)!r} can't be written ({error.strerror})") from error
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def open_to_append(path: pathlib.Path) -> int:
    """A descriptor for `append`."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def append(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of it, normally in one call, and wait until it is on the disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if data:
        os.fsync(descriptor)


def sync_folder(folder: pathlib.Path) -> None:
    """New names are only safe once the folder itself is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(folder: pathlib.Path, error: OSError) -> BadInputError:
    """For a folder that was never written."""
    return BadInputError(
        f"{str(folder)!r} can't be written ({error.strerror}): choose another output folder, or "
        "free space"
    )


def stopped(folder: pathlib.Path, error: OSError) -> RunStoppedError:
    """For a folder that took writes before."""
    return RunStoppedError(
        f"{str(folder)!r} can't be written any more ({error.strerror}): free space, and the same "
        "command goes on where it stopped"
    )
