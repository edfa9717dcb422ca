"""The recipe of one cell that `cats-jax solve` searches with, from its options."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from ..controllers.strategies import default_calibrations
from ..errors import BadInputError
from ..specs.calibrations import load_calibrations
from ..specs.certificates import LIMITS, read_certificate, read_content
from ..specs.models import PAID_KEYS
from ..specs.recipe import (
    PolicySpec,
    PrmSpec,
    QuestionSpec,
    Recipe,
    StrategySpec,
    load_recipe,
    parse_recipe,
    parse_strategy,
)
from ..storage.reading import reading
from .solve_options import SolveOptions

_OF_STRATEGIES = ("checkpoint", "beam_width", "path_score")
_OF_MODELS = ("policy", "policy_format", "policy_adapter", "prm_format", "prm_adapter", "prm_head")
_OF_MODELS += ("chat", "calibration", "max_step_tokens")
_OF_CERTIFICATES = ("strategy", "num_candidates", "calibration", *_OF_STRATEGIES)


def one_cell(
    given: Mapping[str, Any], loading: SolveOptions, recipe: pathlib.Path | None
) -> Recipe:
    """A recipe of one cell, so that its rules are those of every recipe.

    Args:
        given, loading: the options by name, and how policy and PRM are loaded.
        recipe: recipe whose values the options replace; None: a certificate's, if one is given, or
            the defaults.

    Raises:
        BadInputError: an option breaks a rule, or the recipe or the certificate sets it.
    """
    if recipe is not None:
        return _of_recipe(recipe, given, loading)
    return _of_certificate(given, loading) if "certified" in given else _of_options(given, loading)


def _of_options(given: Mapping[str, Any], loading: SolveOptions) -> Recipe:
    """A recipe of one cell from the options alone."""
    if "chat" in given and given.get("prm") == "chat-judge" and loading.prm_backend is None:
        raise BadInputError(
            "--prm chat-judge: with --chat the judge has options of its own: give --prm-backend "
            "and --prm-served-name"
        )
    of_policy, of_prm = loading.of_each(chat="chat" in given)
    steps = {name: given[name] for name in ("max_step_tokens",) if name in given}
    policy = PolicySpec(
        given.get("policy", "weak"),
        format=given.get("policy_format", "auto"),
        adapter=given.get("policy_adapter"),
        **steps,
        **of_policy,
    )
    prm = PrmSpec(
        given.get("prm", "exact"),
        format=given.get("prm_format", "auto"),
        adapter=given.get("prm_adapter"),
        head=given.get("prm_head"),
        **of_prm,
    )
    spec = StrategySpec(given.get("strategy", "beam"), options=_options(given))
    if "calibration" in given:
        calibrations = load_calibrations(given["calibration"], [prm.label])
    else:
        calibrations = default_calibrations(spec, policy.name)
    return Recipe(
        name="solve",
        strategies=(spec,),
        num_candidates=(given.get("num_candidates", 16),),
        questions=(QuestionSpec(world="test", count=1),),
        policy=policy,
        prms=(prm,),
        calibration=calibrations,
        seeds=(given.get("seed", 0),),
        max_depth=given.get("max_depth", 10),
        budget=given.get("budget"),
        in_flight=1,
    )


def _certified(given: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a certified strategy in a recipe.

    Raises:
        BadInputError: an option is given that only the certificate may set.
    """
    if clashing := [name for name in _OF_CERTIFICATES if name in given]:
        raise BadInputError(
            f"{_option(clashing[0])}: the certificate {given['certified']!r} names the strategy "
            "with its options, N and calibration: leave the option out"
        )
    return {"certified": given["certified"], "elsewhere": "elsewhere" in given}


def _of_certificate(given: Mapping[str, Any], loading: SolveOptions) -> Recipe:
    """A recipe of one cell from a certificate; given options replace its values."""
    strategy = _certified(given)
    if "chat" in given:
        raise BadInputError(
            "--chat: the certificate names the policy: name the certificate in a recipe whose "
            "policy has chat: true, and give that by --recipe"
        )
    path = str(given["certified"])
    content, (_, certified) = read_content(path), read_certificate(path)
    config = content["config"]
    with reading(f"certificate {path!r}", "make it anew by `cats-jax certify`"):
        policy, prms = _certified_models(path, content, certified.prm, given, loading)
        limits = {name: given.get(name, config.get(name)) for name in LIMITS}
        return parse_recipe(
            {
                "name": "solve",
                "strategies": [strategy],
                "questions": {"world": "test", "count": 1},
                "policy": policy,
                "prms": prms,
                "seeds": given.get("seed", 0),
                "in_flight": 1,
                **{name: value for name, value in limits.items() if value is not None},
            }
        )


def _certified_models(
    path: str,
    content: Mapping[str, Any],
    prm: str | None,
    given: Mapping[str, Any],
    loading: SolveOptions,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The policy and the certified PRM of a certificate; given options replace their values.

    Raises:
        BadInputError: a model needs a setting that only the user may give, see `_USERS_OWN`.
    """
    config, (of_policy, of_prm) = content["config"], loading.given_for_each()
    policy = dict(config["policy"])
    prms = [dict(each) for each in config["prms"] if each.get("label") == prm]
    asked = content.get("asked") or {}
    for model, name in ((policy, "policy"), *((each, "prm") for each in prms)):
        # The user's value, not the one that the run chose for its questions.
        at, changed = (name, of_policy) if model is policy else (f"prm {prm}", of_prm)
        model["max_model_len"] = asked.get(at, {}).get("max_model_len")
        for key in PAID_KEYS:  # no run writes them; a stranger's could name a file to write
            model.pop(key, None)
        keys = {name: "path", f"{name}_format": "format", f"{name}_adapter": "adapter"}
        keys |= {"prm_head": "head"} if name == "prm" else {"max_step_tokens": "max_step_tokens"}
        for key in _USERS_OWN:
            value = model.get(key)
            if value is None or (key == "backend" and value in ("hf", "vllm", "auto")):
                continue
            if key not in changed:
                raise BadInputError(
                    f"certificate {path!r}: its {name} has {key}, and a file may not say where a "
                    "question goes or what runs: name the certificate in a recipe of your own that "
                    "has it, or give the option of solve"
                )
        model |= changed | {key: given[option] for option, key in keys.items() if option in given}
    return policy, prms


_USERS_OWN = ("backend", "served_name", "api_key_env", "engine_args")
"""Settings that name a server, its key, or classes that an engine loads: no certificate, which
may come from a stranger, may set them."""


def _of_recipe(path: pathlib.Path, given: Mapping[str, Any], loading: SolveOptions) -> Recipe:
    """A recipe of one cell from a recipe's values; given options replace them."""
    if unread := [*(_option(name) for name in _OF_MODELS if name in given), *loading.given()]:
        raise BadInputError(
            f"{unread[0]}: the recipe {str(path)!r} names the models with their settings: change "
            "it there, or leave --recipe out"
        )
    limits = {name: given[name] for name in ("max_depth", "budget") if name in given}
    recipe = load_recipe(path, {**limits, "in_flight": 1})
    label = given.get("strategy", recipe.strategies[0].label)
    if "certified" in given:
        spec = parse_strategy(_certified(given))
    else:
        spec = next((s for s in recipe.strategies if s.label == label), StrategySpec(label))
    if spec.certified is not None:
        # Its label chose the strategy.
        set_there = {name: given[name] for name in _OF_CERTIFICATES[1:] if name in given}
        _certified({"certified": spec.certified.file, **set_there})
    options = tuple(sorted({**dict(spec.options), **dict(_options(given))}.items()))
    labels = [prm.label for prm in recipe.prms]
    if "prm" in given and given["prm"] not in labels:
        raise BadInputError(
            f"--prm {given['prm']!r} is not in the recipe {str(path)!r}: it has "
            f"{', '.join(labels) or 'none'}"
        )
    certified = None if spec.certified is None else spec.certified.prm
    first = certified if certified in labels else labels[0] if labels else None
    wanted = given.get("prm", first)
    return dataclasses.replace(
        recipe,
        strategies=(dataclasses.replace(spec, options=options),),
        num_candidates=(given.get("num_candidates", recipe.num_candidates[0]),),
        prms=tuple(prm for prm in recipe.prms if prm.label == wanted),
        seeds=(given.get("seed", recipe.seeds[0]),),
    )


def _option(name: str) -> str:
    """The option of this name, as on the command line."""
    return f"--{name.replace('_', '-')}"


def _options(given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The given options of strategies, as those of a `StrategySpec`."""
    return tuple(sorted((name, given[name]) for name in _OF_STRATEGIES if name in given))
