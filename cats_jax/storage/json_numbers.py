"""Numbers of other classes in JSON: a policy or PRM may report those of NumPy."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


def plain(number: Any) -> int | float:
    """A number of a class that JSON does not know as an int or a float.

    Raises:
        TypeError: it is not a number.
    """
    if not isinstance(number, Real):
        raise TypeError(f"{type(number).__name__} is no JSON")
    return int(number) if isinstance(number, Integral) else float(number)
