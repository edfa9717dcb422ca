"""The premises that certificates of a run share: which runs they refuse, and what they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BadInputError
from ..runs.folder import RunFolder
from ..specs.certificates import LIMITS, spent
from .groups import Group

COST_SHARE = 0.2
"""The part of delta that the bounds on costs spend; the claims spend the rest."""


def about_run(run: RunFolder) -> dict[str, Any]:
    """The questions, models and settings that a certificate of a run is about, as JSON values."""
    manifest, config = run.manifest, run.manifest["config"]
    earlier = spent(manifest)
    about = ("policy", "prms", "calibration", "strategies", "questions", *LIMITS)
    return {
        "questions": manifest["questions"],
        "models": manifest["models"],
        "revisions": manifest.get("revisions"),
        "asked": manifest.get("asked"),
        "contents": manifest.get("contents"),
        "spent": {
            "fitted_on": earlier["fitted_on"],
            "chosen_on": sorted({*earlier["chosen_on"], *(manifest.get("texts") or ())}),
        },
        "config": {name: config.get(name) for name in about},
    }


def check_shares(**options: float) -> None:
    """Raise BadInputError unless each number, by the name of its option, is in (0, 1)."""
    for name, value in options.items():
        if not 0 < value < 1:
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(f"{option}={value:g}: must be between 0 and 1")


def check_one_seed(run: RunFolder, option: str) -> None:
    """Raise BadInputError if a question of the run has rows of several seeds."""
    if len({row.seed for row in run.rows}) > 1:
        raise BadInputError(
            f"{option}: a question counts once, and the run has several seeds: run one seed"
        )


def check_rows(run: RunFolder, found: Sequence[Group]) -> int:
    """The number of questions, which all groups have in common.

    Raises:
        BadInputError: there are no rows, the groups differ in questions or data set, questions or
            seeds lack rows, the run was stopped by its own results, or `check_premises` refuses it.
    """
    where = f"{str(run.folder)!r}"
    if not found:
        raise BadInputError(f"{where} has no rows yet: run `cats-jax evaluate` first")
    if run.manifest.get("until_certified") is not None:
        raise BadInputError(
            f"{where} was searched until its own results settled a claim, which tests of a fixed "
            "number of questions do not allow for: its certificate.json is the certificate"
        )
    if len({group.dataset for group in found}) > 1:
        raise BadInputError(
            f"{where} has several data sets, and a certificate is about one: run a recipe with one"
        )
    check_premises(where, run.manifest)
    questions = set(found[0].by_question())
    for group in found[1:]:
        if set(group.by_question()) != questions:
            raise BadInputError(
                f"{where}: {group.name} and {found[0].name} have rows of other questions: finish "
                "the run first, by the same `cats-jax evaluate`"
            )
    # Searches of easy questions end first, so the rows of a stopped run are no random sample.
    number, asked = len(questions), run.manifest["questions"].get("count")
    if isinstance(asked, int) and number < asked:
        raise BadInputError(
            f"{where} has rows of {number} of its {asked} questions, and easy ones end first: "
            "finish the run first, by the same `cats-jax evaluate`"
        )
    for group in found:
        lacking = number * len({row.seed for row in group.rows}) - len(group.rows)
        if lacking:
            raise BadInputError(
                f"{where}: {group.name} lacks {lacking} rows of its seeds, and easy questions end "
                "first: finish the run first, by the same `cats-jax evaluate`"
            )
    return number


def check_premises(where: str, manifest: Mapping[str, Any]) -> None:
    """Refuse a run whose questions can't certify anything, whatever the answers are.

    Args:
        where: name of the run in messages.
        manifest: the run's manifest, which is known before the search.

    Raises:
        BadInputError: the run was rescored, is a replay of a step bank, has a limit of seconds or
            copies of a question, or was partly trained, fitted or chosen on some of its questions.
    """
    if (manifest.get("models") or {}).get("bank") is not None:
        raise BadInputError(
            f"{where} is a replay of a step bank, whose results differ from those of searches: "
            "certify what `cats-jax evaluate` makes of its recipe without --bank"
        )
    if (rescored := manifest["config"].get("rescored")) is not None:
        # Of several runs, the one that was rescored.
        where = repr(rescored["folder"]) if "folder" in rescored else where
        raise BadInputError(
            f"{where} was rescored, and nobody has searched with its settings: write the change "
            "into the recipe and certify what `cats-jax evaluate` makes of it"
        )
    if (seconds := manifest["config"].get("max_seconds")) is not None:
        raise BadInputError(
            f"{where} has max_seconds={seconds!r:.20}, by which the speed of its machine decides "
            "answers: evaluate with max_tokens or budget in its place"
        )
    texts = manifest.get("texts") or ()
    if twice := len(texts) - len(set(texts)):
        raise BadInputError(
            f"{where} has {twice} questions that are copies of others, and a question counts once: "
            "evaluate on a file without the copies"
        )
    for spec in manifest["config"].get("questions", ()):
        if spec.get("world") not in (None, "test"):
            raise BadInputError(
                f"{where} has the embedded world's set {spec['world']!r}, which trained or chose "
                "its PRMs, calibrations and controllers: evaluate on `world: test`"
            )
    if number := manifest.get("fitted_on"):
        raise BadInputError(
            f"{where}: its calibration was fitted on {number} of the questions, which can't "
            "certify it: evaluate on others"
        )
    if number := manifest.get("chosen_on"):
        raise BadInputError(
            f"{where}: its certified strategy was chosen on {number} of the questions, which can't "
            "certify it once more: evaluate on others"
        )
