"""Calibrations of PRMs: a few numbers each, fitted on training questions, read from a file."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from .. import world
from ..errors import BadInputError, known_names, misspelt
from ..storage.reading import read_json, reading
from ..storage.rules import MAPPING, NUMBER, TEXT, check_entries, list_of

CalibrationValues = tuple[float, ...]
"""The values of a `search.Calibration`, in its order."""

Calibrations = tuple[tuple[str, CalibrationValues], ...]
"""Pairs of a PRM's label and its calibration."""

NAMES = (
    "intercept",
    "slope",
    "agreement",
    "likelihood",
    "unscored_intercept",
    "unscored_likelihood",
)
"""Names of the values. A file without the last three was fitted without the policy's likelihood."""

IDENTITY: CalibrationValues = (0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
"""Calibration that leaves scores as they are: the defaults of `search.Calibration`, copied because
importing it would load JAX."""

LIKELIHOOD = "-likelihood"
"""Ending of the names of shipped calibrations that weigh likelihoods in place of votes."""

_NUM_REQUIRED = 3

_SHIPPED = world.ASSETS / "calibrations"


class MissingCalibrationError(BadInputError):
    """A file of calibrations is not there."""


def load_calibrations(name: str | pathlib.Path, labels: Sequence[str] = ()) -> Calibrations:
    """The calibrations in a file written by `cats-jax calibrate`.

    Args:
        name: path of the file, or a name. The name of a policy of the embedded world gives the
            calibrations shipped for it; with "-likelihood", those that weigh likelihoods in place
            of votes. "none" gives the identity for all `labels`. Calibrations depend on the policy,
            because the value of votes and likelihoods does.
        labels: labels of PRMs, read for "none" only.

    Raises:
        MissingCalibrationError: there is no such file.
        BadInputError: the file was not written by `cats-jax calibrate`.
    """
    if name == "none":
        return tuple((label, IDENTITY) for label in labels)
    path = _path(name)
    if not path.is_file():
        hint = misspelt(str(name), [*shipped_calibrations(), "none"])
        raise (BadInputError if hint else MissingCalibrationError)(
            f"calibration {str(name)!r}: no such file: {hint}make one with `cats-jax calibrate`"
        )
    with _reading(path):
        rows = read_json(path)["prms"]
        check_entries(rows, dict.fromkeys(rows, MAPPING), "prms.")
        return tuple((label, _values(label, row)) for label, row in rows.items())


def fitted_on(name: str | pathlib.Path) -> frozenset[str]:
    """Digests of the questions that a file of calibrations was fitted on; empty if not recorded.

    Files of earlier versions record none. Shipped calibrations were fitted on the embedded world's
    training set.
    """
    if name == "none":
        return frozenset()
    path = _path(name)
    with _reading(path):
        content = {"texts": [], **read_json(path)}
        check_entries(content, {"texts": list_of(TEXT)})
        return frozenset(content["texts"])


def fitted_models(name: str | pathlib.Path) -> dict[str, Any]:
    """Fingerprints of the models that a file of calibrations was fitted to.

    Empty for a name, and for a file of an earlier version, which records none.
    """
    if name == "none" or str(name) in shipped_calibrations():
        return {}
    path = _path(name)
    with _reading(path):
        content = {"models": {}, **read_json(path)}
        check_entries(content, {"models": MAPPING})
        return dict(content["models"])


def _path(name: str | pathlib.Path) -> pathlib.Path:
    shipped = str(name) in shipped_calibrations()
    return _SHIPPED / f"{name}.json" if shipped else pathlib.Path(name)


def _reading(path: pathlib.Path) -> AbstractContextManager[None]:
    what = "is not a file of `cats-jax calibrate`"
    return reading(f"calibration {str(path)!r}", "make it anew, or name another", what)


def _values(label: str, row: Mapping[str, float]) -> CalibrationValues:
    given = NAMES if any(name in row for name in NAMES[_NUM_REQUIRED:]) else NAMES[:_NUM_REQUIRED]
    check_entries(row, dict.fromkeys(given, NUMBER), f"{label}: ")
    return with_defaults([float(row[name]) for name in given])


def with_defaults(values: Sequence[float]) -> CalibrationValues:
    """Calibration with the given first values; the identity gives the others."""
    return (*values, *IDENTITY[len(values) :])


def shipped_calibrations() -> tuple[str, ...]:
    """The embedded world's policies for which the package has calibrations."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.json")))


def calibration_of(label: str, calibrations: Calibrations, *, required: bool) -> CalibrationValues:
    """A PRM's calibration; the identity if the PRM has none and it is not `required`.

    Raises:
        BadInputError: the calibration is required but missing.
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
