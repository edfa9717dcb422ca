"""Figures of each PRM from a policy's step banks, and their tables: sparsity, errors, ceilings."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import search
from cats_jax.bank.calibrate import calibrate_bank
from cats_jax.bank.layout import load_bank
from cats_jax.bank.store import read_sparsity
from cats_jax.evaluation.replay import Replayed, replay
from cats_jax.reporting.groups import Group
from cats_jax.specs.calibrations import load_calibrations
from cats_jax.training.ablations import PRICE
from theory.estimators.correlation import spearman

from .groups import PRMS, cell, find
from .markdown import Table, at_cost
from .oracle import allocation_oracle

_REPLAYS = 16
"""Number of replays of a question with one action."""

Measured = Mapping[str, Mapping[str, Any]]
"""Figures by PRM and name, from `measure_prms`."""


def measure_prms(policy: str, banks: pathlib.Path) -> Measured:
    """Figures of each PRM from the banks `POLICY-controller` and `POLICY-test`, in minutes.

    Returns:
        For each PRM: `total` and `last_layer`, the shares of small weights; `pair` and
        `cross_entropy` in nats, uncalibrated, on test questions; and accuracy with tokens per
        question of `oracle_16` and `oracle_64`, an allocation that knows the truth, and of
        `hindsight_16`, each question's best constant action.

    Raises:
        BadInputError: a bank is missing or damaged.
    """
    bank = load_bank(banks / f"{policy}-test", calibrations=load_calibrations(policy))
    sparsity = read_sparsity(banks / f"{policy}-test")
    fitted = calibrate_bank(load_bank(banks / f"{policy}-controller"), bank, seed=0)["prms"]
    rows = search.cats.CATS.actions.rows
    oracle = allocation_oracle(
        search.cats.CATS,
        sample=rows.index((8, 1, 1.0, 1.0, 0)),
        stop=rows.index((0, 1, 0.6, 1.0, 0)),
    )
    constant = search.cats.cats(search.cats.constant_policy, search.cats.CATS)
    found: dict[str, dict[str, Any]] = {}
    for prm in PRMS:
        place = bank.prms.index(prm)
        found[prm] = dict(zip(("total", "last_layer"), sparsity[prm], strict=True))
        found[prm] |= {name: fitted[prm][name][0] for name in ("pair", "cross_entropy")}
        for size in (16, 64):
            play = replay(bank.arrays, oracle, bank.arrays, prm=place, num_candidates=size)
            figures = [float(play.correct.mean()), float(play.tokens.mean())]
            found[prm][f"oracle_{size}"] = figures
        plays = [
            [
                replay(bank.arrays, constant, np.int32(row), prm=place, num_candidates=16, seed=n)
                for n in range(_REPLAYS)
            ]
            for row, (_, num_retain, *_) in enumerate(rows)
            if num_retain == 1
        ]
        found[prm]["hindsight_16"] = best_in_hindsight(plays)
    return found


def best_in_hindsight(plays: Sequence[Sequence[Replayed]]) -> list[float]:
    """Accuracy and tokens per question with the best constant action of each question.

    Each action is chosen on the first half of its replays, [A, S] with S even, and evaluated on the
    other half, so that the figures have no selection bias.
    """
    correct, candidates, tokens = (
        np.array([[getattr(play, name) for play in each] for each in plays])
        for name in ("correct", "candidates", "tokens")
    )
    half = correct.shape[1] // 2
    value = correct - PRICE * candidates / 100.0
    best = value[:, :half].mean(axis=1).argmax(axis=0)
    valued = (each[:, half:].mean(axis=1) for each in (correct, tokens))
    return [float(each[best, np.arange(len(best))].mean()) for each in valued]


def ceiling_table(name: str, groups: Sequence[Group], measured: Measured) -> Table:
    """The ceilings of `measure_prms` beside the controllers' accuracies, all with tokens."""
    replayed = {
        "oracle": "oracle's allocation",
        "hindsight": "each question's best constant action",
    }
    lines = []
    for size in (16, 64):
        for key, label in replayed.items():
            if all(f"{key}_{size}" in measured[prm] for prm in PRMS):
                cells = [at_cost(*measured[prm][f"{key}_{size}"]) for prm in PRMS]
                lines.append([f"{label}, replayed", str(size), *cells])
        for label in ("cats-0.005", "cats-0.02", "cats"):
            cells = [cell(find(groups, label, size, prm)) for prm in PRMS]
            if any(cells):
                lines.append([f"{label}, live", str(size), *cells])
    return Table(name, ["allocation", "N", *PRMS], lines)


def sparsity_tables(name: str, groups: Sequence[Group], measured: Measured) -> list[Table]:
    """Sparsity beside what each PRM is worth, and Spearman's correlations with exact p-values."""
    sparsity = {
        "total sparsity": [measured[prm]["total"] for prm in PRMS],
        "last-layer sparsity": [measured[prm]["last_layer"] for prm in PRMS],
    }
    worth = {
        "pair error": [1.0 - measured[prm]["pair"] for prm in PRMS],
        "cross-entropy": [measured[prm]["cross_entropy"] for prm in PRMS],
    }
    for title, strategy in {"best-of-N": "best_of_n", "beam": "beam", "CATS": "cats"}.items():
        found = [group for prm in PRMS if (group := find(groups, strategy, 16, prm))]
        if len(found) == len(PRMS):
            worth[f"{title} 16"] = [group.accuracy().value for group in found]
    columns = [*sparsity.values(), *worth.values()]
    lines = [[prm, *(f"{column[row]:.4f}" for column in columns)] for row, prm in enumerate(PRMS)]
    correlations = [
        [title, *(_correlation(values, column) for column in worth.values())]
        for title, values in sparsity.items()
    ]
    return [
        Table(name, ["PRM", *sparsity, *worth], lines),
        Table(f"{name}-correlations", ["Spearman (p)", *worth], correlations),
    ]


def _correlation(x: Sequence[float], y: Sequence[float]) -> str:
    if len(set(y)) == 1:
        return "all equal"
    found = spearman(x, y)
    return f"{found.value:+.2f} ({found.p_value:.2g})"
