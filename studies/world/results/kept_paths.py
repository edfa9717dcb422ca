"""Scores and grades of the whole paths of a best-of-N run, kept without texts and trees."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import numpy as np

from cats_jax.reporting.groups import groups
from cats_jax.reporting.stopping_thresholds import path_outcomes
from cats_jax.runs.folder import read_run

NAME = "paths-weak.npz"
"""Name of the file in the folder of the kept rows."""


def keep_paths(folder: pathlib.Path, rows: pathlib.Path) -> pathlib.Path:
    """Write the paths of each PRM of a run of best-of-N with trees; returns the file's path.

    Raises:
        BadInputError: `folder` is no run folder, or a row lacks its tree.
    """
    run = read_run(folder)
    arrays: dict[str, np.ndarray] = {}
    for group in groups(run.rows):
        scores, right = path_outcomes(run, group)
        arrays[f"scores {group.prm}"] = scores.astype(np.float32)
        arrays[f"right {group.prm}"] = right
    path = rows / NAME
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]
    return path


def load_paths(rows: pathlib.Path) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """By PRM, scores f64[Q, N] (-1 without an answer) and grades bool[Q, N], in order."""
    with np.load(rows / NAME) as kept:
        prms = [name.removeprefix("scores ") for name in kept if name.startswith("scores ")]
        return {
            prm: (kept[f"scores {prm}"].astype(np.float64), kept[f"right {prm}"]) for prm in prms
        }
