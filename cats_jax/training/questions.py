"""Training questions of controllers: the simulator of the embedded world, or step banks."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import search
from search import bank as search_bank
from search import simulation

from ..bank.build import world_version
from ..bank.layout import (
    LoadedBank,
    check_disjoint,
    check_same_models,
    load_bank,
    without_prm,
)
from ..bank.store import read_manifest
from ..datasets.digests import text_digest
from ..errors import BadInputError, known_names
from ..specs.calibrations import Calibrations, fitted_models, load_calibrations
from ..specs.recipe import PolicySpec
from ..world.simulator import SIMULATOR_FILE, load_simulator, simulator_names

_HELD_OUT = 5
"""Without a bank for validation, one question in this many is held out of training: a fixed random
choice, because the levels of a bank's questions may follow a pattern."""


@dataclass(frozen=True)
class TrainingQuestions:
    """Questions to train on, and held-out questions to compare controllers on, all in the graph.

    Attributes:
        tables: tables of the training questions; pass these arrays to `jax.jit` as an argument.
        held_out: tables of the held-out questions.
        held_out_ids: ids of the held-out questions; empty for a simulator.
        held_out_texts: digests of the held-out questions' texts; empty for a simulator.
        max_depth: most steps of a path.
        info: source of the questions, as JSON values for the checkpoint.
    """

    environment: search.Environment
    tables: Any
    held_out: Any
    held_out_ids: tuple[str, ...]
    max_depth: int
    prms: tuple[str, ...]
    info: dict[str, Any]
    held_out_texts: tuple[str, ...] = ()


def simulator_questions(prms: Sequence[str] | None = None) -> TrainingQuestions:
    """Training questions drawn at random by the simulator of the embedded world.

    Args:
        prms: names of the PRMs to use; default: all.

    Raises:
        BadInputError: there is no simulator, or it has no such PRM.
    """
    try:
        world, labels = load_simulator(), tuple(simulator_names()["prms"])
    except (FileNotFoundError, ValueError) as error:
        raise BadInputError(str(error)) from error
    chosen = labels if prms is None else tuple(prms)
    for label in chosen:
        if label not in labels:
            raise BadInputError(f"the simulator has no PRM {label!r}: {known_names(label, labels)}")
    rows = np.array([labels.index(label) for label in chosen])
    world = world.replace(
        sparsity_total=world.sparsity_total[rows],
        sparsity_last_layer=world.sparsity_last_layer[rows],
        scores=jax.tree.map(lambda leaf: leaf[rows], world.scores),
    )
    return TrainingQuestions(
        environment=simulation.ENVIRONMENT,
        tables=world,
        held_out=world,
        held_out_ids=(),
        max_depth=int(world.max_depth),
        prms=chosen,
        info={"source": "simulator of the embedded world", "simulator": SIMULATOR_FILE.name},
    )


def bank_questions(
    folder: pathlib.Path,
    *,
    validation: pathlib.Path | None = None,
    calibration: str | None = None,
    prms: Sequence[str] | None = None,
    sampling: Sequence[search.Sampling],
    calls_prm: bool = True,
) -> TrainingQuestions:
    """Training questions from a step bank, with held-out questions.

    Args:
        folder: folder of the bank to train on.
        validation: folder of a bank of held-out questions; default: a random fifth of `folder`.
        calibration: file of `cats-jax calibrate`, or name of a policy of the embedded world.
        prms: labels of the PRMs to use; default: all.
        sampling: all sampling settings that searches will request.
        calls_prm: whether searches call a PRM, which may refuse paths.

    Raises:
        BadInputError: a bank is missing, from another version of the embedded world or without a
            setting of `sampling`, `calibration` lacks one of the PRMs, or the two banks share
            questions, or differ in PRMs or `max_depth`.
    """
    calibrations = load_calibrations(calibration) if calibration is not None else ()
    training = _load(folder, prms, calibrations)
    if calibration is not None:
        calibrations = load_calibrations(calibration, training.prms)  # "none" reads the labels
        _check_each(calibration, calibrations, training.prms)
        _check_fitted(calibration, training)
    if validation is None:
        number = training.arrays.root.shape[0]
        kept = np.random.default_rng(0).permutation(number) % _HELD_OUT == _HELD_OUT - 1
        if not kept.any():
            raise BadInputError(
                f"bank {str(folder)!r} has {number} questions, of which one in {_HELD_OUT} is for "
                "validation: collect more, or name a bank by --validation"
            )
        digests = np.array(list(map(text_digest, training.texts)))
        # A question may occur twice, under two ids.
        known = np.isin(digests, digests[kept])
        taught, asked = _part(training, ~known), _part(training, kept)
    else:
        other = _load(validation, training.prms, calibrations)
        check_same_models(training, other, "--bank and --validation")
        check_disjoint(training.texts, other.texts, "questions of --bank and --validation")
        depths = tuple(int(each.arrays.max_depth) for each in (training, other))
        if depths[0] != depths[1]:
            raise BadInputError(
                f"banks {str(folder)!r} and {str(validation)!r} were collected with max_depth "
                f"{depths[0]} and {depths[1]}: collect both with the same"
            )
        taught, asked = training, other
    for part, where in ((taught, folder), (asked, validation or folder)):
        try:
            for setting in sampling:
                search_bank.check_sampling(part.arrays, setting)
        except ValueError as error:
            raise BadInputError(f"bank {str(where)!r}: {error}") from error
    return TrainingQuestions(
        environment=search_bank.ENVIRONMENT,
        tables=taught.arrays if calls_prm else without_prm(taught),
        held_out=asked.arrays if calls_prm else without_prm(asked),
        held_out_ids=asked.ids,
        max_depth=int(taught.arrays.max_depth),
        prms=training.prms,
        info={
            "source": "step bank",
            "questions": list(taught.ids),
            "texts": list(map(text_digest, taught.texts)),
            "calibration": {label: list(values) for label, values in calibrations},
            "models": {
                name: model
                for name, model in training.manifest["models"].items()
                if name == "policy" or name.removeprefix("prm ") in training.prms
            },
        },
        held_out_texts=tuple(map(text_digest, asked.texts)),
    )


def _check_each(name: str, calibrations: Calibrations, prms: Sequence[str]) -> None:
    for label in prms:
        if label not in dict(calibrations):
            raise BadInputError(
                f"calibration {name!r} has none of PRM {label!r}: fit one of each PRM with "
                "`cats-jax calibrate`, or choose PRMs by --prms"
            )


def _check_fitted(name: str, bank: LoadedBank) -> None:
    """Raise BadInputError if a calibration's file was fitted to other models than a bank's."""
    fitted = fitted_models(name)
    for part in ("policy", *(f"prm {label}" for label in bank.prms)):
        if part in fitted and fitted[part] != bank.manifest["models"].get(part):
            raise BadInputError(
                f"calibration {name!r} was fitted with another {part} than the bank's: its "
                "fingerprint differs; fit one to the bank by `cats-jax calibrate`"
            )


def _load(
    folder: pathlib.Path, prms: Sequence[str] | None, calibrations: Calibrations
) -> LoadedBank:
    # A bank of other models has no version of the embedded world.
    from_world = read_manifest(folder)["world"] is not None
    version = world_version(PolicySpec("weak"), ()) if from_world else None
    return load_bank(folder, prms=prms, calibrations=calibrations, world=version)


def _part(bank: LoadedBank, kept: np.ndarray) -> LoadedBank:
    """The same bank with some of its questions; the arrays of its nodes stay whole."""
    rows, arrays = np.flatnonzero(kept), bank.arrays
    return dataclasses.replace(
        bank,
        arrays=arrays.replace(
            root=jnp.asarray(arrays.root)[rows],
            level=jnp.asarray(arrays.level)[rows],
            prompt_tokens=jnp.asarray(arrays.prompt_tokens)[rows],
        ),
        ids=tuple(bank.ids[row] for row in rows.tolist()),
        texts=tuple(bank.texts[row] for row in rows.tolist()),
    )
