"""Files that stay whole if the process is killed, and locks on output folders."""

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
    """Create a folder if needed and lock it until the returned file is closed.

    Raises:
        BadInputError: the folder is a file, is locked by another process, or can't be written.
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
    """Replace a file atomically: readers see the old content or the new one, never a part."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def replace_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    """Replace a file atomically with `value` as indented JSON."""
    replace(path, json.dumps(value, indent=2).encode() + b"\n")


def check_output(option: str, path: pathlib.Path) -> None:
    """Check, before expensive work, that a file can be created at the path given by an option.

    Raises:
        BadInputError: the path is a folder, or its parent folder is missing or can't be written.
    """
    if path.is_dir():
        raise BadInputError(f"{option} {str(path)!r} is a folder: name a file")
    if not path.parent.is_dir():
        raise BadInputError(f"{option}: folder {str(path.parent)!r} does not exist: make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadInputError(f"{option} {str(path)!r} can't be written: choose another folder")


@contextlib.contextmanager
def whole_text(path: pathlib.Path) -> Iterator[TextIO]:
    """Open a text file for writing that replaces `path` when the `with` block ends.

    After any error the old content of `path` stays.

    Raises:
        BadInputError: the file can't be written.
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
    """Open a file for `append`, creating it if needed, and return its descriptor."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def append(descriptor: int, data: bytes | bytearray) -> None:
    """Append all of `data` to a file and wait until it is on the disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if data:
        os.fsync(descriptor)


def sync_folder(folder: pathlib.Path) -> None:
    """Write a folder to the disk, without which names of new files may be lost."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(folder: pathlib.Path, error: OSError) -> BadInputError:
    """The error for an output folder that can't be written from the start."""
    return BadInputError(
        f"{str(folder)!r} can't be written ({error.strerror}): choose another output folder, or "
        "free space"
    )


def stopped(folder: pathlib.Path, error: OSError) -> RunStoppedError:
    """The error for an output folder that can't be written any more."""
    return RunStoppedError(
        f"{str(folder)!r} can't be written any more ({error.strerror}): free space, and the same "
        "command goes on where it stopped"
    )
