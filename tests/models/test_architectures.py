"""Architectures whose layers do more than the usual: logits are those of one pass over the text."""

import random

import pytest
import torch
import transformers
from tiny_models import build_tokenizer

from cats_jax.errors import BadInputError
from cats_jax.models.huggingface.decoding_rows import DecodingRows
from cats_jax.models.huggingface.model import CHUNK_WIDTH, WIDTH, CausalModel
from cats_jax.protocols import Question

_SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
}

MODELS = {
    "llama": (transformers.LlamaConfig, _SHAPE, True),
    "qwen3": (transformers.Qwen3Config, {**_SHAPE, "head_dim": 8}, True),
    # Its decoder layers hand no options on to attention.
    "stablelm": (transformers.StableLmConfig, _SHAPE, False),
    # It computes attention itself.
    "codegen": (
        transformers.CodeGenConfig,
        {
            "vocab_size": 64,
            "n_positions": 256,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 4,
        },
        False,
    ),
    # It attends twice, to different halves of the values.
    "diffllama": (transformers.DiffLlamaConfig, _SHAPE, False),
    # It takes a view of what attention returns.
    "afmoe": (
        transformers.AfmoeConfig,
        {**_SHAPE, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2},
        True,
    ),
    # The longest text of a pass turns all of them.
    "phi3 with longrope": (
        transformers.Phi3Config,
        {
            **_SHAPE,
            "pad_token_id": 0,
            "original_max_position_embeddings": 256,
            "rope_parameters": _LONG,
        },
        False,
    ),
}


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_rows_of_two_widths_have_the_logits_of_their_texts(tmp_path, name):
    make_config, settings, in_line = MODELS[name]
    torch.manual_seed(0)
    config = make_config(**settings)
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    reference.eval().save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    model = CausalModel(tmp_path, device="cpu", dtype="float32", num_threads=1)
    model.load_weights()

    rng = random.Random(0)
    cache = model.new_cache()
    texts = [tuple(rng.choices(range(6, 64), k=length)) for length in (13, 60)]
    expected = [reference(torch.tensor([text])).logits[0] for text in texts]
    firsts = [5, WIDTH + CHUNK_WIDTH]
    roots = [
        cache.root(Question(str(i), "1+1=?"), text[: first + 1], first)
        for i, (text, first) in enumerate(zip(texts, firsts, strict=True))
    ]
    heads = [text[:first] for text, first in zip(texts, firsts, strict=True)]
    logits, kv = model.extend(cache, [None, None], heads)
    for row, first in enumerate(firsts):
        torch.testing.assert_close(logits[row], expected[row][first - 1], rtol=1e-4, atol=1e-4)
    cache.store(roots, kv)
    chunks = [text[first : first + 6] for text, first in zip(texts, firsts, strict=True)]
    logits, _ = model.extend(cache, roots, chunks)
    for row, first in enumerate(firsts):
        torch.testing.assert_close(logits[row], expected[row][first + 5], rtol=1e-4, atol=1e-4)
    rows = DecodingRows(model, cache, roots, [1, 1])
    for tick in range(6):
        tokens = torch.tensor([text[f + tick] for text, f in zip(texts, firsts, strict=True)])
        logits = rows.feed(tokens)
        for row, first in enumerate(firsts):
            torch.testing.assert_close(
                logits[row], expected[row][first + tick], rtol=1e-4, atol=1e-4
            )
    assert model._in_line == in_line


@torch.inference_mode()
def test_a_model_with_a_state_of_its_own_is_refused(tmp_path):
    # Its recurrent layers have no keys: a continued text would lose what is before.
    config = transformers.RecurrentGemmaConfig(**{**_SHAPE, "num_hidden_layers": 3})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    model = CausalModel(tmp_path, device="cpu", dtype="float32", num_threads=1)
    model.load_weights()
    with pytest.raises(BadInputError, match="'recurrent_gemma' keeps other things than keys"):
        model.extend(model.new_cache(), [None], [(6, 7, 8)])


@torch.inference_mode()
def test_tokens_that_meet_outside_attention_are_noticed(tmp_path):
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SHAPE))
    plain.save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    model = CausalModel(tmp_path, device="cpu", dtype="float32", num_threads=1)
    model.load_weights()
    assert model._goes_in_line()
    mixed = model.model.model.layers[0].mlp.register_forward_hook(
        lambda module, inputs, output: output + inputs[0].mean(1, keepdim=True)
    )
    assert not model._goes_in_line()
    mixed.remove()
    assert model._goes_in_line()
