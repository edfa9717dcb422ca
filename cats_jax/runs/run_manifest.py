"""The manifest of a run: the rules that readers check, and its changes when a run continues."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..errors import BadInputError
from ..storage import durable
from ..storage.manifest import MANIFEST, SCHEMA, begin_folder, with_current_names
from ..storage.reading import read_json, reading
from ..storage.rules import (
    COUNT,
    INTEGER,
    MAPPING,
    TEXT,
    check_entries,
    list_of,
    mapping_of,
    mapping_with,
    optional,
)

_MANIFEST = {
    "created": TEXT,
    "versions": MAPPING,
    "seeds": list_of(INTEGER),
    "models": MAPPING,
    "questions": MAPPING,
    "config": MAPPING,
}
_CONFIG = {
    "name": TEXT,
    "policy": MAPPING,
    "strategies": list_of(MAPPING),
    "prms": list_of(MAPPING),
    "questions": list_of(MAPPING),
}
_DESCRIBED = _CONFIG | {
    "strategies": list_of(mapping_with(name=TEXT, label=TEXT)),
    "prms": list_of(mapping_with(label=TEXT)),
}
_PARTS = {
    "config": _CONFIG | {"max_depth": COUNT, "budget": optional(COUNT)},
    "models": {"policy": MAPPING},
    "questions": {"source": TEXT},
}

_LATER = {
    **dict.fromkeys(("revisions", "formats", "asked", "contents"), optional(MAPPING)),
    **dict.fromkeys(("fitted_on", "chosen_on"), optional(COUNT)),
    "texts": optional(list_of(TEXT)),
    "spent": optional(mapping_of(list_of(TEXT))),
}
"""Entries that a run may lack."""

# Entries that must be equal when a run is resumed; versions and times may differ.
_IDENTITY = ("schema", "config", "models", "questions", "revisions", "until_certified")

_SPENT = ("texts", "spent", "fitted_on", "chosen_on")


def read(folder: pathlib.Path) -> dict[str, Any] | None:
    """The manifest of a run folder, or None if there is none; BadInputError if it is damaged."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    with reading(repr(str(path)), "copy it anew", "is not a manifest of a run"):
        manifest = with_current_names(read_json(path))
        schema, config, _ = manifest["schema"], manifest["config"], manifest["config"]["name"]
        if isinstance(config.get("questions"), dict):  # of a run of an earlier version
            config["questions"] = [config["questions"]]
    if schema != SCHEMA:
        raise BadInputError(
            f"{str(path)!r} has schema {schema!r:.80}, this version reads {SCHEMA}: use the "
            "version of cats-jax that wrote it"
        )
    return manifest


def check(folder: pathlib.Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadInputError if an entry that readers know is of another type; some may be missing."""
    with _reading(folder):
        check_entries(manifest, _MANIFEST)
        check_entries({name: manifest.get(name) for name in _LATER}, _LATER)
        for name, rules in _PARTS.items():
            known = {entry: rule for entry, rule in rules.items() if entry in manifest[name]}
            check_entries(manifest[name], known, f"{name}.")


def check_described(folder: pathlib.Path, manifest: Mapping[str, Any]) -> None:
    """Raise BadInputError unless the manifest has all that tables and merging read."""
    with _reading(folder):
        for name, rules in (_PARTS | {"config": _DESCRIBED}).items():
            check_entries(manifest[name], rules, f"{name}.")


def _reading(folder: pathlib.Path) -> AbstractContextManager[None]:
    what = f"is no run folder: its {MANIFEST} is that of something else, or damaged"
    return reading(repr(str(folder)), "copy it anew", what)


def begin(
    folder: pathlib.Path, old: Mapping[str, Any] | None, new: Mapping[str, Any], *, filled: bool
) -> None:
    """Write the manifest of a run, or check that the run in the folder may be continued.

    `filled` says whether the folder has rows, and `old` is its manifest, or None.

    Raises:
        BadInputError: the folder is another run's.
    """
    # Runs of earlier versions lack the entry "asked", and can be continued.
    names = (*_IDENTITY, "asked") if old and "asked" in old else _IDENTITY
    begin_folder(folder, "run folder", old, new, names, filled=filled)
    if old and filled:
        check(folder, old)
        _spend(folder, old, new)


def _spend(folder: pathlib.Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Add the spent questions of a continued run to its manifest, which may not know all of them.

    They also hold for the existing rows, because questions and settings are the same.
    """
    known = {name: new[name] for name in _SPENT if name in new}
    for name in ("fitted_on", "chosen_on"):  # numbers of questions
        known |= {name: max(known[name], old.get(name) or 0)} if name in known else {}
    if "spent" in known:
        before = old.get("spent") or {}
        digests = known["spent"].items()
        known["spent"] = {key: sorted({*all_, *before.get(key, ())}) for key, all_ in digests}
    if any(old.get(name) != value for name, value in known.items()):
        durable.replace_json(folder / MANIFEST, {**old, **known})
