"""PRM formats as data."""

import dataclasses

import pytest

from cats_jax.errors import BadInputError
from cats_jax.prms.format import PRM_FORMATS, WORLD, StepEncoder, TokenPair, prm_format
from cats_jax.world import tokenizer as world


@pytest.fixture(scope="module")
def tokenizer():
    return world.build_tokenizer()


def test_formats_are_found_by_name():
    assert prm_format("world") is WORLD
    assert all(name == value.name for name, value in PRM_FORMATS.items())
    with pytest.raises(BadInputError, match="'qwen' is unknown: use one of world"):
        prm_format("qwen")


def test_the_world_reads_paths_as_its_tokenizer_writes_them(tokenizer):
    encoder = StepEncoder(WORLD, tokenizer)
    steps = ["50*4=200", "200-21=179", "\\boxed{179}"]
    ids = world.prompt_ids("(50*4)-21=?")
    for step in steps:
        ids += encoder.step_ids(step)
    assert ids == world.path_ids("(50*4)-21=?", steps)
    assert encoder.tag_id == world.SEPARATOR_ID
    assert (encoder.positive_id, encoder.negative_id) == (world.PLUS_ID, world.MINUS_ID)


@pytest.mark.parametrize("text", ["a\n\nb", "x\n\n", "\n\n\n", "</s>", "<pad><unk>", "é🙂", "+-"])
def test_every_chunk_ends_with_one_appended_tag(tokenizer, text):
    ids = StepEncoder(WORLD, tokenizer).step_ids(text)
    assert ids[-1] == world.SEPARATOR_ID
    assert not {world.PAD_ID, world.BOS_ID, world.EOS_ID} & set(ids)


@pytest.mark.parametrize(
    ("change", "token"),
    [
        ({"tag": "<extra_0>"}, "<extra_0>"),
        ({"read_out": TokenPair("yes", "-")}, "yes"),
        ({"read_out": TokenPair("+", "é")}, "é"),
    ],
)
def test_tokens_that_the_tokenizer_lacks_are_refused(tokenizer, change, token):
    with pytest.raises(BadInputError, match=f"'{token}' as one token"):
        StepEncoder(dataclasses.replace(WORLD, **change), tokenizer)
