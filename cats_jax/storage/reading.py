"""Reading of files that may be damaged or untrusted: within bounds, with errors of one line.

Parsers raise errors of many types, and some content needs far more memory or time than its size
suggests. Each reader of this package reads inside `reading`, parses JSON with `parse_json`, and
inflates with `inflated_lines`.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

from ..errors import BadInputError, RunStoppedError

MAX_FILE = 1 << 26
"""Most bytes of a file that is read as a whole, such as a manifest: 64 MiB."""

MAX_LINE = 1 << 24
"""Most bytes of one line of JSON: 16 MiB."""

MAX_INFLATED = 1 << 27
"""Most bytes that a compressed search tree may inflate to: 128 MiB."""

MAX_DEPTH = 64
"""Most brackets of a JSON document that may be open at once."""

_MAX_INTEGER = 1 << 63
_MAX_REASON = 200


@contextlib.contextmanager
def reading(
    where: str, way_out: str = "copy it anew or delete it", what: str = "is damaged"
) -> Iterator[None]:
    """Turn any error while a file is read into an error of one line that names the file.

    Args:
        where: name of the file for messages, with the line if there is one.
        way_out: what the user can do, the end of the message.
        what: what is wrong with the file.

    Raises:
        BadInputError: an error was raised in the `with` block. Errors of this package, which
            already have one line, stay as they are.
    """
    try:
        yield
    except (BadInputError, RunStoppedError):
        raise
    except OSError as error:
        if error.errno is None:  # of a compressed file, whose content is at fault
            raise BadInputError(f"{where} {what} ({reason(error)}): {way_out}") from error
        raise BadInputError(
            f"{where} can't be read ({reason(error)}): check the path and its permissions"
        ) from error
    # RecursionError, MemoryError, OverflowError, UnicodeError and more, depending on the content.
    except Exception as error:
        raise BadInputError(f"{where} {what} ({reason(error)}): {way_out}") from error


def reason(error: BaseException) -> str:
    """The message of an error, in one line of bounded length."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, KeyError) and error.args:
        return f"{error.args[0]!r:.80} is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error)[: 4 * _MAX_REASON].split())
    text = text if isinstance(error, ValueError | EOFError) else f"{type(error).__name__}: {text}"
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3] + "..."


def read_text(path: pathlib.Path, limit: int = MAX_FILE) -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Raises:
        ValueError: it is not UTF-8, is not a plain file, or has more than `limit` bytes.
        OSError: it can't be read.
    """
    if not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB")
    return data.decode("utf-8-sig")


def read_json(path: pathlib.Path) -> Any:
    """The JSON value in a file; see `read_text` and `parse_json` for what they raise."""
    return parse_json(read_text(path))


def parse_json(text: str | bytes, *, any_integer: bool = False) -> Any:
    """A JSON value whose integers and depth are bounded.

    With `any_integer`, integers of more than 64 bits are read, as ids and answers may be.

    Raises:
        ValueError: it is not JSON, has an integer of more than 64 bits (or of thousands of digits),
            or is nested more than `MAX_DEPTH` deep.
        RecursionError: it is nested so deeply that it can't be parsed.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    text = data.decode("utf-8-sig") if isinstance(text, bytes) else text
    # Most lines need neither check, and checks take time: a page reads many trees line by line.
    exact = not any_integer and _LONG in data.translate(_ZEROS)
    value = (_EXACT if exact else _PLAIN).decode(text)
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    return value


def parse_integer(digits: str) -> int:
    """An integer of at most 64 bits from its digits; with the prefix 0x or 0o, of another base.

    Raises:
        ValueError: it has more bits.
    """
    # The comparison of lengths comes first: Python refuses to convert thousands of digits.
    if len(digits) > 24 or not -_MAX_INTEGER <= (value := int(digits, 0)) < _MAX_INTEGER:
        raise ValueError(f"the number {digits[:20]}... has more than 64 bits")
    return value


_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
_PLAIN = json.JSONDecoder()
_EXACT = json.JSONDecoder(parse_int=parse_integer)


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]


def bounded_lines(path: pathlib.Path, limit: int = MAX_LINE) -> Iterator[bytes]:
    """The lines of a file, each with its end, none longer than `limit` bytes.

    Raises:
        ValueError: a line is longer, or the path is not a plain file.
        OSError: the file can't be read.
    """
    if not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        while line := file.readline(limit + 1):
            _check_line(line, limit)
            yield line


def inflated_lines(member: bytes) -> Iterator[bytes]:
    """The lines of one gzip member, inflated piece by piece, without their ends.

    Raises:
        ValueError: a line is longer than `MAX_LINE`, or all lines together than `MAX_INFLATED`.
        EOFError: the member is cut off.
        zlib.error: it is not a gzip member.
    """
    inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
    total, rest = 0, b""
    while not inflater.eof:
        piece = inflater.decompress(member, _PIECE)
        member = inflater.unconsumed_tail
        if not piece and not member and not inflater.eof:
            raise EOFError("it is cut off")
        total += len(piece)
        if total > MAX_INFLATED:
            raise ValueError(f"it inflates to more than {MAX_INFLATED >> 20} MiB")
        *lines, rest = (rest + piece).split(b"\n")
        _check_line(rest)
        yield from lines
    if inflater.unused_data:
        raise ValueError("something follows it")
    if rest:
        yield rest


_PIECE = 1 << 20


def _check_line(line: bytes, limit: int = MAX_LINE) -> None:
    if len(line) > limit:
        raise ValueError(f"a line has more than {limit >> 20} MiB")
