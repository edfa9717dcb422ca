"""Merging of run folders, so that one table compares their strategies question by question."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import BadInputError
from ..grading.graders import questions_grader
from . import run_manifest
from .folder import Row, RunFolder

# Settings that may differ between runs of one table: rows have them in their keys, or not at all.
_FREE = ("name", "questions", "strategies", "prms", "num_candidates", "seeds", "trees")


def merge_runs(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Merge runs of the same questions, policy and settings into one run each.

    Args:
        runs: at least one run. Runs that differ in policy, questions, calibration or limits are not
            merged, nor runs rescored with different votes, aggregations or graders. A run that was
            rescored with another PRM only is merged with the run itself.

    Returns:
        The merged runs, in order of first appearance. A merged run has the folder of its first run,
        and reads each tree from the tree's own run. A row that two runs share occurs once.

    Raises:
        BadInputError: a manifest lacks an entry, or two runs differ in the answer, grade or number
            of tokens of a row with the same key, in the meaning of a label, or in the files of a
            tokenizer or a format.
    """
    families: list[list[RunFolder]] = []
    for run in runs:
        run_manifest.check_described(run.folder, run.manifest)
        family = next((each for each in families if setting(each[0]) == setting(run)), None)
        if family is None:
            families.append([run])
        else:
            family.append(run)
    return [_merged(family) for family in families]


def setting(run: RunFolder) -> dict[str, Any]:
    """The settings that the rows of one table share, such as policy, questions and limits."""
    config = dict(run.manifest["config"])
    # Runs made before a setting existed have no entry for it.
    config["policy"] = {k: v for k, v in config["policy"].items() if v is not None}
    return {
        "policy model": run.manifest["models"]["policy"],
        "step bank": run.manifest["models"].get("bank"),
        "questions": run.manifest["questions"],
        "rescored": rescored_setting(config),
        **{name: value for name, value in config.items() if name not in (*_FREE, "rescored")},
    }


def rescored_setting(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What keeps a rescored run apart; None if only the PRM was changed, whose label rows have."""
    change = config.get("rescored")
    if not change:
        return None
    # Manifests of earlier versions name the run's PRMs, not the one that scored.
    names_prm = change.get("prm") is not None and config["prms"] == [change["prm"]]
    graded_so = change.get("grader") == questions_grader(config)
    others = change.get("path_score") or change.get("vote")
    if names_prm and graded_so and not others:
        return None
    return {name: change.get(name) for name in ("path_score", "vote", "prm", "grader")}


def _merged(family: Sequence[RunFolder]) -> RunFolder:
    if len(family) == 1:
        return family[0]
    rows: dict[str, Row] = {}
    owners: dict[str, RunFolder] = {}
    check_labels(family)
    _check_asking(family)
    for run in family:
        for row in run.rows:
            known = rows.get(row.key)
            if known is not None:
                _check_same(known, owners[row.key], row, run)
            if known is None or (known.tree is None and row.tree is not None):
                rows[row.key], owners[row.key] = row, run
    first = family[0]
    return dataclasses.replace(
        first,
        manifest=_merged_manifest(family),
        rows=tuple(rows.values()),
        tree_folders={
            key: owner.folder for key, owner in owners.items() if owner.folder != first.folder
        },
    )


def check_labels(runs: Sequence[RunFolder]) -> None:
    """Raise BadInputError if a label stands for different strategies or PRMs in two runs."""
    for first, run in itertools.combinations(runs, 2):
        if clashing := clashing_label(first.manifest, run.manifest):
            raise BadInputError(
                f"{clashing} is one thing in {str(first.folder)!r} and another in "
                f"{str(run.folder)!r}: report them one by one, or run one with a 'label', or "
                "rescore with --prm-label"
            )


def clashing_label(first: Mapping[str, Any], second: Mapping[str, Any]) -> str | None:
    """A label that stands for different strategies or PRMs in two manifests; None without one."""
    known = {(kind, label): meaning for kind, label, meaning in _labels(first)}
    for kind, label, meaning in _labels(second):
        if known.get((kind, label), meaning) != meaning:
            return f"{kind} {label!r}"
    return None


def _merged_manifest(family: Sequence[RunFolder]) -> dict[str, Any]:
    """The first manifest with models, formats, strategies, PRMs, notes and premises of all."""
    manifests = [run.manifest for run in family]
    configs = [manifest["config"] for manifest in manifests]
    named = {
        key: list({spec["label"]: spec for config in configs for spec in config[key]}.values())
        for key in ("strategies", "prms")
    }
    name = " + ".join(dict.fromkeys(str(config["name"]) for config in configs))
    models = {key: model for manifest in manifests for key, model in manifest["models"].items()}
    formats = {
        key: name for manifest in manifests for key, name in (manifest.get("formats") or {}).items()
    }
    notes = list(dict.fromkeys(note for run in family for note in run.notes))
    config = {**configs[0], **named, "name": name}
    if rescored := [run for run in family if run.manifest["config"].get("rescored")]:
        change = rescored[0].manifest["config"]["rescored"]
        config["rescored"] = {**change, "folder": str(rescored[0].folder)}
    merged = {**manifests[0], "models": models, "notes": notes, "config": config}
    if formats:
        merged["formats"] = formats
    return {**merged, **_premises(family)}


def _premises(family: Sequence[RunFolder]) -> dict[str, Any]:
    """The entries that a certificate reads, from all runs: digests, rules and spent questions.

    `asked` and `contents` are None if runs differ in them or one lacks them: nothing vouches for
    them.
    """
    manifests = [run.manifest for run in family]
    found: dict[str, Any] = {}
    if any("asked" in manifest for manifest in manifests):
        found["asked"] = _asked(manifests)
    if any(manifest.get("contents") != manifests[0].get("contents") for manifest in manifests):
        found["contents"] = None
    if any(manifest.get("revisions") for manifest in manifests):
        found["revisions"] = _revisions(manifests)
    if any("texts" in manifest for manifest in manifests):
        # Runs of one table have the same questions. Copies of a question stay.
        found["texts"] = max((list(each.get("texts") or ()) for each in manifests), key=len)
    spent = [manifest.get("spent") or {} for manifest in manifests]
    if any(spent):
        found["spent"] = {
            name: sorted(_joined(each.get(name) for each in spent))
            for name in ("fitted_on", "chosen_on")
        }
    for name in ("fitted_on", "chosen_on"):
        counts = [manifest.get(name) or 0 for manifest in manifests]
        known = set(found.get("spent", {}).get(name, ()))
        # The digests of all runs together may name more of the questions than those of one run.
        most = max(*counts, sum(text in known for text in found.get("texts", ())))
        if most or any(name in manifest for manifest in manifests):
            found[name] = most
    if claims := [each for manifest in manifests if (each := manifest.get("until_certified"))]:
        found["until_certified"] = claims[0]
    return found


def _asked(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The entry `asked` of all runs together; None if a run lacks it, or two runs differ in it."""
    found: dict[str, Any] = {}
    for manifest in manifests:
        if manifest.get("asked") is None:
            return None
        for what, value in manifest["asked"].items():
            if found.setdefault(what, value) != value:
                return None
    return found


def _revisions(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rules of methods whose rules have changed, without those on which runs differ."""
    rules: dict[str, list[Any]] = {}
    for manifest in manifests:
        revisions = manifest.get("revisions") or {}
        for spec in manifest["config"]["strategies"]:
            rules.setdefault(spec["name"], []).append(revisions.get(spec["name"]))
    agreed = {name: of[0] for name, of in rules.items() if of.count(of[0]) == len(of)}
    return {name: rule for name, rule in agreed.items() if rule is not None}


def _joined(lists: Iterable[Sequence[str] | None]) -> list[str]:
    """The distinct entries of some lists, in order of first appearance."""
    return list(dict.fromkeys(entry for each in lists for entry in each or ()))


def _check_asking(family: Sequence[RunFolder]) -> None:
    """Refuse runs whose tokenizers or formats differ, which no setting shows."""
    known: dict[str, tuple[Any, RunFolder]] = {}
    for run in family:
        for what, value in (run.manifest.get("asked") or {}).items():
            earlier, first = known.setdefault(what, (value, run))
            # A data file may have changed in a column that is not read.
            if earlier != value and not what.startswith("questions "):
                raise BadInputError(
                    f"the {what} is asked in one way in {str(first.folder)!r} and in another in "
                    f"{str(run.folder)!r}, by the digests of its files: report them one by one"
                )


def _check_same(known: Row, first: RunFolder, row: Row, run: RunFolder) -> None:
    """Refuse two rows of one key that differ in answer, number of tokens or grade."""
    for name, values in {
        "answer": (known.answer, row.answer),
        "generated": (known.ledger.generated, row.ledger.generated),
        "prm_computed": (known.ledger.prm_computed, row.ledger.prm_computed),
        "correct": (known.correct, row.correct),
    }.items():
        if values[0] != values[1]:
            one, other = (repr(value)[:80] for value in values)
            raise BadInputError(
                f"row {known.key!r} has {name} {one} in {str(first.folder)!r} and {other} "
                f"in {str(run.folder)!r}: name one of the two"
            )


def _labels(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(kind, label, settings and model fingerprint) of each strategy and each PRM."""
    config, models = manifest["config"], manifest["models"]
    revisions = manifest.get("revisions") or {}
    for spec in config["strategies"]:
        controller = models.get(f"controller {spec['label']}")
        # Runs made before an entry existed lack it.
        read = {name: value for name, value in spec.items() if value is not None}
        yield "strategy", spec["label"], [read, controller, revisions.get(spec["name"])]
    for spec in config["prms"]:
        # Settings of where or how fast it runs are left out.
        read = [spec.get(name) for name in ("format", "path_score", "dtype", "quantization")]
        yield "PRM", spec["label"], [read, models.get(f"prm {spec['label']}")]
