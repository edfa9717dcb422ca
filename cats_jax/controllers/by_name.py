"""Search methods for Python code, by the names and options that recipes have."""

from __future__ import annotations

import pathlib
from typing import Any, Literal

from ..live.method import SearchMethod
from ..specs.recipe import StrategySpec, check_path_text, path_of
from .strategies import DEFAULT_CONTROLLER, build_strategy


def search_method(name: str, **options: Any) -> SearchMethod:
    """The search method of a name, ready for `Searcher(strategy=...)`.

    Args:
        name: one of `cats_jax.controllers.strategies.FACTORIES`, the names that recipes and
            `cats-jax solve --strategy` accept, or `module:function`.
        options: options of this strategy as in a recipe, such as `expansion=2` for "beam", or
            `threshold=0.6, sample={"num_extra": 8}` for "cats_rule"; `beam_width` is K.

    Raises:
        BadInputError: the name or an option is unknown, or a value breaks its rule.
    """
    check_path_text(name, "name")
    return build_strategy(StrategySpec(name, options=tuple(sorted(options.items()))))


def load_controller(
    name: str | pathlib.Path = DEFAULT_CONTROLLER,
    *,
    mode: Literal["argmax", "sample"] = "argmax",
    price: float | None = None,
    prm_token_cost: float | None = None,
    prm_threshold: float | None = None,
    min_prm_weight: float | None = None,
    beam_width: int | None = None,
) -> SearchMethod:
    """A trained CATS controller, ready for `Searcher(strategy=...)`.

    The method includes the calibrations and models of the controller's training. A `Searcher` uses
    the calibration of its PRM, and warns if it has other models.

    Args:
        name: "cats" or "cats-tokens", which are shipped, or a folder that `cats-jax train` wrote.
        mode: "argmax" takes the most likely action, "sample" draws one.
        price: price of 100 candidates, or of 1000 tokens, in units of a right answer, at most the
            largest of the training; default: the training's default.
        prm_token_cost: cost of a PRM token relative to a policy token; default: the training's
            first one.
        prm_threshold: P(step right) below which the PRM is called, see `search.cats.CatsConfig`.
        min_prm_weight: least weight of the PRM at which it is called, see `search.cats.CatsConfig`.
        beam_width: K, the number of paths kept; default: max(1, N // 4).

    Raises:
        BadInputError: the controller is missing or damaged, or an option breaks its rule.
    """
    options = {
        "mode": mode,
        "price": price,
        "prm_token_cost": prm_token_cost,
        "prm_threshold": prm_threshold,
        "min_prm_weight": min_prm_weight,
        "beam_width": beam_width,
    }
    given = {key: value for key, value in options.items() if value is not None}
    return search_method("cats", checkpoint=str(path_of(name, "name")), **given)
