"""Stoppers on disk: what is written is read back, what is damaged is refused, recipes find them."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cats_jax
import learners
from cats_jax import world
from cats_jax.controllers import checkpoint
from cats_jax.controllers.stopper import Stopper, load_stopper, save_stopper
from cats_jax.controllers.strategies import MissingControllerError, controller_of
from cats_jax.errors import BadInputError
from cats_jax.specs.recipe import StrategySpec

INFO = {"source": "a test", "models": {"policy": {"name": "weak"}}}


@pytest.fixture
def stopper():
    config = learners.StoppingConfig(actor_hidden=(5,))
    actor = learners.stopping_networks(config)[0].init(jax.random.key(3))
    return Stopper(jax.device_get(actor), True, "last", (5,), (0.1, 1.0, 3.0), INFO)


@pytest.fixture
def folder(tmp_path, stopper):
    return save_stopper(tmp_path / "stopper", stopper)


def test_what_is_written_is_read_back(folder, stopper):
    found = load_stopper(folder)
    assert found._replace(actor=None) == stopper._replace(actor=None)
    assert jax.tree.structure(found.actor) == jax.tree.structure(stopper.actor)
    for here, there in zip(
        jax.tree.leaves(found.actor), jax.tree.leaves(stopper.actor), strict=True
    ):
        np.testing.assert_array_equal(here, there)
    assert found.strategy() is found.strategy()
    assert checkpoint.read_info(folder) == INFO
    with pytest.raises(BadInputError, match="holds a checkpoint already"):
        save_stopper(folder, stopper)
    diverged = jax.tree.map(lambda leaf: leaf * np.nan, stopper.actor)
    with pytest.raises(BadInputError, match="the training diverged"):
        save_stopper(folder.with_name("other"), stopper._replace(actor=diverged))


def test_a_recipe_names_its_folder(folder):
    method = cats_jax.search_method("learned_stopping", checkpoint=str(folder))
    assert method.strategy.uses_scores
    assert not method.strategy.needs_step_scores
    assert method.price == 1.0  # the middle one
    assert (
        cats_jax.search_method("learned_stopping", checkpoint=str(folder), price=0.2).price == 0.2
    )
    spec = StrategySpec("learned_stopping", options=(("checkpoint", str(folder)),))
    assert controller_of(spec) == folder
    assert controller_of(StrategySpec("learned_stopping")) is None
    for options, message in (
        ({}, "learned_stopping needs a checkpoint"),
        ({"checkpoint": str(folder), "price": 4.0}, "trained at prices of 0.1 to 3: stay in"),
        ({"checkpoint": str(folder), "price": -1.0}, "price=-1.0: must be a number >= 0"),
        ({"checkpoint": str(world.ASSETS / "controllers/cats")}, "is no stopper: name a folder"),
    ):
        with pytest.raises(BadInputError, match=message):
            cats_jax.search_method("learned_stopping", **options)
    with pytest.raises(MissingControllerError):
        cats_jax.search_method("learned_stopping", checkpoint=str(folder / "absent"))
    with pytest.raises(BadInputError, match="is a 'stopper', not a CATS controller"):
        cats_jax.load_controller(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format_version", 2, "stopper format 2, this version of cats-jax reads 1"),
        ("feature_names", ["mean"], "trained with other features"),
        ("hidden", [1 << 20], "hidden must be at most 16 widths"),
        ("hidden", ["5"], "'hidden' must be a list"),
        ("prices", [], "prices must be numbers >= 0"),
        ("path_score", "best", "best"),
        ("uses_scores", 1, "'uses_scores' must be"),
        ("info", 3, "is damaged"),
    ],
)
def test_a_damaged_description_is_refused(folder, key, value, message):
    file = folder / checkpoint.JSON_NAME
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(BadInputError, match=message):
        load_stopper(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays | {"layer_0.bias": np.zeros((6,), np.float32)},
        lambda arrays: arrays | {"layer_0.bias": np.zeros((5,), np.float16)},
        lambda arrays: arrays | {"layer_9.bias": np.zeros((5,), np.float32)},
        lambda arrays: arrays | {"layer_0.bias": np.full((5,), np.nan, np.float32)},
        lambda arrays: {name: each for name, each in arrays.items() if name != "layer_1.bias"},
    ],
)
def test_another_network_is_refused(folder, change):
    file = folder / "actor.safetensors"
    save_file(change(load_file(file)), file)
    with pytest.raises(BadInputError, match=r"actor\.safetensors cannot be read"):
        load_stopper(folder)


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, None])
def test_a_damaged_file_is_refused_in_one_line(folder, content):
    file = folder / "actor.safetensors"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(BadInputError) as caught:
        load_stopper(folder)
    assert "\n" not in str(caught.value)
