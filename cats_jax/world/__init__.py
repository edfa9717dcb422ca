"""The embedded world: a small reasoning task with its policies and process reward models.

Everything here is shipped with the package and loads offline::

    from cats_jax import world
    from cats_jax.world import task

    questions = task.problems("validation", 50)
    world.policy_path("weak")      # a Hugging Face folder
    world.prm_path("exact")        # one of world.PRM_NAMES

Importing this module loads neither torch nor transformers. In the repository, `python -m
studies.world.models.build` makes the assets anew. ``assets/world.json`` has the measured figures of
all models.
"""

from __future__ import annotations

import pathlib

__all__ = ["ASSETS", "POLICY_NAMES", "PRM_FAMILY", "PRM_NAMES", "policy_path", "prm_path"]

ASSETS = pathlib.Path(__file__).parent / "assets"
"""The folder of the shipped models and their figures."""

POLICY_NAMES: tuple[str, ...] = ("weak", "strong")

PRM_FAMILY: tuple[str, ...] = (
    "exact",
    "sparse",
    "pruned-50",
    "monte-carlo",
    "pruned-80",
    "labels-only",
)
"""The process reward models that learned from the errors of the policy ``weak`` only, best to
worst: by how often they rank a right sibling of that policy first."""

PRM_NAMES: tuple[str, ...] = (*PRM_FAMILY, "on-policy", "strong-errors")
"""All process reward models. ``on-policy`` learned from the errors of both policies.
``strong-errors`` is ``on-policy`` with further training on the errors of the policy ``strong``."""


def policy_path(name: str) -> pathlib.Path:
    """The Hugging Face folder of a policy, ``weak`` or ``strong``."""
    return _model_path("policies", "policy", name, POLICY_NAMES)


def prm_path(name: str) -> pathlib.Path:
    """The Hugging Face folder of a process reward model, one of `PRM_NAMES`."""
    return _model_path("prms", "PRM", name, PRM_NAMES)


def _model_path(folder: str, kind: str, name: str, known: tuple[str, ...]) -> pathlib.Path:
    if name not in known:
        raise ValueError(
            f"unknown {kind} {name!r} of the embedded world; known: {', '.join(known)}"
        )
    path = ASSETS / folder / name
    if not (path / "config.json").is_file():
        raise FileNotFoundError(
            f"the embedded world's {kind} {name!r} is not at {path}; reinstall the package, or "
            "make it in the repository with: python -m studies.world.models.build"
        )
    return path
