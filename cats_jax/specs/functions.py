"""Locates and loads a user's functions, which recipes name as `module:function`.

Loading a function runs the code of its module, so a recipe that names functions is code. A dry run
only locates them, by the files that Python would import.
"""

from __future__ import annotations

import ast
import importlib
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from ..errors import BadInputError, known_names, quoted

SHIPPED = {
    "confidence": "cats_jax.models.confidence:confidence_scorer",
    "chat-judge": "cats_jax.models.chat_judge:chat_judge",
}
"""Functions of this package that a recipe names in place of a PRM, by their short names."""

CHAT = "cats_jax.models.serving.chat:chat_policy"
"""The function of this package that makes a policy with `chat: true`.

Manifests and certificates of earlier versions have these names, so they must stay.
"""

AT_ENDPOINTS = (CHAT, SHIPPED["chat-judge"])
"""Functions of this package whose models are those of chat endpoints."""

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function_name(name: str) -> bool:
    """Whether a name has the form `module:function`."""
    return _NAME.fullmatch(name) is not None


def function_lines(
    strategies: Sequence[Any], policy: Any, prms: Sequence[Any], *, allowed: bool
) -> list[str]:
    """A line for each function that a recipe's specs name, with the file whose code a run executes.

    Raises:
        BadInputError: the recipe names a function and may not (`allowed`), or there is no such
            function.
    """
    named = [(f"strategy {spec.label!r}", spec.name) for spec in strategies]
    named += [("policy", policy.path), *((f"PRM {spec.label!r}", spec.path) for spec in prms)]
    ours = {*SHIPPED.values(), CHAT}
    found = [(what, name) for what, name in named if is_function_name(name) and name not in ours]
    if found and not allowed:
        what, name = found[0]
        raise BadInputError(
            f"{what}: {quoted(name)} is a function, and --no-functions refuses code: leave the "
            "option out if you trust the recipe"
        )
    return [f"{what} is code: {name} of {locate_function(name)}" for what, name in found]


def locate_function(name: str) -> str:
    """The file of a function that a recipe names as `module:function`; none of its code runs.

    Returns:
        The path of the file, or what Python calls a module without a file, such as "built-in".

    Raises:
        BadInputError: there is no such module, or its file has no such function.
    """
    module_name, _, function_name = name.partition(":")
    found = _find(module_name)
    if found is None:
        raise _no_module(name, module_name, "no such module")
    origin = found.origin or "a folder without code"
    if origin.endswith(".py"):
        _check_defined(name, pathlib.Path(origin), function_name)
    return origin


def load_function(name: str) -> Callable[..., Any]:
    """The function that a recipe names as `module:function`; the code of its module runs.

    Raises:
        BadInputError: the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    # The code of the module may raise any error.
    except Exception as error:
        raise _no_module(name, module_name, str(error) or type(error).__name__) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        public = {
            key: value for key, value in vars(module).items() if callable(value) and key[0] != "_"
        }
        own = [
            key for key, value in public.items() if getattr(value, "__module__", "") == module_name
        ]
        raise _no_function(name, own or [*public])
    return function


def _find(module_name: str) -> ModuleSpec | None:
    """Where Python would import a module from; unlike `find_spec`, this imports no parents."""
    path, found = None, None
    parts = module_name.split(".")
    for end in range(1, len(parts) + 1):
        part = ".".join(parts[:end])
        finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
        specs = (finder.find_spec(part, path, None) for finder in finders)
        try:
            found = next((spec for spec in specs if spec is not None), None)
        except KeyError:  # a folder without __init__.py, whose package is not imported
            found = ModuleSpec(part, None, is_package=True)
            found.submodule_search_locations = [f"{place}/{parts[end - 1]}" for place in path or ()]
        if found is None:
            return None
        path = found.submodule_search_locations
        if path is None and end < len(parts):
            return None
    return found


def _check_defined(name: str, path: pathlib.Path, function_name: str) -> None:
    """Raise BadInputError if the file of a module plainly has no such function."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise BadInputError(f"{name!r}: {str(path)!r} can't be read ({error})") from error
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    # A module may import all names of another one, or make names on access.
    if not names & {function_name, "*", "__getattr__"}:
        raise _no_function(name, sorted(key for key in names if key[0] != "_"))


def _no_module(name: str, module_name: str, said: str) -> BadInputError:
    said = " ".join(said.split())[:200]
    return BadInputError(
        f"{quoted(name)}: cannot import the module {quoted(module_name)} ({said}): install its "
        "package, or put its folder on PYTHONPATH"
    )


def _no_function(name: str, public: list[str]) -> BadInputError:
    module_name, _, function_name = name.partition(":")
    return BadInputError(
        f"{name!r}: module {module_name!r} has no function {function_name!r}: "
        f"{known_names(function_name, public)}"
    )
