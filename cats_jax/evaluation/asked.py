"""What prompts and questions of a run depend on beside weights and settings: files and contexts.

The entry `asked` of a manifest keeps it. Runs without this entry, of earlier versions, can still be
continued.
"""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any

from ..models.digests import file_digest, text_digests
from ..models.folders import MissingModelError
from ..models.serving.token_engine import NO_EFFECT
from ..models.source import model_folder
from ..specs.functions import is_function_name
from ..specs.models import PolicySpec, PrmSpec
from ..specs.recipe import Recipe
from ..storage.reading import read_json

FORMAT_FILE = "format file"
"""Key of the digest of a format's .yaml file."""


def asked_of(recipe: Recipe) -> dict[str, Any]:
    """The entry `asked` of a recipe's manifest.

    Args:
        recipe: the recipe as its user wrote it; contexts of a resolved one depend on the questions.

    Returns:
        By "policy" and "prm LABEL", `max_model_len` and the digests of the files of the tokenizer,
        the chat template, the sampling defaults and the format; by "questions LABEL", the digest of
        a data file.
    """
    found = {"policy": asked_of_model(recipe.policy)}
    found |= {f"prm {spec.label}": asked_of_model(spec) for spec in recipe.prms}
    for spec in recipe.questions:
        if spec.file is not None and pathlib.Path(spec.file).is_file():
            found[f"questions {spec.label}"] = {"file": file_digest(pathlib.Path(spec.file))}
    return found


def asked_of_model(spec: PolicySpec | PrmSpec) -> dict[str, Any]:
    """The entry of one model, see `asked_of`."""
    files: dict[str, str] = {}
    if not is_function_name(spec.path):
        # Without a folder, the models are from a `ModelSource` of another kind.
        with contextlib.suppress(MissingModelError):
            files = text_digests(model_folder(spec))
    if spec.format.endswith((".yaml", ".yml")):
        files[FORMAT_FILE] = file_digest(pathlib.Path(spec.format))
    found: dict[str, Any] = {"max_model_len": spec.max_model_len, "files": files}
    if files and (unused := _unused_defaults(spec)):
        found["unused defaults"] = unused
    return found


def _unused_defaults(spec: PolicySpec | PrmSpec) -> dict[str, Any]:
    """The penalties in generation_config.json that a policy on a server does without.

    Runs of earlier versions, whose samples had these penalties, can't be continued without them.
    """
    if not isinstance(spec, PolicySpec) or not spec.backend.startswith("http"):
        return {}
    file = model_folder(spec) / "generation_config.json"
    known = read_json(file) if file.is_file() else {}
    if not isinstance(known, dict):
        return {}
    return {
        name: known[name]
        for name, value in NO_EFFECT.items()
        if known.get(name) not in (None, value)
    }
