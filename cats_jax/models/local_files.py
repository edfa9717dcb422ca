"""How transformers may read a model folder: from the disk alone, and without running its code.

A model folder can bring Python files and name them in the `auto_map` of its configuration. By
default transformers offers on the terminal to run them, so every `from_pretrained` forbids it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from ..storage.reading import parse_json, read_text, reading
from ..storage.rules import INTEGER, TEXT, Rule, check_entries, list_of

LOCAL_FILES = {"local_files_only": True, "trust_remote_code": False}
"""Arguments of every `from_pretrained` of an `Auto` class of transformers."""

_SIZES = {
    "num_hidden_layers": 10_000,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
    "vocab_size": 1 << 24,
    "max_position_embeddings": 1 << 31,
}
"""The largest value of a size in config.json; transformers makes layers of whatever it says."""

_IDS = Rule(
    "a token id, a list of these or null",
    lambda value: value is None or INTEGER.holds(value) or list_of(INTEGER).holds(value),
)

_NAMES = Rule("a list of texts or null", lambda value: value is None or list_of(TEXT).holds(value))

_RULES: dict[str, dict[str, Rule]] = {
    "config.json": {"eos_token_id": _IDS, "architectures": _NAMES},
    "generation_config.json": {"eos_token_id": _IDS},
    "tokenizer_config.json": {},
    "special_tokens_map.json": {},
}
"""The small JSON files of a folder, with rules for entries that need not be there."""


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """The content of a folder's config.json, with the sizes of its model checked.

    The folder's other small JSON files are parsed, too, so that an error in one is one line.

    Raises:
        BadInputError: a file is not a JSON object, is nested too deeply, or has a number that is
            too large, or a size is not a whole number in its range.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, rules in _RULES.items():
        file = folder / name
        if name != "config.json" and not file.is_file():
            continue
        with reading(repr(str(file)), "download it again", "can't be read as a configuration"):
            # A tokenizer without a limit has model_max_length 10**30, written out with its digits.
            content = parse_json(read_text(file), any_integer=name != "config.json")
            if not isinstance(content, dict):
                raise ValueError("it must be a mapping")
            check_entries(content, {key: rules[key] for key in rules if key in content})
            if name == "config.json":
                check_sizes(content, "")
                check_sizes(content.get("text_config") or {}, "text_config.")
            found[name] = content
    return found["config.json"]


def check_sizes(config: Mapping[str, Any], where: str) -> None:
    """Raise ValueError if a size is not a whole number in its range; `where` precedes its name."""
    for name, most in _SIZES.items():
        value = config.get(name)
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            raise ValueError(f"{where}{name} must be a whole number from 1 to {most}")


def ties_embeddings(config: Mapping[str, Any]) -> bool:
    """Whether the language-model head is the embedding, by config.json or its model type's default.

    Call it only if it matters: for a default, transformers is imported.
    """
    nested = config.get("text_config")
    said = {**config, **(nested if isinstance(nested, dict) else {})}.get("tie_word_embeddings")
    if said is not None or "model_type" not in config:
        return bool(said)
    from transformers import AutoConfig

    try:
        return bool(AutoConfig.for_model(str(config["model_type"])).tie_word_embeddings)
    except (ValueError, AttributeError):  # a model type that transformers does not know
        return False


def reason_of(error: Exception) -> str:
    """Why transformers can't read a folder, in one line.

    Its own message on a folder with Python code advises `trust_remote_code=True`, which no caller
    here can set.
    """
    message = str(error).strip()
    if "trust_remote_code" in message:
        return (
            "it needs Python code from the folder itself (auto_map), which is never run: take a "
            "model type that transformers implements"
        )
    return message.splitlines()[0] if message else type(error).__name__
