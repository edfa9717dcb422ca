"""Tiny causal models with random weights, saved as Hugging Face folders, for the bridges' tests."""

import pathlib
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from cats_jax.world_build.tokenizer import BOS_ID, EOS_ID, PAD_ID, build_tokenizer


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
