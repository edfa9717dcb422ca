"""Configurations and networks of earlier checkpoints, rewritten for the current version."""

from __future__ import annotations

from typing import Any

import numpy as np

import search

from ..storage.manifest import with_current_names

_RENAMED = {"trace": "gae_lambda", "sample_costs": "prices", "rollouts": "searches_per_question"}


def from_format_2(train_config: dict[str, Any]) -> dict[str, Any]:
    """The training configuration of format 2, rewritten in format 3.

    In format 2 the search has the default price, `learner` has the settings of all algorithms, and
    three settings have other names. The algorithm is PPO if `clip` is a number, AWR if `regression`
    is a number, and A2C otherwise. A missing setting gets its default of format 2.

    Args:
        train_config: JSON value of "train_config"; it is not modified.

    Raises:
        KeyError, TypeError, ValueError: the value is not a configuration.
    """
    learner = dict(train_config["learner"])
    clip, temperature = learner.pop("clip", None), learner.pop("regression", None)
    normalize = {"normalize_advantages": learner.pop("normalize_advantages", False)}
    sequential = learner.pop("sequential", False)
    passes = {name: learner.pop(name, 1) for name in ("num_epochs", "num_minibatches")}
    if clip is not None:
        algorithm = {"name": "PPO", "clip": clip, **passes, **normalize}
    elif temperature is not None:
        algorithm = {"name": "AWR", "temperature": temperature, **normalize}
    else:
        algorithm = {"name": "A2C", "sequential": sequential, **normalize}
    renamed = {_RENAMED.get(name, name): value for name, value in train_config.items()}
    cats = dict(train_config["cats"])
    renamed |= {"cats": cats, "default_price": cats.pop("price", 0.0)}
    return {**renamed, "learner": {"algorithm": algorithm, **learner}}


def from_format_3(document: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's JSON of format 3, with the names of settings and features of format 4.

    Args:
        document: the JSON value; it is not modified.
    """
    read = {name: document[name] for name in ("feature_names", "train_config") if name in document}
    return {**document, **with_current_names(read)}


def excluding_new_features(train_config: dict[str, Any], num_features: int) -> dict[str, Any]:
    """The training configuration, in which the features that its networks lack are excluded.

    A search then does not need what only these features read, such as log-probabilities.

    Args:
        train_config: JSON value of "train_config"; it is not modified.
        num_features: number of features of the checkpoint, the first of the current ones.

    Raises:
        KeyError, TypeError: the value is not a configuration.
    """
    cats = train_config["cats"]
    new = set(search.cats.FEATURE_NAMES[num_features:]) - set(cats["excluded_features"])
    if not new:
        return train_config
    excluded = [*cats["excluded_features"], *(n for n in search.cats.FEATURE_NAMES if n in new)]
    return {**train_config, "cats": {**cats, "excluded_features": excluded}}


def with_new_features(params: Any, num_features: int) -> Any:
    """A network's parameters with weights of 0 for the features that it was trained without.

    Args:
        params: parameters of a network; it is not modified.
        num_features: number of features of its training, the first of the current ones.
    """
    missing = len(search.cats.FEATURE_NAMES) - num_features
    first = dict(params["layer_0"])
    first["kernel"] = np.pad(np.asarray(first["kernel"]), ((0, missing), (0, 0)))
    return {**params, "layer_0": first}
