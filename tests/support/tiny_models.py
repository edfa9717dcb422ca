"""Tiny causal models with random weights, saved as Hugging Face folders, for the bridges' tests."""

import math
import pathlib
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from cats_jax.world.tokenizer import BOS_ID, EOS_ID, PAD_ID, build_tokenizer


def save_model(
    path: pathlib.Path, *, seed: int = 0, tokenizer: Any = None, **changes: Any
) -> pathlib.Path:
    """Writes a two-layer Qwen2 with head_dim 32; `changes` to its config.

    The tokenizer is the world's unless another one with its special tokens is given.

    The weights are large enough for the next-token distributions to differ from one another and
    small enough for every token to occur.
    """
    tokenizer = tokenizer or build_tokenizer()
    config = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 192,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "tie_word_embeddings": True,
        "initializer_range": 0.12,
        **changes,
    }
    generator = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(Qwen2Config(**config))
    torch.random.set_rng_state(generator)
    logging.disable_progress_bar()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


_CONSTANT = 10.0
"""The constant channel of `save_unigram_model`."""

_OTHERS = 0.17
"""Root mean square of its other channels behind the last layer, measured; most is the embedding's.

With larger inputs of the layers some tokens would make them grow beyond the constant.
"""


def save_unigram_model(
    path: pathlib.Path, log_probs: Tensor, *, spread: float = 1.5, **options: Any
) -> pathlib.Path:
    """Writes a model whose next token has about the given log-probabilities f32[V] everywhere.

    One channel of the residual stream holds a constant that no layer reads or writes. Beside it the
    others nearly vanish in the last normalisation, so that the head's column for the channel sets
    the logits. The other columns move each logit by about `spread` nats, by the path so far:
    without them greedy decoding would repeat one token.

    Args:
        path: folder to write.
        log_probs: log-probabilities of the vocabulary.
        spread: standard deviation of the other part of a logit.
        options: of `save_model`; one head of 32 channels unless they say otherwise.
    """
    sizes = {"hidden_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1}
    save_model(path, vocab_size=len(log_probs), tie_word_embeddings=False, **{**sizes, **options})
    tensors = load_file(path / "model.safetensors")
    size = tensors["model.norm.weight"].numel()
    tensors["model.embed_tokens.weight"][:, 0] = _CONSTANT
    head = tensors["lm_head.weight"]
    # The last normalisation divides by about the constant over sqrt(size).
    head *= spread / head.std() / (_OTHERS / _CONSTANT * size)
    head[:, 0] = log_probs / math.sqrt(size)
    for name, values in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            values[0] = 0.0
        elif name.endswith("layernorm.weight"):
            values[:] = _CONSTANT / 2
            values[0] = 0.0
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path
