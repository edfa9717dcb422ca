"""What a manifest says of a model's files."""

import json
import shutil

import pytest

from cats_jax import world
from cats_jax.evaluation.asked import asked_of_model
from cats_jax.specs.models import PolicySpec

_DEFAULTS = {"repetition_penalty": 1.1, "min_p": 0.0, "temperature": 0.7}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, None),
        ({"backend": "http://localhost:1"}, {"repetition_penalty": 1.1}),
    ],
)
def test_a_policy_on_a_server_names_the_penalties_that_it_does_without(tmp_path, settings, named):
    """A run of before, which had them, can then not be continued without them."""
    folder = tmp_path / "model"
    shutil.copytree(world.policy_path("weak"), folder)
    (folder / "generation_config.json").write_text(json.dumps(_DEFAULTS))
    assert asked_of_model(PolicySpec(str(folder), **settings)).get("unused defaults") == named
