"""Calibrations of PRMs: three numbers each, fitted on training questions, read from a file."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Sequence

from .. import world
from ..errors import BadInputError, known_names

Calibrations = tuple[tuple[str, tuple[float, float, float]], ...]
"""Pairs of a PRM's label and its intercept, slope, agreement; see `search.calibration`."""

IDENTITY = (0.0, 1.0, 0.0)
"""Leaves scores as they are; the same as `search.IDENTITY_CALIBRATION`, which would bring JAX."""

_SHIPPED = world.ASSETS / "calibrations"


def load_calibrations(name: str | pathlib.Path, labels: Sequence[str] = ()) -> Calibrations:
    """The calibrations of a file written by `cats-jax calibrate`.

    Args:
        name: the file, or a policy's name of the embedded world for those that are shipped:
            how much siblings' votes are worth depends on the policy that samples them. "none"
            leaves the scores of `labels` as they are.
        labels: of PRMs.

    Raises:
        BadInputError: no such file, or not of that kind.
    """
    if name == "none":
        return tuple((label, IDENTITY) for label in labels)
    shipped = _SHIPPED / f"{name}.json"
    path = shipped if shipped.is_file() else pathlib.Path(name)
    if not path.is_file():
        raise BadInputError(
            f"calibration {str(name)!r}: no such file: make one with `cats-jax calibrate`"
        )
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["prms"]
        found = tuple(
            (label, (float(row["intercept"]), float(row["slope"]), float(row["agreement"])))
            for label, row in rows.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(
            f"calibration {str(path)!r} is not a file of `cats-jax calibrate`: {error!r}"
        ) from error
    for label, values in found:
        if not all(math.isfinite(value) for value in values):
            raise BadInputError(f"calibration {str(path)!r}: {label}: {values} must be finite")
    return found


def shipped_calibrations() -> tuple[str, ...]:
    """The embedded world's policies for which the package has calibrations."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def calibration_of(
    label: str, calibrations: Calibrations, *, required: bool
) -> tuple[float, float, float]:
    """A PRM's calibration; the identity if there are none and none is required.

    Args:
        label: of the PRM.
        calibrations: of a recipe.
        required: whether the strategy ranks by calibrated scores, or sees the calibration.

    Raises:
        BadInputError: required, but missing.
    """
    known = dict(calibrations)
    if label in known:
        return known[label]
    if not required:
        return IDENTITY
    has = known_names(label, sorted(known)) if known else "the recipe has no 'calibration'"
    raise BadInputError(
        f"PRM {label!r} has no calibration, which the strategy reads ({has}): name a file of "
        "`cats-jax calibrate` as 'calibration', or 'none'"
    )
