"""Rows of a local JSONL or Parquet file, each with its place in the file."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

from ..errors import BadInputError
from .parquet import MAX_TABLES, bounded_batches
from .reading import bounded_lines, parse_json, reading


def read_rows(path: str | pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each row of a JSONL or Parquet file, in order.

    Raises:
        BadInputError: no such file, no such format, or a line that is no JSON object.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise BadInputError(f"question file {str(path)!r} is a folder: name a file in it")
    if not path.is_file():
        raise BadInputError(f"question file {str(path)!r} does not exist: check the path")
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        return numbered_rows(path)
    raise BadInputError(
        f"question file {str(path)!r}: the name must end in .jsonl (one JSON object a line) or "
        ".parquet"
    )


def numbered_rows(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each line of a file with one JSON object per line, whatever its name.

    Raises:
        BadInputError: no such file, or a line that is no JSON object.
    """
    if not path.is_file():
        raise BadInputError(f"input {str(path)!r} does not exist: check the path")
    with reading(repr(str(path))):
        for number, line in enumerate(bounded_lines(path), 1):
            if line.strip():
                where = f"{path}:{number}"
                yield where, _parse(line, where)


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = parse_json(line, any_integer=True)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{where}: not a JSON object ({reason}): fix or drop it") from error
    if not isinstance(row, dict):
        raise BadInputError(f"{where}: a row must be a JSON object, got {type(row).__name__}")
    return row


def _parquet(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow  # noqa: F401 - `bounded_batches` needs it
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"question file {str(path)!r}: Parquet needs pyarrow: pip install 'cats-jax[eval]'"
        ) from error
    number = 0
    with reading(f"question file {str(path)!r}", "write it anew", "is no Parquet file"):
        for batch in bounded_batches(path, MAX_TABLES):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row
