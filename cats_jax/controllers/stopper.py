"""Checkpoints of stoppers, see `search.methods.learned_stopping`: a safetensors and a JSON file.

`checkpoint.json`, which is written last, holds the names of the features, the sizes and the info.
The network is in `actor.safetensors`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

import learners
import search

from ..errors import BadInputError, quoted
from ..storage import durable
from ..storage.reading import read_json, reading
from ..storage.rules import INTEGER, NUMBER, TEXT, TRUTH, check_entries, list_of
from .checkpoint import JSON_NAME, is_finite

KIND = "stopper"
"""Value of the JSON file's key "kind"."""

FORMAT_VERSION = 1

_ACTOR = "actor.safetensors"
_WAY_OUT = "copy it anew or train again"
_MAX_WIDTH, _MAX_LAYERS = 4096, 16


class Stopper(NamedTuple):
    """A stopper as read from a folder.

    Attributes:
        actor: parameters of the network of `strategy`, f32.
        uses_scores: whether scores are features.
        path_score: name of the aggregation of step scores.
        hidden: widths of the actor's hidden layers.
        prices: prices of 100 paths in its training.
        info: JSON values from the caller of `save_stopper`.
    """

    actor: Any
    uses_scores: bool
    path_score: str
    hidden: tuple[int, ...]
    prices: tuple[float, ...]
    info: dict[str, Any]

    def strategy(self, sampling: search.Sampling = search.Sampling()) -> search.Strategy:
        """The search of this stopper; its params are `actor`."""
        network = learners.make_actor(2, self.hidden, len(search.stopping.STOPPING_FEATURES))
        return search.methods.learned_stopping(
            search.stopping.network_stopper(network.apply),
            uses_scores=self.uses_scores,
            path_score=self.path_score,
            sampling=sampling,
        )


def save_stopper(path: str | pathlib.Path, stopper: Stopper) -> pathlib.Path:
    """Write a stopper to a new folder.

    Raises:
        BadInputError: the folder holds a checkpoint already, or the training diverged.
    """
    path = pathlib.Path(path).absolute()
    if (path / JSON_NAME).exists():
        raise BadInputError(f"{path} holds a checkpoint already: choose another path")
    if not is_finite(stopper.actor):
        raise BadInputError(
            f"{path}: the training diverged, its network is not finite: take another --seed"
        )
    path.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.asarray(leaf, np.float32) for name, leaf in _named(stopper.actor)}
    durable.replace(path / _ACTOR, save(arrays))
    document = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "feature_names": list(search.stopping.STOPPING_FEATURES),
        "uses_scores": stopper.uses_scores,
        "path_score": stopper.path_score,
        "hidden": list(stopper.hidden),
        "prices": list(stopper.prices),
        "info": stopper.info,
    }
    durable.replace_json(path / JSON_NAME, document, indent=1)
    return path


def load_stopper(path: str | pathlib.Path) -> Stopper:
    """Read a stopper.

    Raises:
        BadInputError: the stopper is missing, damaged, of another format, or has other features.
    """
    path = pathlib.Path(path).absolute()
    file = path / JSON_NAME
    document = None
    if file.is_file():
        with reading(str(file), _WAY_OUT, "is not JSON"):
            document = read_json(file)
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BadInputError(
            f"{path} is no stopper: name a folder written by `cats-jax train --config stopping`"
        )
    if document.get("format_version") != FORMAT_VERSION:
        raise BadInputError(
            f"{path} has stopper format {quoted(document.get('format_version'))}, this version of "
            f"cats-jax reads {FORMAT_VERSION}: use the version that wrote it, or train again"
        )
    if document.get("feature_names") != list(search.stopping.STOPPING_FEATURES):
        raise BadInputError(
            f"{path}: stopper trained with other features: use the version that wrote it, or train "
            "again"
        )
    with reading(str(file), _WAY_OUT):
        fields = _fields(document)
    with reading(str(path / _ACTOR), _WAY_OUT, "cannot be read"):
        actor = _read_actor(path / _ACTOR, fields["hidden"])
    return Stopper(actor=actor, **fields)


def _fields(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Stopper` other than its actor; ValueError if one breaks its rule."""
    rules = {"uses_scores": TRUTH, "path_score": TEXT}
    check_entries(document, rules | {"hidden": list_of(INTEGER), "prices": list_of(NUMBER)})
    hidden, prices = document["hidden"], document["prices"]
    if len(hidden) > _MAX_LAYERS or not all(0 < width <= _MAX_WIDTH for width in hidden):
        raise ValueError(f"hidden must be at most {_MAX_LAYERS} widths of 1 to {_MAX_WIDTH}")
    if not prices or not all(0.0 <= price < float("inf") for price in prices):
        raise ValueError("prices must be numbers >= 0")
    search.aggregations.aggregation(document["path_score"])
    return {
        "uses_scores": document["uses_scores"],
        "path_score": document["path_score"],
        "hidden": tuple(hidden),
        "prices": tuple(float(price) for price in prices),
        "info": dict(document["info"]),
    }


def _read_actor(file: pathlib.Path, hidden: tuple[int, ...]) -> Any:
    """The actor's parameters; ValueError if they are not those of its network."""
    network = learners.make_actor(2, hidden, len(search.stopping.STOPPING_FEATURES))
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    wanted = {name: tuple(leaf.shape) for name, leaf in _named(shapes)}
    try:
        with safe_open(str(file), framework="numpy") as stored:
            slices = {name: stored.get_slice(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            # Only headers are read before this check: a file can't allocate much memory.
            found = {name: tuple(each.get_shape()) for name, each in slices.items()}
            if found != wanted or any(each.get_dtype() != "F32" for each in slices.values()):
                raise ValueError("its tensors are not those of the network")
            arrays = {name: stored.get_tensor(name) for name in wanted}
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    if not is_finite(arrays):
        raise ValueError("a value is not finite")
    return {
        layer: {name: jnp.asarray(arrays[f"{layer}.{name}"]) for name in leaves}
        for layer, leaves in shapes.items()
    }


def _named(params: Any) -> Iterator[tuple[str, Any]]:
    """Each array of a network, under "LAYER.NAME"."""
    for layer, leaves in params.items():
        for name, leaf in leaves.items():
            yield f"{layer}.{name}", leaf
