"""Loading of a user's functions, which recipes name as `module:function`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from ..errors import BadInputError, known_names

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function_name(name: str) -> bool:
    """Whether a name has the form `module:function`."""
    return _NAME.fullmatch(name) is not None


def load_function(name: str) -> Callable[..., Any]:
    """The function that a recipe names as `module:function`.

    Raises:
        BadInputError: the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise BadInputError(
            f"{name!r}: cannot import the module {module_name!r} ({error}): install its package, "
            "or put its folder on PYTHONPATH"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise BadInputError(
            f"{name!r}: module {module_name!r} has no function {function_name!r}: "
            f"{known_names(function_name, public)}"
        )
    return function
