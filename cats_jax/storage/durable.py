"""Files that stay whole if the process is killed, and locks on output folders.

An output folder may come from somebody else. So no file in it is written through a symbolic or hard
link, which would change a file elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import stat
from collections.abc import Iterator, Mapping
from typing import IO, Any, TextIO

from ..errors import BadInputError, RunStoppedError

LOCK = ".lock"


def hold(folder: pathlib.Path) -> TextIO:
    """Create a folder if needed and lock it until the returned file is closed.

    Raises:
        BadInputError: the folder is a file, is locked by another process, can't be written, or its
            lock is a link.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{str(folder)!r} is a file: choose another output folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The kernel frees the lock when the process dies, however it dies.
        lock = os.fdopen(open_unlinked(folder / LOCK, os.O_RDWR | os.O_CREAT), "r+")
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


def open_unlinked(path: pathlib.Path, flags: int) -> int:
    """Open a file of an output folder for writing, and return its descriptor.

    Raises:
        BadInputError: the path is a link to a file elsewhere, or something other than a file.
        OSError: the file can't be opened.
    """
    try:
        # Without O_NONBLOCK, a named pipe would wait for a reader.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise _linked(path) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _linked(path)
    return descriptor


def _linked(path: pathlib.Path) -> BadInputError:
    return BadInputError(
        f"{str(path)!r} is a link or no plain file, and to write it would change something "
        "elsewhere: delete it, or choose another output folder"
    )


def refuse_link(path: pathlib.Path) -> None:
    """Raise BadInputError if a path in an output folder is a symbolic link."""
    if path.is_symlink():
        raise _linked(path)


@contextlib.contextmanager
def _replacement(path: pathlib.Path, mode: str, encoding: str | None = None) -> Iterator[IO[Any]]:
    """Open a new file beside `path` that replaces it when the `with` block ends without error.

    Otherwise the new file is deleted: on a full disk its part would take the room that is left.
    """
    new = path.with_name(path.name + ".new")
    # A killed process, or somebody else, may have left a file there.
    new.unlink(missing_ok=True)
    descriptor = open_unlinked(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def replace(path: pathlib.Path, data: bytes) -> None:
    """Replace a file atomically: readers see the old content or the new one, never a part."""
    with _replacement(path, "wb") as file:
        file.write(data)


def replace_json(path: pathlib.Path, value: Mapping[str, Any], indent: int = 2) -> None:
    """Replace a file atomically with `value` as indented JSON."""
    replace(path, json.dumps(value, indent=indent).encode() + b"\n")


def check_output(option: str, path: pathlib.Path) -> None:
    """Raise BadInputError, before expensive work, if no file can be created at an option's path.

    The path is then a folder or a device, or its parent folder is missing or can't be written.
    """
    if path.exists() and not path.is_file():  # a device's name would become that of a file
        kind = "a folder" if path.is_dir() else "no plain file"
        raise BadInputError(f"{option} {str(path)!r} is {kind}: name a file")
    if not path.parent.is_dir():
        raise BadInputError(f"{option}: folder {str(path.parent)!r} does not exist: make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadInputError(f"{option} {str(path)!r} can't be written: choose another folder")


@contextlib.contextmanager
def whole_text(path: pathlib.Path) -> Iterator[IO[str]]:
    """Open a text file for writing that replaces `path` when the `with` block ends without error.

    Raises:
        BadInputError: the file can't be written.
    """
    try:
        with _replacement(path, "w", "utf-8") as file:
            yield file
    except OSError as error:
        other = error.filename is not None and not str(error.filename).startswith(str(path))
        if other or error.errno is None or isinstance(error, ConnectionError | TimeoutError):
            raise  # it is of the block's own work
        raise BadInputError(
            f"{str(path)!r} can't be written ({error.strerror}): free space, or choose another "
            "place"
        ) from error


def open_to_append(path: pathlib.Path) -> int:
    """Open a file for `append`, creating it if needed, and return its descriptor."""
    return open_unlinked(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def truncate(path: pathlib.Path, size: int) -> None:
    """Cut a file to a number of bytes."""
    with os.fdopen(open_unlinked(path, os.O_WRONLY), "wb") as file:
        file.truncate(size)


def append(descriptor: int, data: bytes | bytearray) -> None:
    """Append all of `data` to a file and wait until it is on the disk.

    The caller is the file's only writer.

    Raises:
        OSError: the data can't be written. The part that was written is cut off again, if the file
            system allows it.
    """
    before, view = os.fstat(descriptor).st_size, memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
        if data:
            os.fsync(descriptor)
    except OSError:
        # A later line would join the part that a full disk has taken.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def sync(path: pathlib.Path) -> None:
    """Wait until a file is on the disk; nothing happens if it is a link or can't be opened."""
    with (
        contextlib.suppress(OSError, BadInputError),
        os.fdopen(open_unlinked(path, os.O_RDONLY), "rb") as file,
    ):
        os.fsync(file.fileno())


def sync_folder(folder: pathlib.Path) -> None:
    """Write a folder to the disk; otherwise the names of new files may be lost."""
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
        "command resumes"
    )
