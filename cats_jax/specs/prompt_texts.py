"""What prompts as data share: texts between tags, digests, and reading by name or from a file."""

from __future__ import annotations

import hashlib
import pathlib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from ..errors import BadInputError, known_names
from ..storage.yaml_file import checked_fields, naming
from ..storage.yaml_reading import load_yaml

_SHIPPED = pathlib.Path(__file__).with_name("prompts")

TAGS = ("question", "answer", "critique")
"""Beginnings of the tags between which texts stand in prompts of rewrites and comparisons."""

P = TypeVar("P")


def fenced(tag: str, text: str, tags: Sequence[str] = TAGS) -> str:
    """A hostile text between two tags, such as `<answer>`; it can't contain any of `tags`."""
    opening = re.compile(rf"<(?=[\s/]{{0,8}}(?:{'|'.join(tags)}))", re.IGNORECASE)
    return f"<{tag}>\n{opening.sub('&lt;', text)}\n</{tag}>"


def text_digests(**texts: str) -> dict[str, str]:
    """SHA-256 of each text, by its key."""
    return {key: hashlib.sha256(text.encode()).hexdigest() for key, text in texts.items()}


def load_prompts(kind: str, choice: str, made: type[P]) -> P:
    """The prompts of a .yaml file with the fields of `made`, or of a shipped one by its name.

    `kind` is what the prompts are for, in messages and in the name of the folder of `prompts`.

    Raises:
        BadInputError: an unknown name, or a file that breaks a rule.
    """
    path = pathlib.Path(choice)
    if path.suffix not in (".yaml", ".yml"):
        known = {file.stem: file for file in sorted((_SHIPPED / kind.replace(" ", "-")).iterdir())}
        if choice not in known:
            raise BadInputError(
                f"{kind} {choice!r} is unknown: {known_names(choice, known)}, or a .yaml file"
            )
        path = known[choice]
    where = f"{kind} file {str(path)!r}"
    values: dict[str, Any] = checked_fields(where, load_yaml(path, kind), made)
    with naming(where):
        return made(**{"name": path.stem, **values})
