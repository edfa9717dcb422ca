"""The recipe of a run: read from a file or a mapping, with some settings replaced by the caller."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BadInputError, quoted
from ..specs.recipe import Recipe, load_recipe, parse_recipe


@dataclass(frozen=True)
class Changes:
    """Settings in place of a recipe's; None keeps the recipe's.

    Attributes:
        strategies: labels of the recipe's strategies to run.
        num_candidates: values of N.
        prms: labels of the recipe's PRMs to use.
        seeds: run seeds.
        questions: number of questions of each data set.
        in_flight: number of questions searched at once.
    """

    strategies: tuple[str, ...] | None = None
    num_candidates: tuple[int, ...] | None = None
    prms: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    questions: int | None = None
    in_flight: int | None = None


UNCHANGED = Changes()
"""The recipe as it is."""


def read_recipe(
    recipe: str | os.PathLike[str] | Mapping[str, Any],
    changes: Changes = UNCHANGED,
    *,
    calibrated: bool = True,
) -> Recipe:
    """A checked recipe from the path of a YAML file, or from a mapping with such content.

    The name of a file is the default of the key `name`. Unless `calibrated`, the recipe's
    calibration is not read, and scores stay as they are.

    Raises:
        BadInputError: see `load_recipe`; or a label of `changes` is not in the recipe.
    """
    overrides = {
        name: value
        for name in ("num_candidates", "seeds", "in_flight")
        if (value := getattr(changes, name)) is not None
    }
    if not calibrated:
        overrides["calibration"] = "none"
    if isinstance(recipe, Mapping):
        loaded = parse_recipe({**recipe, **overrides})
    elif isinstance(recipe, str | os.PathLike):
        loaded = load_recipe(pathlib.Path(recipe), overrides)
    else:
        raise BadInputError(
            f"recipe={quoted(recipe)}: must be the path of a YAML file, or a mapping with its keys"
        )
    chosen: dict[str, Any] = {}
    for name in ("strategies", "prms"):
        labels = getattr(changes, name)
        if labels is not None:
            chosen[name] = _chosen(getattr(loaded, name), labels, name)
    if changes.questions is not None:
        chosen["questions"] = tuple(
            dataclasses.replace(spec, count=changes.questions) for spec in loaded.questions
        )
    return dataclasses.replace(loaded, **chosen)


def _chosen(specs: tuple[Any, ...], labels: tuple[str, ...], name: str) -> tuple[Any, ...]:
    known = {spec.label: spec for spec in specs}
    for label in labels:
        if label not in tuple(known):  # a list of a caller can't be a key
            raise BadInputError(
                f"--{name}: {label!r} is not in the recipe: it has {', '.join(known) or 'none'}"
            )
    return tuple(known[label] for label in labels)
