"""Small dataclasses as YAML files: formats and recipes that a user adds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from ..errors import BadInputError, known_names, quoted
from .rules import TEXT, TRUTH, Rule, list_of


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
    rule = _RULES.get(kind)
    if rule is not None and not rule.holds(value):
        raise BadInputError(f"{where}: {quoted(value)} must be {rule.what}")
    return tuple(cast("list[str]", value)) if kind == _TEXTS else value


_TEXTS = "tuple[str, ...]"
_RULES = {
    _TEXTS: Rule("a list of texts", list_of(TEXT).holds),
    "str": Rule("a text: write it in quotes", TEXT.holds),
    "bool": TRUTH,
    "int": Rule("a number, 0 or more", lambda value: type(value) is int and value >= 0),
}
