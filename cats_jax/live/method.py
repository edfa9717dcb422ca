"""A search method: a strategy with the parameters, price and calibrations that it searches with."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import search

from .. import world
from ..errors import BadInputError
from ..specs.calibrations import (
    IDENTITY,
    LIKELIHOOD,
    Calibrations,
    CalibrationValues,
    calibration_of,
    load_calibrations,
    shipped_calibrations,
)

Fingerprints = Mapping[str, Mapping[str, Any]]
"""Fingerprints of models by "policy" and "prm LABEL": a `ModelSource.fingerprint`, or the name."""


@dataclass(frozen=True)
class Origin:
    """What a controller's checkpoint records about its training.

    Attributes:
        name: name of the controller's folder.
        models: fingerprints of the policy and the PRMs; None if they were not recorded.
        calibrations: calibrations of the PRMs, by their labels in the training.
    """

    name: str
    models: Fingerprints | None = None
    calibrations: Calibrations = field(default=(), repr=False)

    def warning(self, models: Fingerprints, label: str | None = None) -> str | None:
        """A warning in one line if the controller was not trained with these models, else None.

        Args:
            models: the models of a search.
            label: name of the controller in the line; default: that of its folder.
        """
        if self.models is None:
            # Training in the simulator records no models. It is for those of the embedded world.
            if models["policy"].get("name") in world.POLICY_NAMES:
                return None
            which = "does not say which models it was trained with"
        else:
            known = [(role.split()[0], model) for role, model in self.models.items()]
            others = [
                f"{role} {model.get('name', dict(model))!r}"
                for role, model in models.items()
                if not any(kind == role.split()[0] and _same(model, each) for kind, each in known)
            ]
            if not others:
                return None
            which = f"was not trained with {', '.join(others)}"
        return (
            f"controller {label or self.name!r} {which}: its lead over fixed strategies need not "
            "hold here; compare them on a validation bank of these models"
        )

    def calibrations_for(self, policy: str) -> Calibrations:
        """The calibrations of PRMs in searches with a policy, by the names of the PRMs.

        They are those of the training, if it used this policy or recorded none. For another policy
        of the embedded world, they are the shipped ones. Otherwise they are empty, because a
        calibration depends on the policy.

        Args:
            policy: name of the policy.
        """
        taught = (self.models or {}).get("policy", {}).get("name", policy)
        if taught == policy and self.calibrations:
            prms = [(self.models or {}).get(f"prm {label}", {}) for label, _ in self.calibrations]
            names = {
                prm["name"]: values
                for prm, (_, values) in zip(prms, self.calibrations, strict=True)
                if "name" in prm
            }
            return tuple({**dict(self.calibrations), **names}.items())
        weighs_likelihood = any(values[3] != 0.0 for _, values in self.calibrations)
        shipped = policy + LIKELIHOOD if weighs_likelihood else policy
        return load_calibrations(shipped) if shipped in shipped_calibrations() else ()


def _same(model: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether a model is the known one, by its fingerprint, or by its name if it has only a name.

    The fingerprint of a user's own model is its function, without a name; every name matches it.
    """
    by_name = set(model) == {"name"} and model["name"] == known.get("name", model["name"])
    return model == known or by_name


def check_trained(name: str, value: float, known: Sequence[float]) -> None:
    """Raise BadInputError for a value above all those in the training of a controller.

    Below the smallest value of its training, a controller spends about as much as at that value.
    """
    if known and value > max(known) > 0.0:
        raise BadInputError(
            f"{name}={value:g}: this controller was trained at {name}s of {min(known):g} to "
            f"{max(known):g}: stay in this range, or train another one"
        )


class SearchMethod(NamedTuple):
    """A strategy with the values that a search with it needs.

    Attributes:
        strategy: strategy of the search.
        params: parameters of the strategy's controller; `()` without one.
        price: price per 100 candidates, or per 1000 tokens, in the context of the search.
        prm_token_cost: cost of a PRM token relative to a policy token, in the context of the
            search.
        origin: what the controller was trained with; None for other methods.
        prices: prices in the training of the controller; empty for other methods.
        prm_token_costs: costs of a PRM token in that training; empty for other methods.
    """

    strategy: search.Strategy
    params: Any = ()
    price: float = 0.0
    prm_token_cost: float = 1.0
    origin: Origin | None = None
    prices: Sequence[float] = ()
    prm_token_costs: Sequence[float] = ()

    def calibration(
        self, policy: str, prm: str | None, given: str | pathlib.Path | None = None
    ) -> CalibrationValues:
        """The calibration of a search with this method.

        Args:
            policy: name of the policy.
            prm: name of the PRM; None without one.
            given: name or file of calibrations as in a recipe; None: those of the controller.

        Raises:
            BadInputError: the strategy reads a calibration, and there is none for the PRM.
        """
        if prm is None or (given is None and not self.strategy.needs_calibration):
            return IDENTITY
        if given is not None:
            return calibration_of(prm, load_calibrations(given, [prm]), required=True)
        own = () if self.origin is None else self.origin.calibrations_for(policy)
        known = dict(own)
        if prm in known:
            return known[prm]
        whose = "" if self.origin is None else f" of controller {self.origin.name!r}"
        has = f"there are only those of {', '.join(known)}" if known else "there is none"
        raise BadInputError(
            f"strategy {self.strategy.name!r}{whose} reads the calibration of PRM {prm!r} beside "
            f"policy {policy!r}, but {has}: give calibration=, the values or a file of `cats-jax "
            "calibrate`, or 'none' for scores as they are"
        )
