"""How a run asks its models, and its data files: what weights and settings do not say.

A manifest keeps it beside the models, as runs of earlier versions go on without it.
"""

from __future__ import annotations

import pathlib
from typing import Any

from ..models.digests import file_digest, text_digests
from ..models.folders import MissingModelError
from ..models.source import model_folder
from ..specs.functions import is_function_name
from ..specs.models import PolicySpec, PrmSpec
from ..specs.recipe import Recipe

FORMAT_FILE = "format file"
"""Name under which the digest of a format's .yaml file stands."""


def asked_of(recipe: Recipe) -> dict[str, Any]:
    """What a recipe asks of its models and of which content its data files are.

    Args:
        recipe: the recipe as its user wrote it. A settled one has contexts that depend on the
            questions.

    Returns:
        By "policy" and "prm LABEL", `max_model_len` and the digests of the files that make texts of
        a model's tokens; by "questions LABEL", the digest of a data file.
    """
    found = {"policy": _of_model(recipe.policy)}
    found |= {f"prm {spec.label}": _of_model(spec) for spec in recipe.prms}
    for spec in recipe.questions:
        if spec.file is not None and pathlib.Path(spec.file).is_file():
            found[f"questions {spec.label}"] = {"file": file_digest(pathlib.Path(spec.file))}
    return found


def _of_model(spec: PolicySpec | PrmSpec) -> dict[str, Any]:
    files: dict[str, str] = {}
    if not is_function_name(spec.path):
        try:
            files = text_digests(model_folder(spec))
        except MissingModelError:  # the models are from a `ModelSource` of another kind
            files = {}
    if spec.format.endswith((".yaml", ".yml")):
        files[FORMAT_FILE] = file_digest(pathlib.Path(spec.format))
    return {"max_model_len": spec.max_model_len, "files": files}
