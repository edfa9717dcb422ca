"""Files with one wrong value, a wrong byte or cut off: a reader reads them or says one line."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from cats_jax.errors import BadInputError

VALUES = (
    "-5", "1.5", str(10**400), "1e308", "1e999", "NaN", "true", "[]", "{}", "null", '""', '"x"',
    "[" * 100_000, '{"a":' * 100_000, json.dumps("x" * 100_000), '"\\ud800"', '"\\u0000"',
    "[-5, 5]", "[1.5, 3.5]", f"[0, {1 << 62}]", f"[{1 << 62}, 1]", str(1 << 63), "1000000000",
)  # fmt: skip
"""Documents that take the place of a value."""

LONGEST = 1500
"""Most characters of what a reader says."""

_MARK = '"\\u0001"'


def mutations(value: Any, every: int = 1) -> Iterator[str]:
    """A document's text with each of its values, at every depth, in turn replaced or left out.

    Args:
        value: the document.
        every: each how many-th of the mutations is taken. A number that has no factor in common
            with that of the replacements takes all of these in turn.
    """
    number = 0
    for place in _places(value):
        for other in (*VALUES, None):
            number += 1
            if number % every:
                continue
            if other is None:
                yield json.dumps(_without(value, place))
            else:
                yield json.dumps(_with_mark(value, place)).replace(_MARK, other)


def damaged(data: bytes, count: int) -> Iterator[bytes]:
    """A file cut off, and with a wrong byte, at `count` places, half of them at its beginning."""
    draw = random.Random(len(data))
    for number in range(count):
        place = draw.randrange(min(len(data), 256 if number % 2 else len(data)))
        yield data[:place]
        yield data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]


def reads_or_refuses(read: Callable[[], Any], name: str, what: object) -> bool:
    """Check that a reader reads a file or refuses it by its name in one line; whether it reads it.

    Args:
        read: reads the file.
        name: what the line must have.
        what: what is wrong with the file, for this test's message.
    """
    try:
        read()
    except BadInputError as error:
        said = str(error)
        assert name in said, (_short(what), said[:300])
        assert "\n" not in said, (_short(what), said[:300])
        assert len(said) < LONGEST, (_short(what), said[:300])
        return False
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}"[:300], _short(what)) from error
    return True


def _short(what: object) -> object:
    return what if not isinstance(what, str | bytes) or len(what) < 1000 else what[:1000]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from _places(item, (*path, key))


def _with_mark(value: Any, place: tuple[Any, ...]) -> Any:
    if not place:
        return "\u0001"
    copy = value.copy()
    copy[place[0]] = _with_mark(value[place[0]], place[1:])
    return copy


def _without(value: Any, place: tuple[Any, ...]) -> Any:
    copy = value.copy()
    if len(place) == 1:
        del copy[place[0]]
    else:
        copy[place[0]] = _without(value[place[0]], place[1:])
    return copy
