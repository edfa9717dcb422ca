"""Recipes of the repository, in a checkout in which nothing was trained or fitted yet."""

from __future__ import annotations

import pathlib

import yaml

from cats_jax.specs.calibrations import MissingCalibrationError
from cats_jax.specs.recipe import Recipe, load_recipe


def load_before_fitting(path: pathlib.Path) -> Recipe:
    """A recipe; without its calibration, if that is fitted first, into runs/, and is not there."""
    try:
        return load_recipe(path)
    except MissingCalibrationError:
        named = yaml.safe_load(path.read_text(encoding="utf-8"))["calibration"]
        if not named.startswith("runs/"):
            raise
        return load_recipe(path, {"calibration": "none"})
