"""Checkpoints of controllers: arrays in orbax's format, and a JSON file with their meaning.

A checkpoint is a folder: `params/` (orbax) and `checkpoint.json` (format version, names of the
features, action table, configurations). An actor identifies features and actions by position, so
`load` takes only the first ones of the current features, in order, and its own action table.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import math
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp

import learners
import search

from ..errors import BadInputError, quoted
from ..live.method import Origin
from ..specs.calibrations import with_defaults
from ..storage import durable
from ..storage.reading import read_json, reading
from ..storage.rules import INTEGER, MAPPING, NUMBER, TEXT, TRUTH
from .checkpoint_migration import (
    excluding_new_features,
    from_format_2,
    from_format_3,
    with_new_features,
)

FORMAT_VERSION = 4
"""It increases when an older reader would misread a newer checkpoint."""

JSON_NAME = "checkpoint.json"
"""Name of the JSON file, which is written last: only a folder with it is a checkpoint."""

_PARAMS_NAME = "params"
_MAX_VALUES = 1 << 24
_MAX_WIDTH, _MAX_LAYERS, _MAX_ACTIONS = 4096, 16, 1000
_WAY_OUT = "copy it anew or train again"


class Checkpoint(NamedTuple):
    """A controller as read from a folder.

    Attributes:
        actor: parameters of `learners.make_actor(len(config.actions), train_config.actor_hidden)`.
        critic: parameters of `learners.make_critic(train_config.critic_hidden)`.
        config: configuration of its search, action table included.
        train_config: configuration of its training.
        info: JSON values from the caller of `save` (seed, questions, results).
    """

    actor: Any
    critic: Any
    config: search.cats.CatsConfig
    train_config: learners.TrainConfig
    info: dict[str, Any]


def save(
    path: str | pathlib.Path,
    state: learners.LearnerState,
    train_config: learners.TrainConfig,
    *,
    info: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> pathlib.Path:
    """Write actor and critic (not the optimisers) with their JSON.

    Args:
        path: folder to create.
        state: learner state of one seed, without a leading axis of seeds.
        train_config: training configuration; its `cats` is the search of the controller.
        info: further JSON values to write.

    Raises:
        BadInputError: the folder holds a checkpoint already, the training diverged, or the state
            has other shapes than the networks of this configuration.
    """
    path = pathlib.Path(path).absolute()
    if (path / JSON_NAME).exists() and not overwrite:
        raise BadInputError(f"{path} holds a checkpoint already: choose another path or overwrite")
    params = {"actor": state.actor, "critic": state.critic}
    _check_shapes(path, params, train_config)
    if not is_finite(params):
        raise BadInputError(f"{path}: {DIVERGED}")
    path.mkdir(parents=True, exist_ok=True)
    # The JSON is written last, so that a killed save leaves no checkpoint.
    (path / JSON_NAME).unlink(missing_ok=True)
    table = np.asarray(train_config.cats.actions.rows, np.float32)
    durable.refuse_link(path / _PARAMS_NAME)
    arrays = {**params, "actions": table}
    _to_its_end(ocp.save, str(path / _PARAMS_NAME), arrays, overwrite=True)
    # This file names the folder of the save, which is wrong once a checkpoint is moved.
    (path / _PARAMS_NAME / "commit_success.txt").unlink(missing_ok=True)
    document = {
        "format_version": FORMAT_VERSION,
        "feature_names": list(search.cats.FEATURE_NAMES),
        "train_config": config_document(train_config),
        "info": info or {},
    }
    durable.replace_json(path / JSON_NAME, document, indent=1)
    return path


DIVERGED = (
    "the training diverged, its networks are not finite: lower learner.learning_rate by --set, or "
    "take another --seed"
)
"""Why networks can't be saved, and the way out."""


def is_finite(params: Any) -> bool:
    """Whether all parameters are finite; those of a diverged training are not."""
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(params))


def load(path: str | pathlib.Path) -> Checkpoint:
    """Read a checkpoint that fits this version's features and its own action table.

    Formats 2 and 3 are converted in memory. Features that were added later get weights of 0.

    Raises:
        BadInputError: the checkpoint is missing, damaged, of another format version, trained with
            other features, or its network and its action table do not belong together.
    """
    path = pathlib.Path(path).absolute()
    document = _read_json(path)
    if document.get("kind") is not None:
        raise BadInputError(
            f"{path} is a {quoted(document['kind'])}, not a CATS controller: name it in the "
            "strategy learned_stopping"
        )
    version = _read_version(path, document)
    with reading(str(path / JSON_NAME), _WAY_OUT):
        if version == 2:
            document = {**document, "train_config": from_format_2(document["train_config"])}
        if version < FORMAT_VERSION:
            document = from_format_3(document)
    _check_features(path, document)
    with reading(str(path / JSON_NAME), _WAY_OUT):
        values = document["train_config"]
        values = excluding_new_features(values, len(document["feature_names"]))
        train_config = _train_config(values)
        info = dict(document["info"])
    if not (path / _PARAMS_NAME).is_dir():
        raise BadInputError(f"{path} has no folder {_PARAMS_NAME}/: copy the whole checkpoint")
    with reading(str(path / _PARAMS_NAME), _WAY_OUT, "cannot be read"), _quietly():
        _check_size(path / _PARAMS_NAME)
        with warnings.catch_warnings():
            # Orbax advises to name the devices for the arrays; there is only one.
            warnings.filterwarnings("ignore", message="Sharding info not provided")
            tree = _to_its_end(ocp.load, str(path / _PARAMS_NAME))
        params = {
            name: with_new_features(tree[name], len(document["feature_names"]))
            for name in ("actor", "critic")
        }
        if not is_finite(params):
            raise ValueError("a value is not finite")
        table = np.asarray(tree["actions"])
    actions = train_config.cats.actions
    if not np.array_equal(table, np.asarray(actions.rows, np.float32)):
        raise BadInputError(
            f"{path}: the action table in {JSON_NAME} is not the one the network was trained "
            "with: restore the JSON that belongs to it, or train again"
        )
    _check_shapes(path, params, train_config)
    # Orbax commits arrays to a device, which would make JAX compile a search's second tick anew.
    params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), params)
    return Checkpoint(
        actor=params["actor"],
        critic=params["critic"],
        config=train_config.cats,
        train_config=train_config,
        info=info,
    )


def _to_its_end(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The value of a function of Orbax, which is not interrupted by Ctrl-C.

    An interrupted one leaves threads that wait for ever, so that the process does not end.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments, **options).result()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Hide Orbax's log about damaged arrays, which an error of one line reports."""
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def check_start(start: Checkpoint | None, config: learners.TrainConfig) -> None:
    """Raise BadInputError if a training with this configuration can't start from the controller."""
    if start is None:
        return
    for name in ("actor_hidden", "critic_hidden"):
        if getattr(start.train_config, name) != getattr(config, name):
            raise BadInputError(
                f"{name}={getattr(config, name)}, but the controller to start from has "
                f"{getattr(start.train_config, name)}: choose these widths"
            )
    if start.config.actions != config.cats.actions:
        raise BadInputError(
            "the controller to start from has another action table than the configuration: leave "
            "out --config and --actions"
        )


def started_from(
    state: learners.LearnerState, checkpoint: Checkpoint | None
) -> learners.LearnerState:
    """The learner state with the networks of a checkpoint; unchanged without one."""
    if checkpoint is None:
        return state
    return state.replace(actor=checkpoint.actor, critic=checkpoint.critic)


def questions_of(name: str, info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(id, digest of the text) of a controller's training questions, by its checkpoint's info.

    Raises:
        BadInputError: the info has ids without digests, as early versions wrote it.
    """
    ids, texts = info.get("questions", ()), info.get("texts", ())
    if len(ids) != len(texts):
        raise BadInputError(
            f"controller {name!r} names its {len(ids)} training questions by id, without digests "
            "of their texts, so that they can't be told from others: take another, or train again"
        )
    return list(zip(ids, texts, strict=True))


def with_questions_of(info: dict[str, Any], start: Checkpoint | None) -> dict[str, Any]:
    """The info of a training, with the questions of the controller that it started from."""
    if start is None:
        return info
    known = {
        text: question
        for each in (info, start.info)
        for question, text in questions_of("start", each)
    }
    return {
        **info,
        "start": digest(start),
        "questions": list(known.values()),
        "texts": list(known),
    }


def digest(checkpoint: Checkpoint) -> str:
    """SHA-256 of the parameters of both networks, in hexadecimal digits."""
    leaves = jax.tree_util.tree_leaves_with_path((checkpoint.actor, checkpoint.critic))
    named = [(jax.tree_util.keystr(where), np.asarray(leaf).tobytes()) for where, leaf in leaves]
    return hashlib.sha256(repr(named).encode()).hexdigest()


def make_controller(checkpoint: Checkpoint, mode: str = "argmax") -> search.cats.Policy:
    """The policy of a trained controller, whose params are `checkpoint.actor`.

    Args:
        mode: mode of the policy, "sample" or "argmax", see `learners.make_policy`.
    """
    hidden = checkpoint.train_config.actor_hidden
    actor = learners.make_actor(len(checkpoint.config.actions), hidden)
    return learners.make_policy(actor.apply, mode)


def origin_of(name: str, info: Mapping[str, Any]) -> Origin:
    """The models and calibrations of a controller's training, by the info of its checkpoint.

    Args:
        name: name of the controller's folder.
        info: JSON values as in `Checkpoint.info`; a missing part is unknown.

    Raises:
        BadInputError: a part is not what a training writes.
    """
    where = f"controller {name!r}: models or calibration in its {JSON_NAME}"
    with reading(where, _WAY_OUT, "are damaged"):
        models = info.get("models")
        models = None if models is None else {role: dict(each) for role, each in models.items()}
        calibrations = tuple(
            (label, with_defaults([float(value) for value in values]))
            for label, values in dict(info.get("calibration") or {}).items()
        )
        if not all(math.isfinite(value) for _, values in calibrations for value in values):
            raise ValueError("a value is not finite")
    return Origin(name, models, calibrations)


def read_info(path: str | pathlib.Path) -> dict[str, Any]:
    """Read only the info of a checkpoint.

    Raises:
        BadInputError: there is no checkpoint, or its JSON file is damaged.
    """
    with reading(str(pathlib.Path(path) / JSON_NAME), _WAY_OUT):
        return dict(_read_json(pathlib.Path(path)).get("info", {}))


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    file = path / JSON_NAME
    if not file.is_file():
        raise BadInputError(
            f"{path} is no checkpoint (there is no {JSON_NAME} in it): name a folder written by "
            "`cats-jax train`"
        )
    with reading(str(file), _WAY_OUT, "is not JSON"):
        document = read_json(file)
    if not isinstance(document, dict):
        raise BadInputError(f"{file} is no JSON object: copy it anew or train again")
    return document


def _read_version(path: pathlib.Path, document: dict[str, Any]) -> int:
    version = document.get("format_version")
    if version not in (2, 3, FORMAT_VERSION):
        raise BadInputError(
            f"{path} has checkpoint format {quoted(version)}, this version of cats-jax reads 2 to "
            f"{FORMAT_VERSION}: use the version that wrote it, or train again"
        )
    return version


def _check_features(path: pathlib.Path, document: dict[str, Any]) -> None:
    names = document.get("feature_names")
    names = names if isinstance(names, list) else []
    expected = list(search.cats.FEATURE_NAMES)
    # Features that were added later get weights of 0.
    if names and names == expected[: len(names)]:
        return
    missing = [name for name in expected if name not in names]
    unknown = [name for name in names if name not in expected]
    difference = "; ".join(
        f"{what}: {', '.join(str(name)[:80] for name in which[:9])}"
        for what, which in (("it lacks", missing), ("unknown here", unknown))
        if which
    )
    raise BadInputError(
        f"{path}: checkpoint trained with other features ({difference or 'another order'}): "
        "use the version that wrote it, or train again"
    )


def _check_size(path: pathlib.Path) -> None:
    """Raise ValueError if the arrays are too large: a small file can declare arrays of any size."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(_to_its_end(ocp.metadata, str(path)).metadata)]
    if sum(map(math.prod, shapes)) > _MAX_VALUES:
        raise ValueError(f"it has more than {_MAX_VALUES} values")


def _check_shapes(path: pathlib.Path, params: Any, config: learners.TrainConfig) -> None:
    key = jax.random.key(0)
    actions = config.cats.actions
    actor = learners.make_actor(len(actions), config.actor_hidden)
    critic = learners.make_critic(config.critic_hidden)
    expected = {
        "actor": jax.eval_shape(actor.init, key),
        "critic": jax.eval_shape(critic.init, key),
    }

    def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(where): tuple(np.shape(leaf)) for where, leaf in leaves}

    found, wanted = shapes(params), shapes(expected)
    for where in sorted(found.keys() | wanted.keys()):
        if found.get(where) != wanted.get(where):
            raise BadInputError(
                f"{path}: parameter {where} has shape {found.get(where)}, but "
                f"{len(search.cats.FEATURE_NAMES)} features and {len(actions)} actions need "
                f"{wanted.get(where)}: checkpoint trained with other features, actions or networks"
            )


def config_document(config: learners.TrainConfig) -> dict[str, Any]:
    """A training configuration as a JSON value, with the name of the algorithm."""
    document = dataclasses.asdict(config)
    algorithm = document["learner"]["algorithm"]
    document["learner"]["algorithm"] = {
        "name": type(config.learner.algorithm).__name__,
        **algorithm,
    }
    return document


def _check_like(value: Any, example: Any, name: str) -> None:
    """Raise ValueError if a JSON value has another type than in an example of its document."""
    if isinstance(example, dict):
        if not MAPPING.holds(value):
            raise ValueError(f"{name} must be a mapping")
        for key in value.keys() & example.keys() - {"algorithm"}:
            _check_like(value[key], example[key], f"{name}.{key}")
    elif isinstance(example, list | tuple):
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} must be a list")
        for place, item in enumerate(value if example else ()):
            _check_like(item, example[min(place, len(example) - 1)], name)
    elif example is not None:
        rule = TRUTH if isinstance(example, bool) else INTEGER if isinstance(example, int) else None
        rule = rule or (TEXT if isinstance(example, str) else NUMBER)
        if not rule.holds(value):
            raise ValueError(f"{name} must be {rule.what}")


def _train_config(values: dict[str, Any]) -> learners.TrainConfig:
    values = {"prm_token_costs": (1.0,), **values}  # older ones have none
    _check_like(values, config_document(learners.TrainConfig()), "train_config")
    for name in ("actor_hidden", "critic_hidden"):
        if len(values[name]) > _MAX_LAYERS or not all(0 < n <= _MAX_WIDTH for n in values[name]):
            raise ValueError(f"{name} must be at most {_MAX_LAYERS} widths of 1 to {_MAX_WIDTH}")
    if len(values["cats"]["actions"]["rows"]) > _MAX_ACTIONS:
        raise ValueError(f"it has more than {_MAX_ACTIONS} actions")
    cats = dict(values["cats"])
    cats["base"] = search.Sampling(**cats["base"])
    cats["reward"] = search.cats.RewardWeights(**cats["reward"])
    cats["excluded_features"] = tuple(cats["excluded_features"])
    cats["actions"] = search.cats.ActionTable(tuple(tuple(row) for row in cats["actions"]["rows"]))
    learner = dict(values["learner"])
    settings = dict(learner["algorithm"])
    learner["algorithm"] = learners.ALGORITHMS[settings.pop("name")](**settings)
    lists = ("num_candidates", "prices", "prm_token_costs", "actor_hidden", "critic_hidden")
    return learners.TrainConfig(
        **{
            **values,
            "cats": search.cats.CatsConfig(**cats),
            "learner": learners.LearnerConfig(**learner),
            **{name: tuple(values[name]) for name in lists},
        }
    )
