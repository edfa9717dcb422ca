"""The configuration of a GGUF's model, as transformers reads it from config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}

ARCHITECTURES = tuple(_CLASSES)
"""Names of the architectures that are converted, as llama.cpp has them."""

_KEYS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
}
_OTHER_KEYS = (
    "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.dimension_count",
    "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "vocab_size",
    "tensor_data_layout",
)  # fmt: skip
_GEMMA_KEYS = ("attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa")

# Constants of llama.cpp, too. In Gemma 3, every sixth layer has no window, the other layers have
# their own rope base, and the largest model has its own scale.
_GEMMA_PATTERN = 6
_GEMMA_LOCAL_BASE = 10_000.0
_GEMMA_27B_LAYERS = 62

_LLAMA3_ROPE = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def model_config(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    rope_factors: Sequence[float] | np.ndarray | None,
) -> dict[str, Any]:
    """The content of config.json.

    Args:
        metadata: keys and values of the GGUF, whose architecture is one of `ARCHITECTURES`.
        shapes: shapes of the stored tensors by name.
        rope_factors: values of `rope_freqs.weight`, where Llama 3.1 keeps its scaling.

    Raises:
        ValueError: a value is not a number of its kind, or is not supported.
        KeyError: a key or a tensor is missing.
    """
    architecture = metadata["general.architecture"]
    own = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    model_type, name = _CLASSES[architecture]
    gemma = architecture == "gemma3"
    _check_keys(own, (*_KEYS, *_OTHER_KEYS, *(_GEMMA_KEYS if gemma else ())))
    config: dict[str, Any] = {"architectures": [name], "model_type": model_type}
    config |= {_KEYS[key]: _whole(own, key) for key in _KEYS if key in own}
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, config["head_dim"]) != config["head_dim"]:
            raise ValueError(f"{key} must be the size of a head, {config['head_dim']}")
    config |= {
        "vocab_size": shapes["token_embd.weight"][0],
        "rms_norm_eps": _decimal(own["attention.layer_norm_rms_epsilon"]),
        "rope_theta": _decimal(own.get("rope.freq_base", 10_000.0)),
        "tie_word_embeddings": "output.weight" not in shapes,
    }
    if scaling := _scaling(own, config, rope_factors):
        config["rope_scaling"] = scaling
    if architecture in ("llama", "qwen3"):
        config["attention_bias"] = "blk.0.attn_q.bias" in shapes
    if gemma:
        config |= _gemma(own, config)
    return config


def _check_keys(own: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in own.items():
        # Counts of experts and the like are zero where there are none.
        if key not in known and value != 0:
            raise ValueError(f"{key[:80]!r} has a meaning that is not supported")


def _whole(own: Mapping[str, Any], key: str) -> int:
    if type(own[key]) is not int or own[key] < 1:
        raise ValueError(f"{key} must be a positive whole number, the same for all layers")
    return own[key]


def _decimal(value: Any) -> float:
    """A number that was stored in 32 bits, with the digits that it was written with."""
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
        raise ValueError("a rope base, rope factor or epsilon is not a positive number")
    return float(str(np.float32(value)))


def _scaling(
    own: Mapping[str, Any], config: Mapping[str, Any], factors: Sequence[float] | np.ndarray | None
) -> dict[str, Any] | None:
    kind = own.get("rope.scaling.type", "linear" if "rope.scale_linear" in own else "none")
    factor = own.get("rope.scaling.factor", own.get("rope.scale_linear"))
    if factors is not None:
        if kind != "none":
            raise ValueError("it has both rope_freqs.weight and rope.scaling.type")
        return _llama3(factors, config)
    if kind == "none" or factor == 1.0:
        return None
    if kind not in ("linear", "yarn"):
        raise ValueError(f"rope.scaling.type {str(kind)[:40]!r} is not supported")
    scaling = {"rope_type": kind, "factor": _decimal(factor)}
    if kind == "yarn":
        original = _whole(own, "rope.scaling.original_context_length")
        scaling["original_max_position_embeddings"] = original
    return scaling


def _llama3(factors: Sequence[float] | np.ndarray, config: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling of Llama 3.1, of which a GGUF stores the result: a divisor for each frequency."""
    half = config["head_dim"] // 2
    given = np.asarray(factors, np.float64)
    factor = _decimal(float(given.max()))
    low, high, length = _LLAMA3_ROPE.values()
    turns = length * config["rope_theta"] ** -(np.arange(half) / half) / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    expected = 1.0 / ((1.0 - smooth) / factor + smooth)
    if given.shape != expected.shape or not np.allclose(given, expected, rtol=1e-4):
        raise ValueError("rope_freqs.weight is not the scaling of Llama 3.1")
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3_ROPE}


def _gemma(own: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    key = "attention.sliding_window_pattern"
    pattern = _whole({key: _GEMMA_PATTERN, **own}, key)
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    largest = layers == _GEMMA_27B_LAYERS
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": config["hidden_size"] // heads if largest else config["head_dim"],
        "rope_local_base_freq": _decimal(own.get("rope.freq_base_swa", _GEMMA_LOCAL_BASE)),
        "sliding_window": _whole(own, "attention.sliding_window"),
        "sliding_window_pattern": pattern,
    }
