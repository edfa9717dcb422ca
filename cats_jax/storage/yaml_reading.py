"""YAML documents of bounded size, with the scalars of YAML 1.2 and without duplicate keys.

PyYAML reads YAML 1.1, in which `1:30` is 90, `010` is 8 and `no` is false. It takes the last of two
equal keys without an error. A few lines of aliases of aliases can stand for billions of values.
"""

from __future__ import annotations

import math
import pathlib
import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode

from ..errors import BadInputError
from .reading import MAX_DEPTH, parse_integer, read_text, reason

MAX_BYTES = 1 << 20
"""Most bytes of a file: 1 MiB."""

MAX_VALUES = 20_000
"""Most values of a document, including those that aliases stand for."""

MAX_CHARACTERS = 1 << 20
"""Most characters of a document's values, including those that aliases stand for."""

_TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"
_MERGE = "tag:yaml.org,2002:merge"


def load_yaml(path: str | pathlib.Path, what: str) -> Any:
    """The content of a YAML file; messages call it by `what`, the kind of file.

    Raises:
        BadInputError: the file does not exist, or is not valid YAML within the limits.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise BadInputError(f"{what} {str(path)!r} is a folder: name one of the .yaml files in it")
    if not path.is_file():
        raise BadInputError(f"{what} {str(path)!r} does not exist: check the path")
    try:
        return _parse(read_text(path, MAX_BYTES))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        said = error.problem or error.context
        raise BadInputError(
            f"{what} {str(path)!r}{line} is not valid YAML: {said}: mend it"
        ) from error
    # The parser raises RecursionError for a document of brackets.
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(
            f"{what} {str(path)!r} is not valid YAML: {reason(error)}: mend it"
        ) from error


def _parse(text: str) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """A safe loader that reads plain scalars as YAML 1.2 does and refuses what is ambiguous."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - of the base class
    _composed = 0
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._composed += 1
        self._depth += 1
        if self._composed > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES} values")
        # Checked here already, because the scanner's time grows with the square of the depth.
        if self._depth > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise _error(key, "a key must be a text or a number")
            if key.value in seen:
                raise _error(key, f"key {key.value!r:.80} occurs twice")
            seen.add(key.value)
        return node


def _check_size(root: Node) -> None:
    """Raise ValueError if the values that the document stands for exceed the limits."""
    sizes: dict[int, tuple[int, int, int]] = {}
    open_nodes: set[int] = set()

    def size(node: Node) -> tuple[int, int, int]:
        """Values, characters and depth under a node."""
        if isinstance(node, ScalarNode):
            return 1, len(node.value), 1
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in open_nodes:
            raise ValueError("an alias refers to a value that contains it")
        open_nodes.add(id(node))
        children = node.value
        if isinstance(node, MappingNode):
            children = [child for pair in children for child in pair]
        found = [size(child) for child in children]
        open_nodes.discard(id(node))
        values = 1 + sum(each[0] for each in found)
        characters = sum(each[1] for each in found)
        depth = 1 + max((each[2] for each in found), default=0)
        if values > MAX_VALUES or characters > MAX_CHARACTERS:
            raise ValueError(
                f"its aliases stand for more than {MAX_VALUES} values or {MAX_CHARACTERS} "
                "characters"
            )
        if depth > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        sizes[id(node)] = values, characters, depth
        return sizes[id(node)]

    size(root)


def _error(node: Node, problem: str) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_NULL = ("null", "Null", "NULL", "~", "")
_AMBIGUOUS = re.compile(
    r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|[-+]?0[0-9]+|[-+]?[0-9]+(_[0-9]+)+"
    r"|[-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?"
)
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def _scalar(loader: yaml.SafeLoader, node: Node) -> Any:
    """The value of a plain scalar, by the core schema of YAML 1.2."""
    text = node.value
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _AMBIGUOUS.fullmatch(text):
        raise _error(
            node,
            f"{text!r:.80} means different things in different versions of YAML: write true, "
            "false or a decimal number, or a text in quotes",
        )
    if _INTEGER.fullmatch(text):
        return _number(node, parse_integer, text)
    if _FLOAT.fullmatch(text):
        return _number(node, float, text)
    if _NOT_FINITE.fullmatch(text):
        raise _error(node, f"{text!r} is not a finite number")
    return _text(loader, node)


def _number(node: Node, read: Any, text: str) -> Any:
    try:
        value = read(text)
    except ValueError as error:
        raise _error(node, str(error)) from error
    if not math.isfinite(value):
        raise _error(node, f"{text!r:.80} is too large")
    return value


def _text(loader: yaml.SafeLoader, node: Node) -> str:
    text = node.value
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise _error(node, "a text has a character that no file can have (NUL or half of a pair)")
    return text


def _typed(loader: yaml.SafeLoader, node: Node) -> Any:
    """A scalar with a tag such as `!!int`; the value must have this type without the tag, too."""
    value = _scalar(loader, node)
    if node.tag.rsplit(":", 1)[-1] != _TAG_OF[type(value)]:
        raise _error(node, f"{node.value!r:.80} is not of the type that its tag names")
    return value


_TAG_OF = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}
_PLAIN = "tag:cats-jax:plain"

# One resolver for all plain scalars, whatever they begin with; those in quotes are texts.
_Loader.yaml_implicit_resolvers = {
    None: [(_MERGE, re.compile(r"<<\Z")), (_PLAIN, re.compile(r"", re.DOTALL))]
}
_Loader.yaml_constructors = {
    _PLAIN: _scalar,
    "tag:yaml.org,2002:str": _text,
    **{f"tag:yaml.org,2002:{name}": _typed for name in ("bool", "int", "float", "null")},
    "tag:yaml.org,2002:seq": yaml.SafeLoader.construct_yaml_seq,
    "tag:yaml.org,2002:map": yaml.SafeLoader.construct_yaml_map,
    None: yaml.SafeLoader.construct_undefined,
}
