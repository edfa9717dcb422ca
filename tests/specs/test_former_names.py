"""Former names of keys: recipes warn once for each name, and manifests are read silently."""

import dataclasses
import json
import warnings

import pytest

from cats_jax.errors import BadInputError
from cats_jax.models.resolve import resolve_format
from cats_jax.specs.models import PrmSpec
from cats_jax.specs.recipe import parse_recipe, parse_strategy
from cats_jax.storage import former_names
from cats_jax.storage.manifest import differences, with_current_names

FORMER = {
    "factor": "expansion",
    "width": "beam_width",
    "ask_below": "prm_threshold",
    "least_weight": "min_prm_weight",
    "prm_rate": "prm_token_cost",
}


@pytest.mark.parametrize(("former", "current"), FORMER.items())
def test_a_recipe_with_a_former_name_is_read_with_one_line(former, current):
    with pytest.warns(former_names.FormerNameWarning) as caught:
        spec = parse_strategy({"name": "beam", "label": "b", former: 2})
    assert spec == parse_strategy({"name": "beam", "label": "b", current: 2})
    (line,) = [str(warning.message) for warning in caught]
    assert line == f"strategies: {former!r} is now called {current!r}: rename the key"


def test_a_whole_recipe_with_former_names_equals_the_current_one():
    def recipe(**options):
        content = {"name": "r", "questions": {"world": "test", "count": 1}, "num_candidates": 8}
        return parse_recipe({**content, "strategies": [{"name": "beam", **options}]})

    with pytest.warns(former_names.FormerNameWarning):
        former = recipe(factor=2, width=3)
    assert former == recipe(expansion=2, beam_width=3)


def test_both_names_of_an_option_are_refused():
    with pytest.raises(BadInputError, match="'factor' is the former name of 'expansion': leave it"):
        parse_strategy({"name": "beam", "factor": 2, "expansion": 2})


def test_the_options_of_a_users_function_keep_their_names():
    own = {"name": "my.module:make", "factor": 2, "prm_rate": 3.0}
    assert dict(parse_strategy(own).options) == {"factor": 2, "prm_rate": 3.0}
    with pytest.warns(former_names.FormerNameWarning, match="'beam_width'"):
        assert dict(parse_strategy({**own, "width": 4}).options)["beam_width"] == 4


def test_a_manifest_of_an_earlier_version_equals_the_current_one():
    def manifest(own, **options):
        strategies = [
            {"name": "beam", "label": "b", "options": sorted(options.items())},
            {"name": "my.module:make", "label": "own", "options": own},
            {"name": "greedy", "label": "greedy", "options": []},
        ]
        return json.loads(json.dumps({"config": {"strategies": strategies}}))

    former = manifest([["factor", 2], ["width", 1]], factor=2, vote="best", width=3)
    current = manifest([["beam_width", 1], ["factor", 2]], expansion=2, vote="best", beam_width=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_current_names(former) == current
    assert with_current_names(current) == current


def test_the_format_of_a_chat_judge_equals_the_current_one():
    spec = PrmSpec("chat-judge", backend="http://localhost:1", served_name="m")
    current = {"prms": [dataclasses.asdict(resolve_format(spec))]}
    former = {"prms": [{**current["prms"][0], "format": "auto"}]}
    assert differences(with_current_names(former), with_current_names(current), "config") == []
    other = {"prms": [{**former["prms"][0], "path": "exact"}]}
    assert with_current_names(other)["prms"][0]["format"] == "auto"


@pytest.mark.parametrize("options", [None, 3, [1], [["factor"]], [[2, 3]], {"factor": 2}])
def test_damaged_options_are_left_to_their_reader(options):
    manifest = {"strategies": [{"name": "beam", "options": options}]}
    assert with_current_names(manifest) == manifest
