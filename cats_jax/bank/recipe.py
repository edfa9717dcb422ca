"""Recipes of step banks: YAML files, checked before any model is loaded."""

from __future__ import annotations

import dataclasses
import pathlib
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pydantic

import search
from search import Sampling

from ..errors import BadInputError
from ..specs.models import check_replies
from ..specs.recipe import (
    Policy,
    PolicySpec,
    Prms,
    PrmSpec,
    Questions,
    QuestionSpec,
    without_free_settings,
)
from ..storage.schema import Count, Seed, Several, checked, from_mapping, nested
from ..storage.yaml_file import naming
from ..storage.yaml_reading import load_yaml
from .trees import Allocation, SettingDraws


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
        return without_free_settings(dataclasses.asdict(self))


def load_bank_recipe(path: str | pathlib.Path) -> BankRecipe:
    """Read the recipe of a step bank from a YAML file.

    Keys: `policy`, `prms`, `questions` and `max_depth` as in a recipe of `cats-jax evaluate`;
    `sampling`, a list of `{temperature, top_p, top_k, root_draws, revisit_draws}`, see
    `SettingDraws`; `actions`, the name of an action table of `search.cats.ACTION_TABLES`, whose
    settings `sampling` must list; `revisits_per_prm`, `revisit_arrivals` and `root_draws_per_prm`,
    see `Allocation`; `seed`.

    Raises:
        BadInputError: the file does not exist or is not YAML, a key is unknown, or a value breaks
            its rule.
    """
    content = load_yaml(path, "bank recipe")
    with naming(f"bank recipe {str(path)!r}"):
        return _recipe(from_mapping(_File, content))


_Least = Annotated[int, pydantic.Field(ge=0)]


@checked
class _Entry:
    """An entry of `sampling`: the fields of `Sampling` and of `SettingDraws`."""

    temperature: float
    root_draws: Count
    top_p: float = 1.0
    top_k: int = 0
    revisit_draws: Count = 1

    where: ClassVar[str] = "sampling"

    def __post_init__(self) -> None:
        if self.revisit_draws > self.root_draws:
            raise BadInputError(
                f"sampling: revisit_draws={self.revisit_draws} must be at most "
                f"root_draws={self.root_draws}"
            )
        self.sampling()

    def sampling(self) -> Sampling:
        """The setting; ValueError if a value is out of range."""
        return Sampling(self.temperature, self.top_p, self.top_k)


@checked
class _File:
    """The keys of a file."""

    policy: Policy
    prms: Annotated[Prms, pydantic.Field(min_length=1)]
    questions: Questions
    sampling: Several[Annotated[_Entry, nested(_Entry)]] = ()
    actions: Any = None
    revisits_per_prm: _Least = 4
    revisit_arrivals: Count = 4
    root_draws_per_prm: _Least = 0
    max_depth: Count = 10
    seed: Annotated[Seed, pydantic.Field(ge=0)] = 0


def _recipe(file: _File) -> BankRecipe:
    if not file.sampling:
        raise BadInputError(
            "key 'sampling' is missing or empty: list the sampling settings to record, such as "
            "- {temperature: 1.0, root_draws: 64}"
        )
    draws = tuple(
        SettingDraws(each.sampling(), each.root_draws, each.revisit_draws) for each in file.sampling
    )
    if len({entry.sampling for entry in draws}) < len(draws):
        raise BadInputError("sampling: a setting occurs twice: make them distinct")
    if file.actions is not None:
        _check_recorded(file.actions, draws)
    if file.policy.log_probs is False:
        raise BadInputError("policy: log_probs=False: a bank keeps them, leave the key out")
    if file.policy.chat:
        raise BadInputError(
            "policy: chat=True: a bank keeps token ids and log-probabilities, which chat endpoints "
            "do not report: take another backend"
        )
    check_replies(file.prms)
    return BankRecipe(
        policy=file.policy,
        prms=file.prms,
        questions=file.questions,
        allocation=Allocation(
            draws,
            revisits_per_prm=file.revisits_per_prm,
            revisit_arrivals=float(file.revisit_arrivals),
            root_draws_per_prm=file.root_draws_per_prm,
        ),
        max_depth=file.max_depth,
        seed=file.seed,
    )


def _check_recorded(name: Any, draws: tuple[SettingDraws, ...]) -> None:
    """Raise BadInputError if an action's sampling parameters are not among the recipe's."""
    try:
        table = search.cats.action_table(str(name))
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
