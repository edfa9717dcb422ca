"""Rows of a local JSONL or Parquet file, each with its place in the file."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from ..errors import BadInputError
from .parquet import MAX_TABLES, bounded_batches
from .reading import bounded_lines, parse_json, reading


def read_rows(path: str | pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each row of a JSONL or Parquet file, in order.

    Raises:
        BadInputError: the file does not exist, its format is unknown, or a line is not a JSON
            object.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise BadInputError(f"question file {str(path)!r} is a folder: name a file in it")
    if not path.is_file():
        start = "" if path.is_absolute() else ", which starts at the working folder"
        raise BadInputError(f"question file {str(path)!r} does not exist: check the path{start}")
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        return _whole_texts(numbered_rows(path))
    raise BadInputError(
        f"question file {str(path)!r}: the name must end in .jsonl (one JSON object a line) or "
        ".parquet"
    )


def numbered_rows(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each line of a file with one JSON object per line, whatever its name.

    Raises:
        BadInputError: the file does not exist, or a line is not a JSON object.
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
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{where}: {_other_encoding(line, error.start)}") from error
    if "\0" in text:  # without a byte order mark, UTF-16 of plain letters is valid UTF-8
        raise BadInputError(f"{where}: {_other_encoding(line, text.index(chr(0)))}")
    try:
        row = parse_json(text, any_integer=True)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
        if text.strip() in ("[", "{"):
            reason = "an object or a list over several lines"
        raise BadInputError(
            f"{where}: not a JSON object ({reason}): write one object a line"
        ) from error
    except (ValueError, RecursionError) as error:  # such as a number of 5000 digits
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{where}: not a JSON object ({reason}): fix or drop it") from error
    if isinstance(row, list):
        raise BadInputError(
            f"{where}: the line is a list: write one JSON object a line, such as by "
            "`jq -c '.[]' FILE`"
        )
    if not isinstance(row, dict):
        raise BadInputError(f"{where}: a row must be a JSON object, got {type(row).__name__}")
    return row


def _whole_texts(
    rows: Iterator[tuple[str, dict[str, Any]]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows; BadInputError for one that holds half of a character (a lone surrogate)."""
    for where, row in rows:
        if (name := _with_lone_surrogate(row)) is not None:
            raise BadInputError(
                f"{where}: {name!r} holds half of a character (a lone surrogate, \\ud800 to "
                "\\udfff), which is not text: write the character whole, or drop it"
            )
        yield where, row


def _other_encoding(line: bytes, place: int) -> str:
    """The message about a line that is not UTF-8 text from index `place` on."""
    encoding = "UTF-16" if b"\0" in line else "ISO-8859-1"
    return (
        f"not UTF-8 text (byte {line[place]:#04x} at {place + 1}); a file must be UTF-8: if it is "
        f"{encoding}, convert it by `iconv -f {encoding} -t UTF-8 FILE`"
    )


def _with_lone_surrogate(row: dict[str, Any]) -> str | None:
    """The first column whose name or value holds a lone surrogate, printable; None without one."""
    for name, value in row.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return name.encode(errors="replace").decode()
    return None


def _parquet(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    with reading(f"question file {str(path)!r}", "write it anew", "can't be read as Parquet"):
        for batch in bounded_batches(path, MAX_TABLES):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row
