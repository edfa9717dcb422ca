"""Recipes: the settings of a run, read from YAML and checked without loading a model.

Errors name the key that breaks a rule, before the minutes that loading the models takes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pydantic

from ..errors import BadInputError, quoted
from ..storage.former_names import FormerNameWarning, option_names
from ..storage.reading import reading
from ..storage.schema import (
    DISTINCT,
    Amount,
    Count,
    PathText,
    Seed,
    Several,
    checked,
    from_mapping,
    is_path_text,
    must,
    nested,
)
from ..storage.yaml_file import naming
from ..storage.yaml_reading import load_yaml
from .calibrations import Calibrations, fitted_on, load_calibrations
from .certificates import CertifiedClaim, read_certificate
from .models import PAID_KEYS, PolicySpec, PrmSpec, check_replies

MAX_CANDIDATES = 256
"""Largest N, as `search.state.MAX_CANDIDATES`. A copy, because importing `search` loads JAX."""

MAX_QUESTIONS = 1_000_000
"""Largest number of the embedded world's questions in a recipe: its sets are endless."""

MAX_SEEDS = 1000
"""Largest number of run seeds of a recipe."""

MAX_TREE_CANDIDATES = 64
"""Largest N for which trees are written by default."""


@dataclass(frozen=True)
class StrategySpec:
    """A strategy with its options.

    Attributes:
        name: key of `cats_jax.controllers.strategies.FACTORIES`, or `module:function`, a function
            that takes the options and returns a `search.Strategy`.
        label: name in tables and row keys; default: `name`.
        options: arguments of the factory, as sorted pairs.
        certified: the certificate that names the strategy and its N; None without one.
    """

    name: str
    label: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    certified: CertifiedClaim | None = None

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)


@checked
class QuestionSpec:
    """A selection of questions from the embedded world, a published data set, or a file.

    Attributes:
        world: a set of the embedded world: "prm", "controller", "validation" or "test".
        dataset: a name of `cats_jax.datasets.PUBLISHED`, read from the Hugging Face hub, or from
            `file` if that is given too.
        file: a JSONL or Parquet file in the layout of `dataset`, or with the columns below.
        label: name in tables if a recipe has several question sets; default: `dataset`, the name
            of `file`, or "world-" and `world`.
        split: split of a published data set; by default its test split, if it has one.
        question_column, answer_column, id_column: columns of a user's file. A row without an id
            gets its number as id.
        count: number of questions; all by default. The embedded world's sets are endless and need
            a count.
        start: number of rows to skip at the beginning, after shuffling.
        shuffle: seed of a shuffle; without one, the published order is kept.
        seed: seed of the embedded world's questions.
        levels: levels of the embedded world's questions; all by default.
    """

    world: str | None = None
    dataset: PathText | None = None
    file: PathText | None = None
    label: PathText = ""
    split: PathText | None = None
    question_column: str = "question"
    answer_column: str = "answer"
    id_column: str = "id"
    count: Annotated[int, pydantic.Field(ge=1)] | None = None
    start: Annotated[int, pydantic.Field(ge=0)] = 0
    shuffle: Seed | None = None
    seed: Seed = 0
    levels: Several[int] | None = None

    where: ClassVar[str] = "questions"

    def __post_init__(self) -> None:
        _check_source(self)
        if not self.label:
            file = None if self.file is None else pathlib.Path(self.file).stem
            label = self.dataset or file or f"world-{self.world}"
            object.__setattr__(self, "label", label)


def _check_source(spec: QuestionSpec) -> None:
    if spec.world is None:
        if spec.dataset is None and spec.file is None:
            raise BadInputError(
                "questions: give 'dataset' (a published one's name), 'file' (a path) or 'world' (a "
                "set's name)"
            )
        if spec.split is not None and spec.file is not None:
            raise BadInputError("questions: a file has no 'split': give one of the two")
        return
    if spec.dataset is not None or spec.file is not None:
        raise BadInputError("questions: give 'world' alone, without 'dataset' and 'file'")
    if spec.count is None:
        raise BadInputError("questions: the embedded world's sets are endless: give 'count'")
    if spec.count > MAX_QUESTIONS:
        raise BadInputError(
            f"questions: count={spec.count}: the embedded world gives at most {MAX_QUESTIONS}"
        )
    if spec.start or spec.shuffle is not None or spec.split:
        raise BadInputError(
            "questions: the embedded world's sets have no 'start', 'shuffle' or 'split': another "
            "'seed' gives other questions"
        )


Policy = Annotated[PolicySpec, nested(PolicySpec, "path")]
"""A policy as files name it."""

Prms = Annotated[Several[Annotated[PrmSpec, nested(PrmSpec, "path")]], DISTINCT]
"""PRMs as files name them."""

Questions = Annotated[
    Several[Annotated[QuestionSpec, nested(QuestionSpec, "dataset")]],
    pydantic.Field(min_length=1),
    DISTINCT,
]
"""Question sets as files name them."""

# A recipe's name is the name of a folder, and a part of other folders' names.
_NAME = re.compile(r"(?![.])[^/\x00-\x1f\x7f\ud800-\udfff]{1,100}")
_Name = Annotated[
    str,
    must(
        "must be a text of 1 to 100 characters without '/', which does not begin with '.': it "
        "names a folder",
        lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None,
    ),
]


def check_num_candidates(value: Any) -> int:
    """The value; raise BadInputError unless it is an integer in 1..`MAX_CANDIDATES`."""
    if type(value) is not int or not 1 <= value <= MAX_CANDIDATES:
        raise BadInputError(
            f"num_candidates={quoted(value)}: N must be an integer from 1 to {MAX_CANDIDATES}"
        )
    return value


_Candidates = Annotated[
    int,
    pydantic.Field(ge=1, le=MAX_CANDIDATES),
    pydantic.BeforeValidator(check_num_candidates),
]


def parse_strategy(entry: Any) -> StrategySpec:
    """A strategy from its name, or from a mapping with `name`, `label` and its options.

    A mapping with `certified`, the path of a certificate, stands for the strategy that the
    certificate chose; see `_certified`.

    Raises:
        BadInputError: the entry has no name, or its certificate can't be read.
        FormerNameWarning: an option has its former name, which is read as the current one.
    """
    if isinstance(entry, StrategySpec):
        return entry
    if isinstance(entry, str):
        return StrategySpec(entry)
    if isinstance(entry, dict) and "certified" in entry:
        return _certified(entry)
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise BadInputError(
            f"strategies: {quoted(entry)} must be a name, or a mapping with 'name' and options"
        )
    for key in entry:
        if not isinstance(key, str):
            raise BadInputError(f"strategies: key {quoted(key)} must be a text")
    given = {key: value for key, value in entry.items() if key not in ("name", "label")}
    name = entry["name"]
    options = {key: _frozen(value, name) for key, value in _current_options(name, given).items()}
    label = "" if entry.get("label") is None else entry["label"]
    if type(label) in (int, float):
        label = str(label)
    check_path_text(label, "strategies: label")
    return StrategySpec(name, label, tuple(sorted(options.items())))


def _current_options(strategy: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A strategy's options by their current names, with a FormerNameWarning for each former one.

    Raises:
        BadInputError: an option is given by both names.
    """
    names = option_names(strategy)
    for former in given.keys() & names.keys():
        if names[former] in given:
            raise BadInputError(
                f"strategies: {former!r} is the former name of {names[former]!r}: leave it out"
            )
        line = f"strategies: {former!r} is now called {names[former]!r}: rename the key"
        warnings.warn(line, FormerNameWarning, stacklevel=2)
    return {names.get(name, name): value for name, value in given.items()}


@checked
class _Chosen:
    certified: PathText
    label: PathText = "certified"
    elsewhere: bool = False

    where: ClassVar[str] = "strategies"


def _certified(entry: Mapping[str, Any]) -> StrategySpec:
    """The strategy of a certificate, from a mapping with `certified`, `label` and `elsewhere`."""
    for key in entry:
        if key not in ("certified", "label", "elsewhere"):
            raise BadInputError(
                f"strategies: {quoted(key)} beside 'certified': the certificate names the strategy "
                "and its options: leave the key out"
            )
    chosen = _Chosen(**entry)
    what = f"certificate {chosen.certified!r}"
    strategy, certified = read_certificate(chosen.certified, elsewhere=chosen.elsewhere)
    with naming(what), reading(what, "make it anew"):
        check_num_candidates(certified.num_candidates)
        named = dict(strategy.get("options") or ())
        options = parse_strategy({**named, "name": strategy["name"]})
    return StrategySpec(options.name, chosen.label, options.options, certified)


def check_path_text(value: Any, where: str) -> None:
    """Raise BadInputError if a value is not a text that can be a name or a path."""
    if not is_path_text(value):
        raise BadInputError(f"{where}={quoted(value)}: must be a name or a path")


def path_of(value: Any, where: str) -> pathlib.Path:
    """A text or a path as a path.

    Raises:
        BadInputError: the value is neither, or empty.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    check_path_text(text or None, where)
    return pathlib.Path(text)


def _frozen(value: Any, name: str) -> Any:
    """A YAML value of a strategy's options made hashable: mappings and lists become tuples."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: str(item[0]))
        return tuple((key, _frozen(entry, name)) for key, entry in items)
    if isinstance(value, list | tuple):
        return tuple(_frozen(entry, name) for entry in value)
    if value is not None and not isinstance(value, str | int | float):
        raise BadInputError(
            f"strategies: {quoted(value)} in the options of {name!r} is of the type "
            f"{type(value).__name__}: give a plain value, as in a YAML file"
        )
    return value


_Strategy = Annotated[
    pydantic.InstanceOf[StrategySpec],
    pydantic.BeforeValidator(parse_strategy),
    pydantic.WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "required": ["name"]},
                {"type": "object", "required": ["certified"]},
            ]
        }
    ),
]


def _calibrations(value: Any, info: pydantic.ValidationInfo) -> Any:
    """Calibrations from the name of their file; those that are read already stay as they are."""
    if value is None or isinstance(value, tuple):
        return value or ()
    check_path_text(value, "calibration")
    return load_calibrations(value, [spec.label for spec in info.data.get("prms", ())])


@checked
class Recipe:
    """A grid of searches: strategies x N x PRMs x seeds x question sets, with one policy.

    Attributes:
        name: name of the run and of its default folder.
        policy, prms, strategies, questions: see `PolicySpec`, `PrmSpec`, `StrategySpec` and
            `QuestionSpec`.
        calibration: calibrations by the labels of PRMs. In YAML, the name of a file, or "none",
            which leaves scores as they are; see `calibrations.load_calibrations`.
        fitted_on: digests of the questions that the calibrations were fitted on, if their file or a
            strategy's certificate has them; not a key of YAML.
        num_candidates: values of N, from 1 to 256.
        seeds: run seeds.
        max_depth: number of reasoning steps of a search.
        budget: cap on the candidates of a question; default N * max_depth.
        max_tokens, max_seconds: limits per question, as in `Searcher`; none by default.
        in_flight: number of questions searched at once; results do not depend on it.
        trees: whether search trees are written; by default for N <= 64 only.
    """

    name: _Name
    strategies: Annotated[Several[_Strategy], pydantic.Field(min_length=1), DISTINCT]
    questions: Questions
    num_candidates: Annotated[Several[_Candidates], DISTINCT] = ()
    policy: Policy = dataclasses.field(default_factory=PolicySpec)
    prms: Prms = ()
    calibration: Annotated[
        Calibrations,
        pydantic.BeforeValidator(_calibrations, json_schema_input_type=str | None),
    ] = ()
    fitted_on: Annotated[frozenset[str], pydantic.WithJsonSchema({"not": {}})] = dataclasses.field(
        default=frozenset(), metadata={"key": False}
    )
    seeds: Annotated[
        Several[Seed], pydantic.Field(min_length=1, max_length=MAX_SEEDS), DISTINCT
    ] = (0,)
    max_depth: Count = 10
    budget: Count | None = None
    max_tokens: Count | None = None
    max_seconds: Amount | None = None
    in_flight: Count = 64
    trees: bool | None = None

    def __post_init__(self) -> None:
        check_replies((self.policy, *self.prms))
        if not self.num_candidates:
            chosen = {each.num_candidates for each in self._certified}
            if len(self._certified) < len(self.strategies):
                raise BadInputError("key 'num_candidates' is missing or empty: add it")
            object.__setattr__(self, "num_candidates", tuple(sorted(chosen)))

    def as_config(self) -> dict[str, Any]:
        """All settings as values for the manifest, so that a run resumes with the same ones.

        `in_flight` and what `without_free_settings` leaves out may differ: they change no result.
        """
        config = without_free_settings(dataclasses.asdict(self))
        del config["in_flight"], config["fitted_on"]
        for spec in config["strategies"]:
            if spec["certified"] is not None:
                del spec["certified"]["fitted_on"], spec["certified"]["chosen_on"]
        return config

    @property
    def chosen_on(self) -> frozenset[str]:
        """Digests of the questions that chose a certified strategy."""
        return frozenset().union(*(each.chosen_on for each in self._certified))

    @property
    def _certified(self) -> list[CertifiedClaim]:
        return [spec.certified for spec in self.strategies if spec.certified is not None]

    @property
    def most_candidates(self) -> int:
        """The largest N of all strategies, including those of certificates."""
        return max(*self.num_candidates, *(each.num_candidates for each in self._certified), 1)

    def writes_trees(self, num_candidates: int) -> bool:
        """Whether the trees of a cell are written."""
        return num_candidates <= MAX_TREE_CANDIDATES if self.trees is None else self.trees


_FREE_SETTINGS = ("kv_cache_gib", "api_key_env", "max_reply_seconds", *PAID_KEYS)


def without_free_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's settings without the free ones, which change no result and may differ on resume.

    These are `kv_cache_gib`, a server's `api_key_env` and `max_reply_seconds`, and the settings
    `PAID_KEYS` of a chat endpoint.
    """
    prms = tuple(map(_without_free, config["prms"]))
    return {**config, "policy": _without_free(config["policy"]), "prms": prms}


def model_settings(spec: PolicySpec | PrmSpec) -> dict[str, Any]:
    """The settings of one model as a manifest holds them, see `without_free_settings`."""
    return _without_free(dataclasses.asdict(spec))


def _without_free(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name not in _FREE_SETTINGS}


def load_recipe(path: str | pathlib.Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe from a YAML file.

    Args:
        path: path of the file. Its relative paths are relative to the working directory.
        overrides: top-level keys and values that replace those of the file.

    Raises:
        BadInputError: the file does not exist or is not valid YAML, a key is unknown or missing, or
            a value breaks its rule.
    """
    path = pathlib.Path(path)
    content = load_yaml(path, "recipe")
    if isinstance(content, dict):  # any other type is refused below
        content = {"name": path.stem, **content, **(overrides or {})}
    with naming(f"recipe {str(path)!r}"):
        return parse_recipe(content)


def parse_recipe(content: Mapping[str, Any]) -> Recipe:
    """A recipe from the content of a YAML file.

    Raises:
        BadInputError: an unknown or missing key, or a value that breaks its rule.
    """
    recipe = from_mapping(Recipe, content, "recipe")
    name = content.get("calibration")
    known = fitted_on(name) if isinstance(name, str) else frozenset[str]()
    known = known.union(*(each.fitted_on for each in recipe._certified))
    return dataclasses.replace(recipe, fitted_on=known)
