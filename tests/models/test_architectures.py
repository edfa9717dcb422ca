"""Architectures whose layers do more than the usual: logits are those of one pass over the text.

Layers of some see the last tokens only.
"""

import random

import pytest
import tiny_models
import torch
import transformers
from transformers import AutoModelForCausalLM, Gemma3TextConfig

from cats_jax.errors import BadInputError
from cats_jax.models.footprint import model_shape
from cats_jax.models.huggingface.attention import check_computable, sliding
from cats_jax.models.huggingface.decoding_rows import DecodingRows
from cats_jax.models.huggingface.model import CHUNK_WIDTH, WIDTH, CausalModel
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question
from cats_jax.specs.models import PolicySpec
from cats_jax.world.tokenizer import BOS_ID, EOS_ID, PAD_ID

CONTEXT = 256

_SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
}
_CODEGEN = {"vocab_size": 64, "n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 4}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
}
_WINDOWS = {**_SHAPE, "num_hidden_layers": 3, "sliding_window": 8}
_OWN_HEADS = {"head_dim": 16}  # Qwen 2 reads it, though its configuration does not name it
_UPPER = {**_WINDOWS, "use_sliding_window": True, "max_window_layers": 1}
_GEMMA = Gemma3TextConfig(
    **_WINDOWS,
    head_dim=16,
    query_pre_attn_scalar=16,
    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
)
_VISION = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 8,
    "patch_size": 4,
}

# The configuration, and whether tokens of several rows are computed in one line.
MODELS = {
    "llama": (transformers.LlamaConfig(**_SHAPE), True),
    "qwen3": (transformers.Qwen3Config(**_SHAPE, head_dim=8), True),
    # Its decoder layers hand no options on to attention.
    "stablelm": (transformers.StableLmConfig(**_SHAPE), False),
    # It computes attention itself.
    "codegen": (
        transformers.CodeGenConfig(**_CODEGEN, rotary_dim=4, initializer_range=0.3),
        False,
    ),
    # It attends twice, to different halves of the values.
    "diffllama": (transformers.DiffLlamaConfig(**_SHAPE), False),
    # It takes a view of what attention returns.
    "afmoe": (
        transformers.AfmoeConfig(**_SHAPE, head_dim=8, num_experts=4, num_experts_per_tok=2),
        True,
    ),
    # The longest text of a pass turns all of them.
    "phi3 with longrope": (
        transformers.Phi3Config(
            **_SHAPE, original_max_position_embeddings=CONTEXT, rope_parameters=_LONG
        ),
        False,
    ),
    "gemma3": (_GEMMA, True),
    "gemma3 with images": (
        transformers.Gemma3Config(
            text_config={**_GEMMA.to_dict(), "architectures": ["Gemma3ForCausalLM"]},
            vision_config=_VISION,
            mm_tokens_per_image=4,
            boi_token_index=3,
            eoi_token_index=4,
            image_token_index=5,
        ),
        True,
    ),
    "mistral": (transformers.MistralConfig(**_WINDOWS, head_dim=16), True),
    "qwen2": (transformers.Qwen2Config(**_UPPER, **_OWN_HEADS), True),
    "qwen2 without its window": (
        transformers.Qwen2Config(**_WINDOWS, **_OWN_HEADS, use_sliding_window=False),
        True,
    ),
    # A family whose attention is not told the window.
    "qwen2-moe": (
        transformers.Qwen2MoeConfig(
            **_UPPER,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
        ),
        True,
    ),
}


def saved(path, config, seed=0):
    """A folder with a model of random weights."""
    torch.manual_seed(seed)
    with_images = isinstance(config, transformers.Gemma3Config)
    make = transformers.Gemma3ForConditionalGeneration if with_images else None
    (make or AutoModelForCausalLM.from_config)(config).save_pretrained(path)
    tiny_models.build_tokenizer().save_pretrained(path)
    return path


def loaded(path):
    model = CausalModel(path, device="cpu", dtype="float32", num_threads=1)
    model.load_weights()
    return model


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_rows_of_two_widths_have_the_logits_of_their_texts(tmp_path, name):
    config, in_line = MODELS[name]
    folder = saved(tmp_path / "m", config)
    reference = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    model = loaded(folder)
    assert model.context == CONTEXT
    shape = model_shape(folder)
    # CodeGen names its sizes otherwise.
    assert (shape is None) == (name == "codegen")
    assert shape is None or shape.context == CONTEXT

    rng = random.Random(0)
    cache = model.new_cache()
    # Chunks that leave padding between themselves and their prefixes, then token by token.
    firsts, size, ticks = [5, WIDTH + CHUNK_WIDTH], CHUNK_WIDTH + 3, WIDTH + 4
    texts = [tuple(rng.choices(range(6, 64), k=first + ticks)) for first in firsts]
    expected = [reference(torch.tensor([text])).logits[0] for text in texts]
    roots = [
        cache.root(Question(str(i), "1+1=?"), text[: first + 1], first)
        for i, (text, first) in enumerate(zip(texts, firsts, strict=True))
    ]

    def check(logits, behind):
        for got, whole, first in zip(logits, expected, firsts, strict=True):
            torch.testing.assert_close(got, whole[first + behind], rtol=1e-4, atol=1e-4)

    heads = [text[:first] for text, first in zip(texts, firsts, strict=True)]
    logits, kv = model.extend(cache, [None, None], heads)
    check(logits, -1)
    cache.store(roots, kv)
    chunks = [text[first : first + size] for text, first in zip(texts, firsts, strict=True)]
    check(model.extend(cache, roots, chunks)[0], size - 1)
    rows = DecodingRows(model, cache, roots, [1, 1])
    for tick in range(ticks):
        tokens = [text[first + tick] for text, first in zip(texts, firsts, strict=True)]
        check(rows.feed(torch.tensor(tokens)), tick)
    assert model._in_line == in_line


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
    config = Gemma3TextConfig(**_WINDOWS, use_bidirectional_attention=True)
    with pytest.raises(BadInputError, match="use_bidirectional_attention"):
        check_computable(config, folder)
    with pytest.raises(BadInputError, match="'kv_lora_rank', which the backend hf"):
        check_computable(transformers.DeepseekV3Config(), folder)
    with pytest.raises(BadInputError, match=r"of the kind 'attn_logit_softcapping'.*vllm"):
        check_computable(transformers.Gemma2Config(), folder)


@torch.inference_mode()
def test_a_model_with_a_state_of_its_own_is_refused(tmp_path):
    # Its recurrent layers have no keys: a continued text would lose what is before.
    config = transformers.RecurrentGemmaConfig(**{**_SHAPE, "num_hidden_layers": 3})
    model = loaded(saved(tmp_path, config))
    with pytest.raises(BadInputError, match="'recurrent_gemma' keeps other things than keys"):
        model.extend(model.new_cache(), [None], [(6, 7, 8)])


@torch.inference_mode()
def test_tokens_that_meet_outside_attention_are_noticed(tmp_path):
    model = loaded(saved(tmp_path, transformers.LlamaConfig(**_SHAPE)))
    assert model._goes_in_line()
    mixed = model.model.model.layers[0].mlp.register_forward_hook(
        lambda module, inputs, output: output + inputs[0].mean(1, keepdim=True)
    )
    assert not model._goes_in_line()
    mixed.remove()
    assert model._goes_in_line()
