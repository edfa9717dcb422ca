"""Strategies from the names and options of a recipe or a command line."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import jax.numpy as jnp

import search
from search.answers import answer_weighted

from .. import world
from ..errors import BadInputError, known_names, misspelt
from ..live.method import Fingerprints, Origin, check_trained
from ..live.method import SearchMethod as SearchMethod
from ..specs.calibrations import Calibrations
from ..specs.functions import is_function_name, load_function
from ..specs.recipe import StrategySpec, check_path_text

DEFAULT_CONTROLLER = "cats"
"""Name of the default controller, trained for the policy "weak" of the embedded world."""

_CONFIG_OPTIONS = (
    "rounds",
    "num_base",
    "base",
    "score_base",
    "expansion",
    "path_score",
    "vote",
    "calibrated",
    "actions",
)
"""Fields of `search.cats.CatsConfig` that a recipe may set; `actions` is the name of a table."""


_PRESETS: Mapping[str, search.cats.CatsConfig] = MappingProxyType(
    {
        "cats": search.cats.CATS,
        "paper": search.cats.PAPER,
        "tokens": search.cats.CATS_TOKENS,
        "selective": search.cats.SELECTIVE,
    }
)
"""Name -> configuration, as the option `config` names them."""


class MissingControllerError(BadInputError):
    """The folder of a strategy's controller does not exist."""


def build_strategy(spec: StrategySpec, path_score: str | None = None) -> SearchMethod:
    """Build a strategy from its name and options.

    Args:
        spec: name and options of the strategy. The name is one of `FACTORIES`, or `module:function`
            for a function that returns a `search.Strategy` or a `SearchMethod`. Each also has the
            option `beam_width`, the number K of paths kept.
        path_score: default of an option `path_score`.

    Raises:
        BadInputError: a name or option is unknown, or the value of an option breaks its rule.
    """
    factory = _factory(spec)
    options = dict(spec.options)
    beam_width = options.pop("beam_width", None)
    known = options_of(spec)
    for name in options:
        if name not in known:
            raise BadInputError(
                f"strategy {spec.label!r}: unknown option {name!r}: "
                f"{known_names(name, [*known, 'beam_width'])}"
            )
    if path_score is not None and "path_score" in known:
        options.setdefault("path_score", path_score)
    missing = [name for name in _required_of(factory) if name not in options]
    if missing:
        raise BadInputError(
            f"strategy {spec.label!r} needs the option{'s' if missing[1:] else ''} "
            f"{' and '.join(missing)}: add {'them' if missing[1:] else 'it'} to its entry in a "
            "recipe, or to the arguments of "
            "cats_jax.search_method"
        )
    for name in ("sampling", "base"):
        if name in options:
            options[name] = _sampling(spec, name, options[name])
    _check_numbers(spec, factory, options)
    try:
        method = factory(**options)
    except BadInputError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise BadInputError(f"strategy {spec.label!r}: {error}") from error
    if beam_width is not None:
        if isinstance(beam_width, bool) or not isinstance(beam_width, int) or beam_width < 1:
            raise BadInputError(
                f"strategy {spec.label!r}: beam_width={beam_width!r}: K must be a whole number, at "
                "least 1"
            )
        method = method._replace(strategy=_with_width(method.strategy, beam_width))
    return method


def _check_numbers(
    spec: StrategySpec, factory: Callable[..., SearchMethod], options: Mapping[str, Any]
) -> None:
    """Raise BadInputError for a text or a list where the default of an option is a number."""
    if is_function_name(spec.name):
        return  # it checks its options itself
    parameters = inspect.signature(factory).parameters
    typed = [(name, each.default, each.annotation) for name, each in parameters.items()]
    if "changes" in parameters:
        fields = dataclasses.fields(search.cats.CatsConfig)
        typed += [(each.name, each.default, each.type) for each in fields]
    for name, default, annotation in typed:
        value = options.get(name, default)
        if type(default) not in (int, float) or isinstance(value, numbers.Real):
            continue
        if value is not None or "None" not in str(annotation):
            what = "a whole number" if type(default) is int else "a number"
            raise BadInputError(f"strategy {spec.label!r}: {name}={value!r}: must be {what}")


def _factory(spec: StrategySpec) -> Callable[..., SearchMethod]:
    if is_function_name(spec.name):
        return _plain(load_function(spec.name), spec.label)
    if spec.name not in FACTORIES:
        raise BadInputError(
            f"unknown strategy {spec.name!r}: {known_names(spec.name, sorted(FACTORIES))}, or name "
            "a function of your own as module:function"
        )
    return FACTORIES[spec.name]


def options_of(spec: StrategySpec) -> list[str]:
    """Names of the options of a strategy, except `beam_width`: its factory's keyword arguments.

    In place of `**changes` there are the fields of a CATS configuration.
    """
    parameters = inspect.signature(_factory(spec)).parameters
    names = [name for name in parameters if name != "changes"]
    return [*names, *_CONFIG_OPTIONS] if "changes" in parameters else names


def _required_of(factory: Callable[..., SearchMethod]) -> list[str]:
    """Names of the options without a default, in the factory's order."""
    return [
        name
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


@functools.cache
def _with_width(strategy: search.Strategy, width: int) -> search.Strategy:
    # Cached: another object would be another compilation. A K below N drops paths by their scores.
    return dataclasses.replace(
        strategy,
        width=lambda num_candidates: width,
        keeps_all_paths=False,
        needs_step_scores=strategy.needs_step_scores or strategy.keeps_all_paths,
    )


def _plain(factory: Callable[..., Any], label: str = "") -> Callable[..., SearchMethod]:
    """Turn a factory of strategies into a factory of search methods without parameters."""

    @functools.wraps(factory)
    def build(**options: Any) -> SearchMethod:
        made = factory(**options)
        if isinstance(made, SearchMethod):
            return made
        if not isinstance(made, search.Strategy):
            raise BadInputError(
                f"strategy {label!r}: the function returned a {type(made).__name__}: return a "
                "search.Strategy, or a SearchMethod with the parameters of its policy"
            )
        return SearchMethod(made)

    return build


def _cats(
    *,
    checkpoint: str = DEFAULT_CONTROLLER,
    mode: Literal["argmax", "sample"] = "argmax",
    price: float | None = None,
    prm_token_cost: float | None = None,
    prm_threshold: float | None = None,
    min_prm_weight: float | None = None,
) -> SearchMethod:
    path = controller_folder(checkpoint)
    # Imported here: it imports the learners, which only a learned policy needs.
    from .checkpoint import load, make_controller, origin_of

    found = load(path)
    config = found.train_config
    if prm_token_cost is not None and config.cats.cost_unit != "tokens":
        raise BadInputError(
            f"prm_token_cost={prm_token_cost!r}: this controller was trained with a price of "
            "candidates, in which PRM tokens are free: leave the option out"
        )
    price = config.default_price if price is None else _price(price)
    rate = (
        config.prm_token_costs[0]
        if prm_token_cost is None
        else _number("prm_token_cost", prm_token_cost, _RATE)
    )
    check_trained("price", price, config.prices)
    check_trained("prm_token_cost", rate, config.prm_token_costs)
    searched = _with_selective_calls(found.config, prm_threshold, min_prm_weight)
    strategy = search.cats.cats(make_controller(found, mode), searched)
    origin = origin_of(path.name, found.info)
    known = config.prices, config.prm_token_costs
    return SearchMethod(strategy, found.actor, price, rate, origin, *known)


_RATE = "the cost of a PRM token relative to a policy token"


def _price(value: Any) -> float:
    return _number(
        "price", value, "the price per 100 candidates, or per 1000 tokens, in right answers"
    )


def _number(name: str, value: Any, meaning: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0.0 <= value < float("inf"):
        raise BadInputError(f"{name}={value!r}: must be a number >= 0, {meaning}")
    return float(value)


def _learned_stopping(
    *,
    checkpoint: str | None = None,
    price: float | None = None,
    sampling: search.Sampling = search.Sampling(),
) -> SearchMethod:
    if checkpoint is None:
        raise BadInputError(
            "learned_stopping needs a checkpoint: name a folder written by `cats-jax train "
            "--config stopping`"
        )
    path = controller_folder(checkpoint)
    # Imported here, because it imports the learners, which only a learned policy needs.
    from .checkpoint import origin_of
    from .stopper import load_stopper

    found = load_stopper(path)
    known = sorted(found.prices)
    if price is None:
        price = known[len(known) // 2]
    price = _number("price", price, "the price of 100 paths, in right answers")
    check_trained("price", price, known)
    origin = origin_of(path.name, found.info)
    return SearchMethod(found.strategy(sampling), found.actor, price, 1.0, origin, found.prices)


def _cats_random(*, config: str = "cats", price: float = 0.0, **changes: Any) -> SearchMethod:
    strategy = search.cats.cats(search.cats.random_policy, _cats_config(config, changes))
    return SearchMethod(strategy, (), _price(price))


def _cats_constant(
    *, action: tuple[tuple[str, Any], ...], config: str = "cats", price: float = 0.0, **changes: Any
) -> SearchMethod:
    settings = _cats_config(config, changes)
    index = _action_row(action, settings)
    strategy = search.cats.cats(search.cats.constant_policy, settings)
    return SearchMethod(strategy, jnp.int32(index), _price(price))


def _action_row(action: tuple[tuple[str, Any], ...], settings: search.cats.CatsConfig) -> int:
    """Index of an action in a configuration's action table."""
    names = ("num_extra", "num_retain", "temperature", "top_p", "top_k")
    try:
        given = dict(action)
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"action {action!r}: must be a mapping, such as {{num_extra: 8}}"
        ) from error
    wanted = {"num_retain": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0, **given}
    if set(wanted) != set(names):
        raise BadInputError(f"action {given}: give {', '.join(names)} and no more")
    row = tuple(wanted[name] for name in names)
    if row not in settings.actions.rows:
        columns = zip(names, zip(*settings.actions.rows, strict=True), strict=True)
        values = "; ".join(
            f"{name} {', '.join(f'{value:g}' for value in sorted(set(column)))}"
            for name, column in columns
        )
        raise BadInputError(
            f"action {given} is not in the action table: choose {', '.join(names)} among its "
            f"values ({values}), or another table by 'actions'"
        )
    return settings.actions.rows.index(row)


def _cats_rule(
    *,
    threshold: float,
    sample: tuple[tuple[str, Any], ...],
    keep: int = 1,
    feature: str = "max",
    prm_threshold: float | None = None,
    min_prm_weight: float | None = None,
    config: str = "cats",
    price: float = 0.0,
    **changes: Any,
) -> SearchMethod:
    settings = _cats_config(config, changes)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise BadInputError(f"threshold={threshold!r}: must be a number")
    sampling = _action_row(sample, settings)
    stops = [row for row, action in enumerate(settings.actions.rows) if action[:2] == (0, keep)]
    if not stops:
        raise BadInputError(
            f"keep={keep!r}: the action table has no action that samples nothing and keeps so many"
        )
    params = search.cats.RuleParams(
        threshold=jnp.float32(threshold), sample=jnp.int32(sampling), stop=jnp.int32(stops[0])
    )
    policy = search.cats.sample_while_below(feature)
    if feature in settings.excluded_features:
        having = [name for name, each in _PRESETS.items() if feature not in each.excluded_features]
        raise BadInputError(
            f"feature={feature!r}: configuration {config!r} sets this feature to 0: take config: "
            f"{' or '.join(having)}, or another feature"
        )
    strategy = search.cats.cats(
        policy, _with_selective_calls(settings, prm_threshold, min_prm_weight)
    )
    return SearchMethod(strategy, params, _price(price))


def _with_selective_calls(
    config: search.cats.CatsConfig, prm_threshold: float | None, min_prm_weight: float | None
) -> search.cats.CatsConfig:
    """The configuration with the options for selective PRM calls; None changes nothing.

    Raises:
        BadInputError: a value is not a number, or the configuration excludes such calls.
    """
    given = {
        name: _number(name, value, meaning)
        for name, value, meaning in (
            ("prm_threshold", prm_threshold, "a probability"),
            ("min_prm_weight", min_prm_weight, "a share"),
        )
        if value is not None
    }
    if not given:
        return config
    asks = config.prm_threshold is not None
    if not asks and (not config.calibrated or not config.score_base):
        values = ", ".join(f"{name}={value:g}" for name, value in given.items())
        raise BadInputError(
            f"{values}: only with config: tokens, or with a controller of that configuration, such "
            "as cats-tokens: leave the option out, or take one of these"
        )
    if not asks and prm_threshold is None:
        raise BadInputError(
            f"min_prm_weight={min_prm_weight} has no effect without prm_threshold: add it"
        )
    return dataclasses.replace(config, score_base=False, **given)


def _cats_config(name: str, changes: Mapping[str, Any]) -> search.cats.CatsConfig:
    if name not in _PRESETS:
        raise BadInputError(f"unknown configuration {name!r}: choose one of {', '.join(_PRESETS)}")
    changes = dict(changes)
    if "actions" in changes:
        changes["actions"] = search.cats.action_table(changes["actions"])
    return dataclasses.replace(_PRESETS[name], **changes)


def controller_of(spec: StrategySpec) -> pathlib.Path | None:
    """The folder of the controller of a strategy; None for strategies without one.

    Raises:
        MissingControllerError: there is no such folder.
    """
    checkpoint = dict(spec.options).get("checkpoint")
    if spec.name == "cats":
        return controller_folder(checkpoint or DEFAULT_CONTROLLER)
    if spec.name == "learned_stopping" and checkpoint is not None:
        return controller_folder(checkpoint)
    return None


def controller_folder(name: str) -> pathlib.Path:
    """The folder of a controller, given by path or by the name of a shipped controller.

    Raises:
        BadInputError: the name looks like a misspelt name of a shipped controller.
        MissingControllerError: there is no such folder.
    """
    check_path_text(name, "checkpoint")
    controllers = world.ASSETS / "controllers"
    shipped = controllers / name
    path = shipped if shipped.is_dir() else pathlib.Path(name)
    if not path.is_dir():
        hint = misspelt(name, [folder.name for folder in controllers.iterdir()])
        raise (BadInputError if hint else MissingControllerError)(
            f"controller folder {str(path)!r} does not exist: {hint}train one with `cats-jax train`"
        )
    return path


def foreign_models(specs: Iterable[StrategySpec], models: Fingerprints) -> tuple[str, ...]:
    """A warning for each controller whose training had other models than a search.

    Args:
        specs: strategies of a search.
        models: fingerprints of its policy and PRMs.

    Raises:
        BadInputError: a controller is missing, or its checkpoint is damaged.
    """
    found = ((spec, _origin(spec)) for spec in specs)
    lines = (origin.warning(models, spec.label) for spec, origin in found if origin is not None)
    return tuple(line for line in lines if line is not None)


def default_calibrations(spec: StrategySpec, policy: str) -> Calibrations:
    """The default calibrations of PRMs for a strategy and a policy.

    Args:
        policy: path or name of the policy.

    Returns:
        Those of the controller, see `Origin.calibrations_for`, or those shipped for the policy.

    Raises:
        BadInputError: the controller is missing, or its checkpoint is damaged.
    """
    return (_origin(spec) or Origin(spec.label)).calibrations_for(pathlib.Path(policy).name)


def _origin(spec: StrategySpec) -> Origin | None:
    """The origin of a strategy's controller; None for a strategy without a controller."""
    folder = controller_of(spec)
    if folder is None:
        return None
    # Imported here, because it imports the learners, which only a learned policy needs.
    from .checkpoint import origin_of, read_info

    return origin_of(folder.name, read_info(folder))


def revisions_of(
    specs: Sequence[StrategySpec],
    path_scores: Sequence[str | None] = (),
    *,
    replayed: bool = False,
) -> dict[str, int] | None:
    """Versions of changed rules by method, or None; no run may continue with another version.

    Args:
        specs: strategies of the run.
        path_scores: those of the run's PRMs, defaults of the option `path_score`.
        replayed: the run replays a step bank.
    """
    found: dict[str, int] = {}
    for spec in specs:
        certified = spec.certified
        usual = path_scores if certified is None else (certified.path_score,)
        revision = _revision(spec, usual or (None,), replayed=replayed)
        if revision > 1:
            found[spec.name] = max(revision, found.get(spec.name, 1))
    return found or None


def _revision(spec: StrategySpec, path_scores: Sequence[str | None], *, replayed: bool) -> int:
    """The version of a strategy's rule with these options and these defaults of `path_score`."""
    options = dict(spec.options)
    changes = (
        options.get("resampling") == "residual",
        spec.name == "sequential_best_of_n" and bool(options.get("abort")),
        spec.name == "step_level_beam" and "beam_width" in options,
        spec.name == "global_mcts"
        and options.get("max_nodes", 1024) <= options.get("branching", 4),
        replayed and spec.name in _RETURNING,
        replayed and spec.name == "global_mcts",  # the draws once more
        replayed and spec.name == "global_mcts",  # tokens of the PRM, as for the next two
        replayed and spec.name == "lookahead" and options.get("lookahead", 1) > 1,
        replayed and spec.name == "vg_search" and options.get("granularity", 2) > 1,
        replayed and _ranked_by_unread_scores(spec),
        any(_reads_ratios(spec, path_score) for path_score in path_scores),
    )
    return _REVISIONS.get(spec.name, 1) + sum(changes)


def _ranked_by_unread_scores(spec: StrategySpec) -> bool:
    """Whether a replay pruned by scores that the strategy does not read."""
    if spec.name == "greedy" or "beam_width" not in dict(spec.options):
        return False
    return not build_strategy(spec).strategy.uses_scores


def _reads_ratios(spec: StrategySpec, path_score: str | None) -> bool:
    """Whether a strategy reads ratios of products of scores, also of those that round to 0."""
    if "path_score" not in options_of(spec):
        return False
    strategy = build_strategy(spec, path_score).strategy
    is_product = strategy.aggregation is search.aggregations.AGGREGATIONS["product"]
    weighted = strategy.answer is answer_weighted or spec.name == "proportional_resampling"
    return is_product and weighted and strategy.uses_scores


def _sampling(spec: StrategySpec, name: str, value: Any) -> search.Sampling:
    where = f"strategy {spec.label!r}: {name}"
    # A mapping of a recipe is a tuple of pairs by now, and an empty one an empty tuple.
    pairs = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise BadInputError(f"{where}={value!r}: must be a mapping, such as {{temperature: 0.5}}")
    known = [field.name for field in dataclasses.fields(search.Sampling)]
    for key, given in pairs:
        if key not in known:
            raise BadInputError(f"{where}: unknown key {key!r}: {known_names(key, known)}")
        allowed = numbers.Integral if key == "top_k" else numbers.Real
        if isinstance(given, bool) or not isinstance(given, allowed):
            what = "a whole number" if key == "top_k" else "a number"
            raise BadInputError(f"{where}: {key} must be {what}, got {given!r}")
    try:
        return search.Sampling(**dict(pairs))
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from error


FACTORIES: Mapping[str, Callable[..., SearchMethod]] = MappingProxyType(
    {
        **{name: _plain(factory) for name, factory in search.methods.FACTORIES.items()},
        "learned_stopping": _learned_stopping,
        "cats": _cats,
        "cats_random": _cats_random,
        "cats_constant": _cats_constant,
        "cats_rule": _cats_rule,
    }
)
"""The factories of strategies by the names that recipes use."""

_REVISIONS: Mapping[str, int] = MappingProxyType(
    {
        "ab_mcts_a": 2,
        "early_stopping_consistency": 2,
        "global_mcts": 2,
        "llama_berry": 2,
        "lookahead": 2,
        "mcts": 3,
        "particle_filtering": 2,
        "proportional_resampling": 2,
    }
)
"""Methods whose rule has changed under the same name -> version of the current rule."""

_RETURNING = frozenset(
    {
        "adaptive_consistency",
        "early_stopping_consistency",
        "global_mcts",
        "learned_stopping",
        "litesearch",
        "mcts",
        "particle_gibbs",
        "sequential_best_of_n",
    }
)
"""Methods that return to a node, whose draws of a step bank have changed."""
