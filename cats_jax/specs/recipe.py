"""Recipes: the settings of a run, read from YAML and checked without loading a model.

Errors name the key that breaks a rule. They are found in a second, not after the minutes that
loading the models takes.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadInputError, known_names, quoted
from ..storage.reading import reading
from ..storage.yaml_file import load_mapping, naming
from .calibrations import Calibrations, fitted_on, load_calibrations
from .certificates import Certified, read_certificate
from .models import PAID_KEYS, PolicySpec, PrmSpec

MAX_CANDIDATES = 256
"""Largest N, equal to `search.MAX_CANDIDATES`. A copy, because importing `search` loads JAX."""

MAX_QUESTIONS = 1_000_000
"""Largest number of the embedded world's questions in a recipe: its sets are endless."""

MAX_SEEDS = 1000
"""Largest number of run seeds of a recipe."""

MAX_TREE_CANDIDATES = 64
"""Largest N for which trees are written by default."""


_PATHS = ("path", "label", "format", "backend", "adapter", "head", "dataset", "file", "split",
          "replies")  # fmt: skip
"""Keys whose values are or may be paths, or names of files."""

_MAX_LIMIT = (1 << 31) - 1

# A recipe's name is the name of a folder, and a part of other folders' names.
_NAME = re.compile(r"(?![.])[^/\x00-\x1f\x7f\ud800-\udfff]{1,100}")


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
    certified: Certified | None = None

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)


@dataclass(frozen=True)
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
    dataset: str | None = None
    file: str | None = None
    label: str = ""
    split: str | None = None
    question_column: str = "question"
    answer_column: str = "answer"
    id_column: str = "id"
    count: int | None = None
    start: int = 0
    shuffle: int | None = None
    seed: int = 0
    levels: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.label:
            file = None if self.file is None else pathlib.Path(self.file).stem
            label = self.dataset or file or f"world-{self.world}"
            object.__setattr__(self, "label", label)


@dataclass(frozen=True)
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
        num_candidates: values of N.
        seeds: run seeds.
        max_depth: number of reasoning steps of a search.
        budget: cap on the candidates of a question; default N * max_depth.
        max_tokens, max_seconds: limits per question, as in `Searcher`; none by default.
        in_flight: number of questions searched at once; results do not depend on it.
        trees: whether search trees are written; by default for N <= 64 only.
    """

    name: str
    strategies: tuple[StrategySpec, ...]
    num_candidates: tuple[int, ...]
    questions: tuple[QuestionSpec, ...]
    policy: PolicySpec = dataclasses.field(default_factory=PolicySpec)
    prms: tuple[PrmSpec, ...] = ()
    calibration: Calibrations = ()
    fitted_on: frozenset[str] = dataclasses.field(default=frozenset(), metadata={"key": False})
    seeds: tuple[int, ...] = (0,)
    max_depth: int = 10
    budget: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    in_flight: int = 64
    trees: bool | None = None

    def __post_init__(self) -> None:
        _check(self)

    def as_config(self) -> dict[str, Any]:
        """All settings as values for the manifest, so that a run resumes with the same ones.

        `in_flight` and `kv_cache_gib` change no result, and may differ when a run resumes.
        """
        config = without_memory(dataclasses.asdict(self))
        del config["in_flight"], config["fitted_on"]
        for spec in config["strategies"]:
            if spec["certified"] is not None:
                del spec["certified"]["fitted_on"], spec["certified"]["chosen_on"]
        return config

    @property
    def chosen_on(self) -> frozenset[str]:
        """Digests of the questions that chose a certified strategy."""
        certified = [spec.certified for spec in self.strategies if spec.certified is not None]
        return frozenset().union(*(each.chosen_on for each in certified))

    @property
    def most_candidates(self) -> int:
        """The largest N of all strategies, including those of certificates."""
        certified = [spec.certified for spec in self.strategies if spec.certified is not None]
        return max(*self.num_candidates, *(each.num_candidates for each in certified), 1)

    def writes_trees(self, num_candidates: int) -> bool:
        """Whether the trees of a cell are written."""
        return num_candidates <= MAX_TREE_CANDIDATES if self.trees is None else self.trees


def without_memory(config: dict[str, Any]) -> dict[str, Any]:
    """A manifest's settings without those of the models that change no result.

    These are `kv_cache_gib`, the name of the variable that holds a server's API key, and the
    settings `PAID_KEYS` of a chat endpoint.
    """
    for name in PAID_KEYS:
        config["policy"].pop(name, None)
    for model in (config["policy"], *config["prms"]):
        del model["kv_cache_gib"], model["api_key_env"]
    return config


def load_recipe(path: str | pathlib.Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe from a YAML file.

    Args:
        path: path of the YAML file. Relative paths in the file are relative to the working
            directory.
        overrides: top-level keys and values that replace those of the file.

    Raises:
        BadInputError: the file does not exist or is not valid YAML, a key is unknown or missing,
            or a value breaks its rule.
    """
    path = pathlib.Path(path)
    content = load_mapping(path, "recipe")
    if not isinstance(content, dict):
        raise BadInputError(f"recipe {str(path)!r} must be a mapping of keys to values")
    merged = {"name": path.stem, **content, **(overrides or {})}
    with naming(f"recipe {str(path)!r}"):
        return parse_recipe(merged)


def parse_recipe(content: Mapping[str, Any]) -> Recipe:
    """A recipe from the content of a YAML file.

    Raises:
        BadInputError: an unknown or missing key, or a value that breaks its rule.
    """
    values = _known(content, Recipe, "recipe")
    for name in ("name", "strategies", "questions"):
        if name not in values:
            raise BadInputError(f"key {name!r} is missing: add it")
    values["strategies"] = tuple(
        parse_strategy(entry) for entry in _items(values["strategies"], "strategies")
    )
    if "num_candidates" not in values:
        certified = [spec.certified for spec in values["strategies"]]
        if None in certified:
            raise BadInputError("key 'num_candidates' is missing: add it")
        values["num_candidates"] = sorted({each.num_candidates for each in certified if each})
    for name in ("num_candidates", "seeds"):
        if name in values:
            values[name] = tuple(_items(values[name], name))
    values["questions"] = tuple(
        _parse_questions(entry) for entry in _items(values["questions"], "questions")
    )
    if "policy" in values:
        values["policy"] = _nested(values["policy"], PolicySpec, "policy", short="path")
    if "prms" in values:
        values["prms"] = tuple(
            _nested(entry, PrmSpec, "prms", short="path")
            for entry in _items(values["prms"], "prms")
        )
    if values.get("calibration") is None:
        values.pop("calibration", None)
    else:
        labels = [spec.label for spec in values.get("prms", ())]
        check_path_text(values["calibration"], "calibration")
        name = values["calibration"]
        values["calibration"] = load_calibrations(name, labels)
        values["fitted_on"] = fitted_on(name)
    for spec in values["strategies"]:
        if spec.certified is not None:
            known = values.get("fitted_on", frozenset())
            values["fitted_on"] = known | spec.certified.fitted_on
    return Recipe(**values)


def parse_strategy(entry: Any) -> StrategySpec:
    """A strategy from its name, or from a mapping with `name`, `label` and its options.

    A mapping with `certified`, the path of a certificate, stands for the strategy that the
    certificate chose; see `_certified`.

    Raises:
        BadInputError: the entry has no name, or its certificate can't be read.
    """
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
    options = {key: _frozen(value) for key, value in entry.items() if key not in ("name", "label")}
    label = str(entry.get("label", ""))
    check_path_text(label, "strategies: label")
    return StrategySpec(entry["name"], label, tuple(sorted(options.items())))


def _certified(entry: Mapping[str, Any]) -> StrategySpec:
    """The strategy of a certificate, from a mapping with `certified`, `label` and `elsewhere`."""
    for key in entry:
        if key not in ("certified", "label", "elsewhere"):
            raise BadInputError(
                f"strategies: {quoted(key)} beside 'certified': the certificate names the strategy "
                "and its options: leave the key out"
            )
    path, elsewhere = entry["certified"], entry.get("elsewhere", False)
    label = str(entry.get("label", "certified"))
    if not isinstance(path, str):
        raise BadInputError(f"strategies: certified={quoted(path)}: must be a path")
    check_path_text(path, "strategies: certified")
    check_path_text(label, "strategies: label")
    if not isinstance(elsewhere, bool):
        raise BadInputError(f"strategies: elsewhere={quoted(elsewhere)}: must be true or false")
    strategy, certified = read_certificate(path, elsewhere=elsewhere)
    with naming(f"certificate {path!r}"), reading(f"certificate {path!r}", "make it anew"):
        check_num_candidates(certified.num_candidates)
        named = dict(strategy.get("options") or ())
        options = parse_strategy({**named, "name": strategy["name"]})
    return StrategySpec(options.name, label, options.options, certified)


def _parse_questions(entry: Any) -> QuestionSpec:
    spec = _nested(entry, QuestionSpec, "questions", short="dataset")
    if spec.levels is None:
        return spec
    levels = tuple(_items(spec.levels, "questions.levels"))
    if not all(type(level) is int for level in levels):
        raise BadInputError(f"questions: levels={quoted(levels)} must be whole numbers")
    return dataclasses.replace(spec, levels=levels)


def check_path_text(value: Any, where: str) -> None:
    """Raise BadInputError if a value is neither None nor a text that can be a path."""
    if value is None:
        return
    parts = value.split("/") if isinstance(value, str) else None
    if parts is None or "\0" in value or len(value) > 4000 or max(map(len, parts)) > 200:
        raise BadInputError(f"{where}={quoted(value)}: must be a name or a path")


def check_num_candidates(value: Any) -> None:
    """Raise BadInputError unless `value` is an integer in 1..`MAX_CANDIDATES`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CANDIDATES:
        raise BadInputError(
            f"num_candidates={quoted(value)}: N must be an integer from 1 to {MAX_CANDIDATES}"
        )


def _check(recipe: Recipe) -> None:
    if not isinstance(recipe.name, str) or not _NAME.fullmatch(recipe.name):
        raise BadInputError(
            f"name={quoted(recipe.name)}: must be a text of 1 to 100 characters without '/', which "
            "does not begin with '.': it names a folder"
        )
    if not recipe.strategies:
        raise BadInputError("strategies is empty: name at least one")
    _check_distinct([spec.label for spec in recipe.strategies], "strategies", "label")
    _check_distinct([spec.label for spec in recipe.prms], "prms", "label")
    labels = [spec.label for spec in (*recipe.strategies, *recipe.prms, *recipe.questions)]
    for text in (recipe.name, *labels):
        if isinstance(text, str) and any("\ud800" <= char <= "\udfff" for char in text):
            raise BadInputError(
                f"name or label {text.encode(errors='replace').decode()!r}: holds half of a "
                "character (a lone surrogate), which is no text: write the character whole"
            )
    for name in ("num_candidates", "seeds"):
        if not getattr(recipe, name):
            raise BadInputError(f"{name} is empty: give at least one value")
    for value in recipe.num_candidates:
        check_num_candidates(value)
    for seed in recipe.seeds:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise BadInputError(f"seeds: {quoted(seed)} must be an integer")
    for name in ("num_candidates", "seeds"):
        _check_distinct(getattr(recipe, name), name, "value")
    if len(recipe.seeds) > MAX_SEEDS:
        raise BadInputError(f"seeds: {len(recipe.seeds)} are too many: give at most {MAX_SEEDS}")
    for name in ("max_depth", "budget", "max_tokens", "in_flight"):
        value = getattr(recipe, name)
        if value is not None and (type(value) is not int or not 1 <= value <= _MAX_LIMIT):
            raise BadInputError(
                f"{name}={quoted(value)}: must be an integer of at least 1, at most {_MAX_LIMIT}"
            )
    seconds = recipe.max_seconds
    if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds <= 1e9):
        raise BadInputError(f"max_seconds={quoted(seconds)}: must be a number above 0, at most 1e9")
    if recipe.trees is not None and not isinstance(recipe.trees, bool):
        raise BadInputError(f"trees={quoted(recipe.trees)}: must be true or false")
    if not recipe.questions:
        raise BadInputError("questions is empty: name at least one data set")
    _check_distinct([spec.label for spec in recipe.questions], "questions", "label")
    for spec in recipe.questions:
        _check_questions(spec)


def _check_questions(spec: QuestionSpec) -> None:
    if spec.world is not None and (spec.dataset is not None or spec.file is not None):
        raise BadInputError("questions: give 'world' alone, without 'dataset' and 'file'")
    if spec.world is None and spec.dataset is None and spec.file is None:
        raise BadInputError(
            "questions: give 'dataset' (a published one's name), 'file' (a path) or 'world' (a "
            "set's name)"
        )
    if spec.count is not None and (not isinstance(spec.count, int) or spec.count < 1):
        raise BadInputError(f"questions: count={quoted(spec.count)}: must be at least 1")
    if spec.world is not None and spec.count is not None and spec.count > MAX_QUESTIONS:
        raise BadInputError(
            f"questions: count={spec.count}: the embedded world gives at most {MAX_QUESTIONS}"
        )
    if spec.start < 0:
        raise BadInputError(f"questions: start={spec.start!r}: must be at least 0")
    if spec.world is not None and spec.count is None:
        raise BadInputError("questions: the embedded world's sets are endless: give 'count'")
    if spec.world is not None and (spec.start or spec.shuffle is not None or spec.split):
        raise BadInputError(
            "questions: the embedded world's sets have no 'start', 'shuffle' or 'split': another "
            "'seed' gives other questions"
        )
    if spec.split is not None and spec.file is not None:
        raise BadInputError("questions: a file has no 'split': give one of the two")


def _check_distinct(values: Sequence[Any], name: str, noun: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise BadInputError(f"{name}: {noun} {quoted(value)} occurs twice: make them distinct")
        seen.add(value)


def _nested(value: Any, kind: type, where: str, short: str | None = None) -> Any:
    """An instance of a spec from a mapping, or from a text that stands for its `short` field."""
    if short is not None and isinstance(value, str):
        value = {short: value}
    values = _known(value, kind, where)
    required = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.name not in values
    ]
    if required:
        raise BadInputError(f"{where}: key {required[0]!r} is missing: add it")
    for field in dataclasses.fields(kind):
        # The annotations here are the few simple types a YAML scalar can have.
        kinds = {"int": int, "str": str}.get(str(field.type).removesuffix(" | None"))
        given = values.get(field.name)
        missing = field.name not in values or (given is None and "None" in str(field.type))
        # Compared by `type`, because a truth value is an int in Python.
        if kinds and not missing and type(given) is not kinds:
            raise BadInputError(
                f"{where}: {field.name}={quoted(given)} must be of type {field.type}"
            )
        if field.name in _PATHS:
            check_path_text(given, f"{where}: {field.name}")
    return kind(**values)


def _known(value: Any, kind: type, where: str) -> dict[str, Any]:
    """A mapping as a dictionary; BadInputError if a key is not a field of `kind`."""
    names = [field.name for field in dataclasses.fields(kind) if field.metadata.get("key", True)]
    if not isinstance(value, Mapping):
        raise BadInputError(f"{where}: must be a mapping with the keys {', '.join(names)}")
    for key in value:
        if key not in names:
            known = known_names(key, names)
            if (where, key) == ("policy", "recipe"):
                known = "it is now 'format'"
            raise BadInputError(f"{where}: unknown key {quoted(key)}: {known}")
    return dict(value)


def _items(value: Any, name: str) -> list[Any]:
    """A value as a list: None is empty, and any other single value is a list of one."""
    if isinstance(value, list | tuple):
        return list(value)
    return [] if value is None else [value]


def _frozen(value: Any) -> Any:
    """A YAML value made hashable: mappings and lists become tuples."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: str(item[0]))
        return tuple((key, _frozen(entry)) for key, entry in items)
    if isinstance(value, list):
        return tuple(_frozen(entry) for entry in value)
    return value
