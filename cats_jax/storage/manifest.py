"""What a folder of results says of how it was made, and where two of these differ."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..version import __version__

SCHEMA = 1
"""Version of everything in a run folder; a reader refuses any other."""

_VERSIONED = (
    "cats-jax",
    "jax",
    "flax",
    "numpy",
    "scipy",
    "torch",
    "transformers",
    "math-verify",
    "sympy",
)


def make_manifest(
    *,
    config: Mapping[str, Any],
    models: Mapping[str, Any],
    questions: Mapping[str, Any],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """Everything needed to know what was run, and to refuse going on with something else."""
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dict(config),
        "models": dict(models),
        "questions": dict(questions),
        "seeds": list(seeds),
        "versions": _versions(),
        "git": _git_hash(),
    }


def differences(old: Any, new: Any, name: str) -> list[str]:
    """Where two JSON values differ, as "name: old -> new"."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            change
            for key in sorted({*old, *new})
            for change in differences(old.get(key), new.get(key), f"{name}.{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            change
            for index, (one, two) in enumerate(zip(old, new, strict=True))
            for change in differences(one, two, f"{name}[{index}]")
        ]
    return [] if old == new else [f"{name}: {_shorten(old)} -> {_shorten(new)}"]


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**versions, "cats-jax": __version__}


def _git_hash() -> str | None:
    """Commit of the checkout this package runs from, "+" if changed; None outside a checkout."""
    root = pathlib.Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
