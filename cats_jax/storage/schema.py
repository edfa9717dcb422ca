"""Dataclasses for the content of files, whose fields pydantic checks.

An error is one `BadInputError` that names the key, its value, the rule, and the nearest known name.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, dataclass_transform

import pydantic
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from ..errors import BadInputError, known_names, quoted

Kind = TypeVar("Kind")
Item = TypeVar("Item")

Count = Annotated[int, pydantic.Field(ge=1, lt=1 << 31)]
"""An integer from 1 to 2**31 - 1."""

Seed = Annotated[int, pydantic.Field(ge=-(1 << 63), lt=1 << 63)]
"""A seed from which `live.seeds.stable_seed` makes others: any integer that a manifest can hold."""

Amount = Annotated[float, pydantic.Field(gt=0, le=1e9)]
"""A number in (0, 1e9]."""

_CONFIG = pydantic.ConfigDict(
    strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True
)

_LINES = {
    "bool_type": "{at} must be true or false",
    "dict_type": "{at} must be a mapping of names to values",
    "finite_number": "{at} must be a finite number",
    "float_type": "{at} must be a number",
    "greater_than": "{at} must be a number above {gt:g}",
    "greater_than_equal": "{at} must be an integer of at least {ge}",
    "int_type": "{at} must be an integer",
    "less_than": "{at} must be below {lt}",
    "less_than_equal": "{at} must be at most {le:g}",
    "list_type": "{at} must be a list, such as [A, B]",
    "literal_error": "{at} must be {expected}",
    "missing": "key {key!r} is missing: add it",
    "rule": "{at} {rule}",
    "secret": "{key}: {rule}",
    "string_type": "{at} must be a text: write it in quotes",
    "string_unicode": "{at} must be a text, without half of a character (a lone surrogate)",
    "too_long": "{key}: {actual_length} are too many: give at most {max_length}",
    "too_short": "{key} is empty: give at least one",
}
"""Messages by pydantic's names of rules."""


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def checked(kind: type[Kind]) -> type[Kind]:
    """A frozen dataclass that raises BadInputError for the first field that breaks its rule.

    For messages, the class attribute `where` names the key of such a mapping, and `renamed` has the
    new names of former keys. A field with the metadata `key=False` is not read from files.
    """
    made = pydantic.dataclasses.dataclass(frozen=True, config=_CONFIG)(kind)
    init: Any = made.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **values: Any) -> None:
        try:
            init(self, *args, **values)
        except pydantic.ValidationError as error:
            # Without its cause, which may hold a secret.
            raise _described(error, getattr(kind, "where", "")) from None

    made.__init__ = __init__  # pyright: ignore[reportAttributeAccessIssue]
    return made  # pyright: ignore[reportReturnType]


def check_seed(seed: int) -> None:
    """Raise BadInputError unless numpy and JAX, of whose seeds the last 32 bits count, take it."""
    if not 0 <= seed < 1 << 31:
        raise BadInputError(f"seed={seed}: must be an integer from 0 to {(1 << 31) - 1}")


def from_mapping(kind: type[Kind], value: Any, where: str = "") -> Kind:
    """An instance of a `checked` class from the content of a file.

    `where` is the name of the mapping, for messages; default: `kind.where`.

    Raises:
        BadInputError: it is not a mapping, a key is unknown or missing, or a value breaks its rule.
    """
    before = f"{name}: " if (name := where or getattr(kind, "where", "")) else ""
    fields: tuple[Any, ...] = dataclasses.fields(kind)  # pyright: ignore[reportArgumentType]
    names = [field.name for field in fields if field.metadata.get("key", True)]
    if not isinstance(value, Mapping):
        raise BadInputError(f"{before}must be a mapping with the keys {', '.join(names)}")
    for key in value:
        if key not in names:
            renamed = getattr(kind, "renamed", {}).get(key)
            known = f"it is now {renamed!r}" if renamed else known_names(key, names)
            raise BadInputError(f"{before}unknown key {quoted(key)}: {known}")
    return kind(**value)


def nested(kind: type[Kind], short: str | None = None) -> pydantic.BeforeValidator:
    """Annotation of a field that is a mapping, or a text that stands for its `short` key."""

    def make(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if short is not None and isinstance(value, str):
            value = {short: value}
        return from_mapping(kind, value)

    return pydantic.BeforeValidator(make, json_schema_input_type=str | kind if short else kind)


def must(rule: str, holds: Callable[[Any], bool], *, secret: bool = False) -> Any:
    """Annotation of a field whose values keep a rule; a secret value is not quoted."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise PydanticCustomError("secret" if secret else "rule", "{rule}", {"rule": rule})
        return value

    return pydantic.BeforeValidator(check)


def is_path_text(value: Any) -> bool:
    """Whether a value is a text that can be a name or a path."""
    return (
        isinstance(value, str)
        and len(value) <= 4000
        and max(map(len, value.split("/"))) <= 200
        and not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
    )


PathText = Annotated[str, must("must be a name or a path", is_path_text)]
"""A text that is or may be a path, or names a file."""


class _Items:
    """A tuple read from a list, from a single item, or from null, which is empty."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_before_validator_function(items, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        # pydantic writes the rules of a text for the number of items.
        of_lists = {"minLength": "minItems", "maxLength": "maxItems"}
        found = {of_lists.get(key, key): value for key, value in handler(schema).items()}
        return {"anyOf": [found["items"], found, {"type": "null"}]}


Several = Annotated[tuple[Item, ...], _Items()]
"""Items of one type; a file may name a single one without a list."""


def items(value: Any) -> tuple[Any, ...]:
    """A value as a tuple: None is empty, and any other single value is a tuple of one."""
    if isinstance(value, list | tuple):
        return tuple(value)
    return () if value is None else (value,)


def _distinct(values: tuple[Any, ...], info: pydantic.ValidationInfo) -> tuple[Any, ...]:
    seen = set()
    for value in values:
        noun, name = ("label", value.label) if hasattr(value, "label") else ("value", value)
        if name in seen:
            raise BadInputError(
                f"{info.field_name}: {noun} {quoted(name)} occurs twice: make them distinct"
            )
        seen.add(name)
    return values


DISTINCT = pydantic.AfterValidator(_distinct)
"""Annotation of a tuple whose values, or whose items' labels, are distinct."""


def _described(error: pydantic.ValidationError, where: str) -> BadInputError:
    """The first error in one line."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if not isinstance(cause, BadInputError):
        return BadInputError(
            (f"{where}: " if where else "") + (str(cause) if cause else _line(first))
        )
    # Its line is whole, but for the number of a list's entry.
    name, *entry = first["loc"] or ("",)
    said = str(cause)
    if entry and said.startswith(f"{name}: "):
        said = f"{name}, entry {int(entry[0]) + 1}{said.removeprefix(str(name))}"
    return type(cause)(said)


def _line(error: ErrorDetails) -> str:
    place, value = error["loc"], quoted(error["input"])
    key = place[0] if place else "value"
    at = f"{key}: {value}" if len(place) > 1 else f"{key}={value}:"
    line = _LINES.get(error["type"])
    return line.format(at=at, key=key, **error.get("ctx", {})) if line else f"{at} {error['msg']}"
