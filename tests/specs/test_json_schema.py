"""The JSON Schema of recipes that the package holds for editors."""

import json
import pathlib

import jsonschema
import pytest
import yaml

from cats_jax.specs.json_schema import PATH, recipe_schema

SCHEMA = jsonschema.Draft202012Validator(json.loads(PATH.read_text()))
RECIPES = pathlib.Path(__file__).parents[2] / "recipes"


def test_the_file_is_that_of_the_code():
    assert PATH.read_text() == recipe_schema(), "run: python -m cats_jax.specs.json_schema"


def test_the_shipped_recipes_keep_it():
    SCHEMA.check_schema(SCHEMA.schema)
    paths = [path for path in RECIPES.rglob("*.yaml") if "strategies" in path.read_text()]
    assert paths
    for path in paths:
        SCHEMA.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "change",
    [
        {"max_deph": 3},
        {"max_depth": 0},
        {"num_candidates": [257]},
        {"fitted_on": []},
        {"policy": {"path": "weak", "seed_per": "node"}},
        {"prms": [{"label": "e"}]},
        {"strategies": [{"label": "no name"}]},
        {"questions": {"world": "test", "count": 0}},
        {"questions": []},
        {"seeds": []},
    ],
    ids=str,
)
def test_an_editor_marks_what_a_run_refuses(change):
    recipe = {"strategies": "greedy", "num_candidates": 4, "questions": "gsm8k", "prms": ["exact"]}
    SCHEMA.validate(recipe)
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(recipe | change)
