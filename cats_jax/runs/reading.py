"""Reads several run folders for a report, which also lists the broken ones."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from ..errors import BadInputError
from . import run_manifest
from .folder import RunFolder, read_run


def read_runs(folders: Sequence[pathlib.Path]) -> tuple[list[RunFolder], list[str]]:
    """Read run folders, each once, and leave out those that can't be read or have no rows.

    Returns:
        The runs, and for each folder that was left out one line with the reason.

    Raises:
        BadInputError: there is no run to report. The message has the reason for each folder.
    """
    runs: list[RunFolder] = []
    skipped: list[str] = []
    for folder in {path.resolve(): path for path in folders}.values():
        try:
            runs.append(_read(folder))
        except BadInputError as error:
            skipped.append(str(error))
    if not runs:
        raise BadInputError("; ".join(skipped))
    return runs, skipped


def _read(folder: pathlib.Path) -> RunFolder:
    if folder.is_file():
        raise BadInputError(f"{str(folder)!r} is a file: name a run folder, such as runs/NAME")
    try:
        run = read_run(folder)
    except OSError as error:
        raise BadInputError(f"{str(folder)!r} can't be read ({error.strerror})") from error
    run_manifest.check_described(run.folder, run.manifest)
    if not run.rows:
        raise BadInputError(f"{str(folder)!r} has no rows yet: run `cats-jax evaluate` first")
    return run
