"""Weights that are not whole are refused before a serving engine starts."""

import json
import shutil

import prm_families
import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

from cats_jax import world
from cats_jax.errors import BadInputError
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.format import PRM_FORMATS, WORLD
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.scorer import EngineScorer


class Started(Exception):
    pass


def start(*arguments):
    raise Started


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return prm_families.released(tmp_path_factory.mktemp("families"))


def score_with(folder, name):
    EngineScorer(folder, PRM_FORMATS[prm_families.FORMATS[name]], start)


def edited(folder, target, edit):
    """A copy in which `edit` has changed the tensors of one file."""
    copy = shutil.copytree(folder, target)
    file = sorted(copy.glob("*.safetensors"))[-1]
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return copy


def test_packed_weights_count_as_the_parameters_that_they_hold(tmp_path):
    def pack(tensors):
        name = next(name for name in tensors if name.endswith("mlp.up_proj.weight"))
        rows, columns = tensors.pop(name).shape
        packed = torch.zeros(rows, columns // 8, dtype=torch.int32)
        tensors[name.replace("weight", "qweight")] = packed

    path = world.policy_path("weak")
    folder = edited(path, tmp_path / "packed", pack)
    served = EngineGenerator(folder, lambda context: None)
    assert served.num_parameters == HuggingFaceGenerator(path).num_parameters


# The two releases of RLHFlow differ in their templates alone.
LAYOUTS = [name for name in prm_families.NAMES if name != "rlhflow-deepseek"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_prm_has_as_many_parameters_on_an_engine_as_on_transformers(folders, name):
    """The layouts are whole, as released."""
    form = PRM_FORMATS[prm_families.FORMATS[name]]
    served = EngineScorer(folders[name], form, lambda model: None)
    assert served.num_parameters == HuggingFaceScorer(folders[name], form).num_parameters


def test_a_stored_head_that_is_tied_is_no_parameter_of_its_own(tmp_path):
    def edit(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    folder = edited(tiny_models.save_model(tmp_path / "in"), tmp_path / "out", edit)
    served = EngineGenerator(folder, lambda context: None)
    assert served.num_parameters == HuggingFaceGenerator(folder).num_parameters


def test_the_worlds_models_are_whole():
    for name in world.POLICY_NAMES:
        with pytest.raises(Started):
            EngineGenerator(world.policy_path(name), start)
    for name in world.PRM_NAMES:
        with pytest.raises(Started):
            EngineScorer(world.prm_path(name), WORLD, start)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_missing_tensor_is_named(folders, tmp_path, name):
    def edit(tensors):
        del tensors["model.layers.1.mlp.up_proj.weight"]

    copy = edited(folders[name], tmp_path / "copy", edit)
    with pytest.raises(BadInputError, match=r"lacks 1 of .*'layers\.1\.mlp\.up_proj\.weight'"):
        score_with(copy, name)


def test_a_head_that_is_needed_must_be_there(folders, tmp_path):
    copy = edited(folders["rlhflow-mistral"], tmp_path / "copy", lambda t: t.pop("lm_head.weight"))
    with pytest.raises(BadInputError, match=r"lacks 1 of .*'lm_head\.weight'"):
        score_with(copy, "rlhflow-mistral")


def test_a_shape_that_is_not_the_configurations_is_named(folders, tmp_path):
    def edit(tensors):
        tensors["model.norm.weight"] = torch.ones(32)

    copy = edited(folders["skywork"], tmp_path / "copy", edit)
    with pytest.raises(BadInputError, match=r"'norm\.weight' has shape \(32,\).*says \(64,\)"):
        score_with(copy, "skywork")


def test_names_that_transformers_has_not_are_left_to_the_engine(folders, tmp_path):
    def edit(tensors):
        tensors["model.layers.1.mlp.w1"] = tensors.pop("model.layers.1.mlp.up_proj.weight")

    copy = edited(folders["skywork"], tmp_path / "copy", edit)
    with pytest.raises(Started):
        score_with(copy, "skywork")


def test_fewer_layers_than_the_configuration_says(folders, tmp_path):
    copy = shutil.copytree(folders["skywork"], tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config |= {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInputError, match=r"'layers\.2\."):
        score_with(copy, "skywork")
