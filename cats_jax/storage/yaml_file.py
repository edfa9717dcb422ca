"""Small dataclasses as YAML files: formats and recipes that a user adds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from ..errors import BadInputError, known_names, quoted


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Put a file's name before the message of a BadInputError of the `with` block."""
    try:
        yield
    except BadInputError as error:
        raise type(error)(f"{where}: {error}") from error


def checked_fields(where: str, content: Any, kind: type) -> dict[str, Any]:
    """Check a mapping against the fields of a dataclass and return it, with lists as tuples.

    The key `name` may be missing, because callers supply a default. Only the types str, int (0 or
    more), bool and tuple[str, ...] are checked here.

    Raises:
        BadInputError: `content` is not a mapping, a key is unknown or missing, or a value has the
            wrong type.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(content, dict):
        raise BadInputError(f"{where}: must be a mapping with the keys {', '.join(fields)}")
    for key in content:
        if key not in fields:
            raise BadInputError(
                f"{where}: key {quoted(key)} is unknown: {known_names(key, fields)}"
            )
    for name, field in fields.items():
        if name != "name" and field.default is dataclasses.MISSING and name not in content:
            raise BadInputError(f"{where}: key {name!r} is missing: add it")
    return {
        key: _checked(f"{where}, {key}", str(fields[key].type), value)
        for key, value in content.items()
    }


def _checked(where: str, annotation: str, value: Any) -> Any:
    if value is None and annotation.endswith("| None"):
        return None
    kind = annotation.removesuffix(" | None")
    if kind == "tuple[str, ...]":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadInputError(f"{where}: {quoted(value)} must be a list of texts")
        return tuple(value)
    if kind == "str" and not isinstance(value, str):
        raise BadInputError(f"{where}: {quoted(value)} must be a text: write it in quotes")
    if kind == "bool" and not isinstance(value, bool):
        raise BadInputError(f"{where}: {quoted(value)} must be true or false")
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise BadInputError(f"{where}: {quoted(value)} must be a number, 0 or more")
    return value
