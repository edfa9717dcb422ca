"""Layers that see the last tokens only: logits are those of transformers' own forward pass."""

import random

import pytest
import tiny_models
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    MistralConfig,
    Qwen2Config,
    Qwen2MoeConfig,
)
from transformers.utils import logging

from cats_jax.errors import BadInputError
from cats_jax.models.footprint import model_shape
from cats_jax.models.huggingface.attention import check_computable, sliding
from cats_jax.models.huggingface.decoding_rows import DecodingRows
from cats_jax.models.huggingface.model import CHUNK_WIDTH, WIDTH, CausalModel
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question
from cats_jax.specs.models import PolicySpec
from cats_jax.world.tokenizer import BOS_ID, EOS_ID, PAD_ID, build_tokenizer

WINDOW, CONTEXT, LENGTH = 8, 2048, 75

_SIZES = {
    "vocab_size": len(build_tokenizer()),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
    "sliding_window": WINDOW,
}
_TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
_VISION = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 8,
    "patch_size": 4,
}


def _configurations():
    gemma = Gemma3TextConfig(**_SIZES, layer_types=_TYPES, query_pre_attn_scalar=16)
    whole = {**gemma.to_dict(), "architectures": ["Gemma3ForCausalLM"]}
    return {
        "gemma3": gemma,
        "gemma3-with-images": Gemma3Config(
            text_config=whole,
            vision_config=_VISION,
            mm_tokens_per_image=4,
            boi_token_index=3,
            eoi_token_index=4,
            image_token_index=5,
        ),
        "mistral": MistralConfig(**_SIZES),
        "qwen2": Qwen2Config(**_SIZES, use_sliding_window=True, max_window_layers=1),
        "qwen2-unused": Qwen2Config(**_SIZES, use_sliding_window=False),
        # A family whose attention is not told the window.
        "qwen2-moe": Qwen2MoeConfig(
            **{key: value for key, value in _SIZES.items() if key != "head_dim"},
            use_sliding_window=True,
            max_window_layers=1,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
        ),
    }


@pytest.fixture(scope="module", params=_configurations())
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("windows") / request.param
    config = _configurations()[request.param]
    state = torch.get_rng_state()
    torch.manual_seed(1)
    with_images = isinstance(config, Gemma3Config)
    model = (
        Gemma3ForConditionalGeneration(config)
        if with_images
        else AutoModelForCausalLM.from_config(config)
    )
    torch.set_rng_state(state)
    logging.disable_progress_bar()
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


@torch.inference_mode()
def test_chunks_and_single_tokens_have_the_logits_of_the_whole_text(folder):
    reference = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    rng = random.Random(0)
    ids = [rng.randrange(6, _SIZES["vocab_size"]) for _ in range(LENGTH)]
    expected = reference(torch.tensor([ids])).logits[0]

    model = CausalModel(folder, device="cpu", dtype="float32", num_threads=1)
    model.load_weights()
    assert model.context == CONTEXT
    shape = model_shape(folder)
    assert shape is not None
    assert shape.context == CONTEXT
    cache = model.new_cache()
    # A chunk that leaves padding between itself and its prefix, then token by token.
    first, second = CHUNK_WIDTH * 5 - 3, CHUNK_WIDTH + 3
    question = Question("q", "1+1=?")
    root = cache.root(question, tuple(ids[: first + 1]), first)
    logits, kv = model.extend(cache, [None], [tuple(ids[:first])])
    torch.testing.assert_close(logits[0], expected[first - 1], rtol=1e-4, atol=1e-4)
    cache.store([root], kv)
    logits, _ = model.extend(cache, [root], [tuple(ids[first : first + second])])
    torch.testing.assert_close(logits[0], expected[first + second - 1], rtol=1e-4, atol=1e-4)
    rows = DecodingRows(model, cache, [root], [1])
    assert LENGTH - first > WIDTH
    for place in range(first, LENGTH):
        logits = rows.feed(torch.tensor([ids[place]]))
        torch.testing.assert_close(logits[0], expected[place], rtol=1e-4, atol=1e-4)


def test_a_window_keeps_the_last_tokens_that_a_query_sees():
    hidden = -torch.inf
    mask = torch.tensor([[0, 0, 0, hidden, hidden, 0, 0]])[None, None]
    expected = torch.tensor([[hidden, hidden, 0, hidden, hidden, 0, 0]])[None, None]
    assert torch.equal(sliding(mask, 3), expected)
    assert sliding(mask, 7) is mask


def test_layers_of_another_kind_are_refused_before_weights_are_read(tmp_path):
    folder = tiny_models.save_model(
        tmp_path / "m", layer_types=["full_attention", "chunked_attention"]
    )
    spec = PolicySpec(str(folder))
    with pytest.raises(BadInputError, match=r"has layers of the kind 'chunked_attention'.*vllm"):
        ModelFolders().check(spec)
    config = Gemma3TextConfig(**_SIZES, use_bidirectional_attention=True)
    with pytest.raises(BadInputError, match="use_bidirectional_attention"):
        check_computable(config, folder)
    with pytest.raises(BadInputError, match="'kv_lora_rank', which the backend hf"):
        check_computable(DeepseekV3Config(), folder)
