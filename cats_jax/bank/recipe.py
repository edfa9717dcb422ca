"""Recipes of step banks: YAML files, checked before any model is loaded."""

from __future__ import annotations

import dataclasses
import pathlib
from dataclasses import dataclass
from typing import Any

import search
from search import Sampling

from ..errors import BadInputError, known_names
from ..specs.recipe import PolicySpec, PrmSpec, QuestionSpec, parse_recipe, without_memory
from ..storage.yaml_file import load_mapping, naming
from .types import Allocation, Draws

_SHARED = ("policy", "prms", "questions", "max_depth")  # keys of an evaluation's recipe, too
_DRAWS = ("temperature", "top_p", "top_k", "root_draws", "revisit_draws")


@dataclass(frozen=True)
class BankRecipe:
    """Recipe of a step bank.

    Attributes:
        policy, prms, questions, max_depth: as in `specs.recipe.Recipe`.
        allocation: how often the nodes of a tree are drawn, and under which settings.
        seed: random seed of all samples.
    """

    policy: PolicySpec
    prms: tuple[PrmSpec, ...]
    questions: tuple[QuestionSpec, ...]
    allocation: Allocation
    max_depth: int = 10
    seed: int = 0

    def as_config(self) -> dict[str, Any]:
        """All settings that can change a tree, as JSON values for the manifest."""
        return without_memory(dataclasses.asdict(self))


def load_bank_recipe(path: str | pathlib.Path) -> BankRecipe:
    """Read the recipe of a step bank from a YAML file.

    Keys: `policy`, `prms`, `questions` and `max_depth` as in a recipe of `cats-jax evaluate`;
    `sampling`, a list of `{temperature, top_p, top_k, root_draws, revisit_draws}`, see `Draws`;
    `actions`, the name of an action table of `search.ACTION_TABLES`: `sampling` must list its
    settings; `revisits_per_prm`, `revisit_arrivals` and `root_draws_per_prm`, see `Allocation`;
    `seed`.

    Raises:
        BadInputError: the file does not exist or is not YAML, a key is unknown, or a value breaks
            its rule.
    """
    content = load_mapping(path, "bank recipe")
    with naming(f"bank recipe {str(path)!r}"):
        return _parse(content)


def _parse(content: Any) -> BankRecipe:
    counts = ("revisits_per_prm", "revisit_arrivals", "root_draws_per_prm")
    own = ("sampling", "actions", *counts, "seed")
    if not isinstance(content, dict):
        raise BadInputError("must be a mapping of keys to values")
    for key in content:
        if key not in (*_SHARED, *own):
            raise BadInputError(f"unknown key {key!r}: {known_names(key, (*_SHARED, *own))}")
    if not content.get("prms"):
        raise BadInputError("key 'prms' is missing or empty: name at least one PRM")
    draws = _parse_draws(content.get("sampling"))
    if content.get("actions") is not None:
        _check_recorded(content["actions"], draws)
    shared = {key: content[key] for key in _SHARED if key in content}
    # The other keys of an evaluation's recipe are filled in, so that its rules are in one place.
    parsed = parse_recipe(
        {"name": "bank", "strategies": ["greedy"], "num_candidates": [1], **shared}
    )
    if parsed.policy.log_probs is False:
        raise BadInputError("policy: log_probs=False: a bank keeps them, leave the key out")
    if parsed.policy.chat:
        raise BadInputError(
            "policy: chat=True: a bank keeps token ids and log-probabilities, which chat endpoints "
            "do not report: take another backend"
        )
    return BankRecipe(
        policy=parsed.policy,
        prms=parsed.prms,
        questions=parsed.questions,
        allocation=Allocation(
            draws=draws,
            revisits_per_prm=_number(content.get(counts[0], 4), counts[0], least=0),
            revisit_arrivals=float(_number(content.get(counts[1], 4), counts[1], least=1)),
            root_draws_per_prm=_number(content.get(counts[2], 0), counts[2], least=0),
        ),
        max_depth=parsed.max_depth,
        seed=_number(content.get("seed", 0), "seed", least=0),
    )


def _parse_draws(entries: Any) -> tuple[Draws, ...]:
    if not isinstance(entries, list) or not entries:
        raise BadInputError(
            "key 'sampling' is missing or empty: list the sampling settings to record, such as "
            "- {temperature: 1.0, root_draws: 64}"
        )
    draws = []
    for number, entry in enumerate(entries, 1):
        where = f"sampling, entry {number}"
        if not isinstance(entry, dict) or "temperature" not in entry or "root_draws" not in entry:
            raise BadInputError(f"{where}: must be a mapping with 'temperature' and 'root_draws'")
        for key in entry:
            if key not in _DRAWS:
                raise BadInputError(f"{where}: unknown key {key!r}: {known_names(key, _DRAWS)}")
        try:
            sampling = Sampling(
                float(entry["temperature"]), float(entry.get("top_p", 1.0)), entry.get("top_k", 0)
            )
        except (TypeError, ValueError) as error:
            raise BadInputError(f"{where}: {error}") from error
        root = _number(entry["root_draws"], f"{where}, root_draws", least=1)
        revisit = _number(entry.get("revisit_draws", 1), f"{where}, revisit_draws", least=1)
        if revisit > root:
            raise BadInputError(
                f"{where}: revisit_draws={revisit} must be at most root_draws={root}"
            )
        draws.append(Draws(sampling, root, revisit))
    samplings = [entry.sampling for entry in draws]
    if len(set(samplings)) < len(samplings):
        raise BadInputError("sampling: a setting occurs twice: make them distinct")
    return tuple(draws)


def _check_recorded(name: Any, draws: tuple[Draws, ...]) -> None:
    """Raise BadInputError if an action's sampling parameters are not among the recipe's."""
    try:
        table = search.action_table(str(name))
    except ValueError as error:
        raise BadInputError(f"actions: {error}") from error
    recorded = {entry.sampling for entry in draws}
    for wanted in table.sampling_settings():
        if wanted not in recorded:
            raise BadInputError(
                f"actions: table {name!r} samples with temperature {wanted.temperature:g}, top_p "
                f"{wanted.top_p:g}, top_k {wanted.top_k}, which 'sampling' does not list: add - "
                f"{{temperature: {wanted.temperature:g}, top_p: {wanted.top_p:g}, top_k: "
                f"{wanted.top_k}, root_draws: 16}}"
            )


def _number(value: Any, where: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInputError(f"{where}={value!r}: must be an integer of at least {least}")
    return value
