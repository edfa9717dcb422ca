"""Whether the certificate of a strategy holds for a recipe, and the text that states it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..controllers.strategies import controller_of, revisions_of
from ..errors import BadInputError
from ..models.digests import folder_digest
from ..specs.certificates import CertifiedClaim, broken_terms, probability, terms
from ..specs.recipe import PrmSpec, Recipe, StrategySpec

NO_GUARANTEE = " (no guarantee)"
"""End of the label of a strategy that runs under other terms than its certificate's."""


@dataclass(frozen=True)
class Guarantee:
    """What a certificate states about the answers of a search.

    Attributes:
        certified: the certificate.
        broken: differences between the search and the certificate's terms; empty if it holds.
        of_questions: whether the search's data set is known to be the certificate's.
    """

    certified: CertifiedClaim
    broken: tuple[str, ...] = ()
    of_questions: bool = True

    @property
    def holds(self) -> bool:
        """Whether the search keeps the certificate's terms."""
        return not self.broken

    @property
    def line(self) -> str:
        """The guarantee, or why there is none, in one line."""
        certified = self.certified
        if self.broken:
            return f"no guarantee by {certified.file!r}: {'; '.join(self.broken)}"
        asked = "" if self.of_questions else ", if the question is one of them"
        return (
            f"guarantee: {certified.claim} with probability {probability(certified.delta)} on "
            f"questions like those of {certified.about}{asked} ({certified.file}){self._by_name}"
        )

    @property
    def _by_name(self) -> str:
        """A remark on each function, which the certificate knows by its name only."""
        names = self.certified.terms["functions"]
        return "".join(f"; {name} is a function, known by its name only" for name in names)

    def as_dict(self) -> dict[str, Any]:
        """The guarantee as JSON values."""
        certified = self.certified
        return {
            "holds": self.holds,
            "claim": certified.claim,
            "probability": 1 - certified.delta,
            "questions_like": certified.about,
            "certificate": certified.file,
            "broken": list(self.broken),
            "known_by_name_only": list(certified.terms["functions"]),
        }


def certified_prm(spec: StrategySpec, recipe: Recipe) -> PrmSpec | None:
    """The recipe's PRM for a certified strategy: the one with the certified label, or the only one.

    Raises:
        BadInputError: the recipe has several PRMs, and none has the label of the certified one.
    """
    assert spec.certified is not None
    for prm in recipe.prms:
        if prm.label == spec.certified.prm:
            return prm
    if len(recipe.prms) > 1 and spec.certified.prm is not None:
        raise BadInputError(
            f"strategy {spec.label!r}: its certificate {spec.certified.file!r} is about the PRM "
            f"{spec.certified.prm!r}, which is none of the recipe's: give that label to one"
        )
    return recipe.prms[0] if recipe.prms else None


def guarantees(
    recipe: Recipe,
    fingerprints: Mapping[str, Any],
    asked: Mapping[str, Any],
    contents: Mapping[str, str] | None = None,
    *,
    of_questions: bool = True,
) -> dict[str, Guarantee]:
    """The guarantees of a recipe's certified strategies, by label.

    Args:
        recipe: the recipe.
        fingerprints: those of its policy and PRMs, by "policy" and "prm LABEL".
        asked: `asked_of` the recipe before it was resolved, with `asked_prompts` of its cells.
        contents: those of the question set.
        of_questions: whether the recipe's questions are those that are searched.

    Raises:
        BadInputError: a certificate is about other models, limits or questions, and its strategy
            may not run under other terms (`CertifiedClaim.elsewhere`).
    """
    found = {}
    for spec in recipe.strategies:
        certified = spec.certified
        if certified is None:
            continue
        folder = controller_of(spec)
        models = dict(fingerprints)
        if folder is not None:
            models[f"controller {spec.label}"] = folder_digest(folder)
        prm = certified_prm(spec, recipe) if certified.prm is not None else None
        here = terms(
            recipe.as_config(),
            models,
            spec.label,
            None if prm is None else prm.label,
            revisions_of([spec]),
            asked,
            contents,
        )
        if not of_questions:
            del here["data sets"]
        broken = broken_terms(certified, here)
        if broken and not certified.elsewhere:
            raise BadInputError(
                f"strategy {spec.label!r}: its certificate {certified.file!r} says nothing here: "
                f"{'; '.join(broken[:3])}: search as it was certified, certify a run of this, or "
                "search without a guarantee (`elsewhere: true` in a recipe, --elsewhere of solve)"
            )
        found[spec.label] = Guarantee(certified, tuple(broken), of_questions)
    return found


def with_guarantees(
    recipe: Recipe,
    fingerprints: Mapping[str, Any],
    asked: Mapping[str, Any],
    contents: Mapping[str, str],
) -> tuple[Recipe, tuple[str, ...]]:
    """A recipe whose labels mark strategies without their guarantee, and a line per certificate.

    Labels are marked because every row, table and figure shows them.

    Raises:
        BadInputError: see `guarantees`.
    """
    found = guarantees(recipe, fingerprints, asked, contents)
    strategies = tuple(
        dataclasses.replace(spec, label=spec.label + NO_GUARANTEE)
        if spec.label in found and not found[spec.label].holds
        else spec
        for spec in recipe.strategies
    )
    lines = tuple(f"{label}: {found_one.line}" for label, found_one in found.items())
    return dataclasses.replace(recipe, strategies=strategies), lines


def is_guarantee(note: str, labels: Iterable[str]) -> bool:
    """Whether a note of a run is a line of `with_guarantees` for one of its strategies' labels."""
    return any(
        note.startswith(f"{label.removesuffix(NO_GUARANTEE)}: {begin}")
        for label in labels
        for begin in ("guarantee: ", "no guarantee by ")
    )
