"""Manifests, which record how a folder of results was made, and their comparison."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import pathlib
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..errors import BadInputError
from ..version import __version__
from . import durable
from .former_names import CHAT_JUDGE, CHAT_JUDGE_FORMAT, FEATURES, SETTINGS, option_names

MANIFEST = "manifest.json"

_DIGESTS = {"sha256": "the content changed", "answers_sha256": "the gold answers changed"}
"""Keys of digests in manifests, with the messages for values that differ in a digest only."""

SCHEMA = 1
"""Version of everything in a run folder; a reader refuses any other."""

_VERSIONED = (
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
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The manifest of a run: configuration, models, questions, seeds, versions and git commit.

    `notes` are lines for readers of the run, which reports repeat.
    """
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dict(config),
        "models": dict(models),
        "questions": dict(questions),
        "seeds": list(seeds),
        "notes": list(notes),
        "versions": {**_installed_versions(), "cats-jax": __version__},
        "git": _git_hash(),
    }


def begin_folder(
    folder: pathlib.Path,
    kind: str,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    names: Iterable[str],
    *,
    filled: bool,
) -> None:
    """Write the manifest of a folder without results, or check that a run may continue in it.

    The two manifests must agree in the entries `names`. If the folder, which this process has
    locked, has no results (`filled`), as after a failed start, the new manifest replaces the old
    one.

    Raises:
        BadInputError: the manifests differ and there are results, or the folder has files but no
            manifest.
        OSError: the manifest can't be written.
    """
    if old is not None and filled:
        plain = json.loads(json.dumps(new))
        changes = [
            change for name in names for change in differences(old.get(name), plain.get(name), name)
        ]
        if not changes:
            return
        shown = "; ".join(changes[:4])
        more = f"; and {len(changes) - 4} more" if len(changes) > 4 else ""
        raise BadInputError(
            f"{kind} {str(folder)!r} has results of other settings: {shown}{more}. Use the "
            "settings that it has, or choose another output folder"
        )
    strangers = {path.name for path in folder.iterdir()} - {durable.LOCK, MANIFEST + ".new"}
    if old is None and strangers:
        raise BadInputError(
            f"{str(folder)!r} holds {min(strangers)!r} but no {MANIFEST}, so it is no {kind}: "
            "choose another output folder"
        )
    durable.replace_json(folder / MANIFEST, new)


def with_current_names(value: Any, parent: str = "") -> Any:
    """A manifest of an earlier version with the current names of its entries, see `former_names`.

    A model behind a server has null for `device` and `num_threads`. A missing entry counts as null,
    see `differences`. `value` is a manifest, or a JSON value in one at the key `parent`.
    """
    if isinstance(value, list):
        if parent in ("feature_names", "excluded_features"):
            return [
                FEATURES.get(entry, entry) if isinstance(entry, str) else entry for entry in value
            ]
        return [with_current_names(entry, parent) for entry in value]
    if not isinstance(value, dict):
        return value
    if parent in ("policy", "prms") and str(value.get("backend")).startswith("http"):
        value = {**value, "device": None, "num_threads": None}
    if parent == "prms" and all(value.get(name) == entry for name, entry in CHAT_JUDGE.items()):
        value = {**value, "format": CHAT_JUDGE_FORMAT}
    if parent == "strategies":
        value = _with_current_options(value)
    return {
        SETTINGS.get((parent, name), name): with_current_names(entry, name)
        for name, entry in value.items()
    }


def _with_current_options(strategy: dict[str, Any]) -> dict[str, Any]:
    """A strategy's entry with the current names of its options, which are sorted pairs."""
    options = strategy.get("options")
    if not isinstance(options, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in options
    ):
        return strategy
    names = option_names(str(strategy.get("name")))
    pairs = [[names.get(name, name), value] for name, value in options]
    return {**strategy, "options": sorted(pairs, key=lambda pair: pair[0])}


def differences(old: Any, new: Any, name: str) -> list[str]:
    """The differences of two JSON values, as "name: old -> new"; a missing entry equals null.

    A digest does not show what changed. So the difference of a digest is reported only if the other
    entries of its mapping agree.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        changes = {
            key: differences(old.get(key), new.get(key), f"{name}.{key}")
            for key in sorted({*old, *new})
        }
        plain = [change for key in changes if key not in _DIGESTS for change in changes[key]]
        if plain:
            return plain
        return [f"{name}: {said}" for key, said in _DIGESTS.items() if changes.get(key)]
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


@functools.cache
def _installed_versions() -> dict[str, str]:
    """Those of Python, the platform and the packages; looked up once per process."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _VERSIONED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _git_hash() -> str | None:
    """Commit of the package's checkout, with "+" if it has changes; None outside a checkout."""
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
