"""Merging of run folders, so that one table compares their strategies question by question."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import BadInputError
from .folder import Run

# What may differ between runs of one table: it is in the rows' keys, or in no row.
_FREE = ("name", "questions", "strategies", "prms", "num_candidates", "seeds", "trees")


def merge_runs(runs: Sequence[Run]) -> list[Run]:
    """Merge runs of the same questions, policy and settings into one run each.

    Args:
        runs: at least one run. Runs that differ in policy, questions, calibration, limits or
            rescoring are not merged.

    Returns:
        The merged runs, in order of first appearance. A merged run has the folder of its first run.

    Raises:
        BadInputError: a row is in two runs, or a label stands for different things in two.
    """
    families: list[list[Run]] = []
    for run in runs:
        for family in families:
            if _setting(family[0]) == _setting(run):
                family.append(run)
                break
        else:
            families.append([run])
    return [_merged(family) for family in families]


def _setting(run: Run) -> dict[str, Any]:
    config = dict(run.manifest["config"])
    # Runs made before a setting existed have no entry for it.
    config["policy"] = {k: v for k, v in config["policy"].items() if v is not None}
    return {
        "policy model": run.manifest["models"]["policy"],
        "questions": run.manifest["questions"],
        **{name: value for name, value in config.items() if name not in _FREE},
    }


def _merged(family: Sequence[Run]) -> Run:
    if len(family) == 1:
        return family[0]
    owner: dict[str, Run] = {}
    labels: dict[tuple[str, str], tuple[Any, Run]] = {}
    for run in family:
        for kind, label, meaning in _labels(run.manifest):
            known, first = labels.setdefault((kind, label), (meaning, run))
            if known != meaning:
                raise BadInputError(
                    f"report: {kind} {label!r} is one thing in {str(first.folder)!r} and another "
                    f"in {str(run.folder)!r}: report them one by one, or run one with a 'label'"
                )
        for row in run.rows:
            first = owner.setdefault(row.key, run)
            if first is not run:
                raise BadInputError(
                    f"report: row {row.key!r} is in {str(first.folder)!r} and in "
                    f"{str(run.folder)!r}: name one of the two"
                )
    names = dict.fromkeys(str(run.manifest["config"]["name"]) for run in family)
    manifest = {
        **family[0].manifest,
        "config": {**family[0].manifest["config"], "name": " + ".join(names)},
    }
    return dataclasses.replace(
        family[0], manifest=manifest, rows=tuple(row for run in family for row in run.rows)
    )


def _labels(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(kind, label, settings and model fingerprint) of each strategy and each PRM."""
    config, models = manifest["config"], manifest["models"]
    for spec in config["strategies"]:
        yield "strategy", spec["label"], [spec, models.get(f"controller {spec['label']}")]
    for spec in config["prms"]:
        # Not where or how fast it runs.
        read = [spec.get(name) for name in ("format", "path_score", "dtype", "quantization")]
        yield "PRM", spec["label"], [read, models.get(f"prm {spec['label']}")]
