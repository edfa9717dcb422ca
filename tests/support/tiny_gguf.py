"""Tiny models of four architectures in GGUF, with a byte-level vocabulary and random weights."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter

WIDTH, _FEED, _LAYERS, HEADS, _KEYS = 64, 96, 2, 4, 2
_ALPHABET = [chr(byte) for byte in range(33, 127)] + ["Ġ", "Ċ"]
TOKENS = [*_ALPHABET, "Ġa", "an", "Ġan", "12", "<|im_start|>", "<|im_end|>", "<tool>", "[PAD103]"]
_TYPES = [1] * 100 + [3, 3, 4, 5]
_BOS, EOS = 100, 101
_TEMPLATE = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"


def size_of_head(architecture):
    # transformers' reading of GGUF has no other sizes for these three.
    return {"qwen2": WIDTH // HEADS, "qwen3": 128, "gemma3": 256}.get(architecture, 32)


def tensors(architecture, *, tied=False, seed=0):
    """Name -> values, in the layout of llama.cpp."""
    draw = np.random.default_rng(seed)
    head = size_of_head(architecture)
    gemma, qwen2 = architecture == "gemma3", architecture == "qwen2"

    def matrix(rows, columns):
        return draw.normal(0, 0.1, (rows, columns)).astype(np.float32)

    def vector(size, middle=1.0):
        return draw.normal(middle, 0.2, size).astype(np.float32)

    found = {
        "token_embd.weight": matrix(len(TOKENS), WIDTH),
        "output_norm.weight": vector(WIDTH),
    }
    if not tied:
        found["output.weight"] = matrix(len(TOKENS), WIDTH)
    for layer in range(_LAYERS):
        block = {
            "attn_norm": vector(WIDTH),
            "attn_q": matrix(HEADS * head, WIDTH),
            "attn_k": matrix(_KEYS * head, WIDTH),
            "attn_v": matrix(_KEYS * head, WIDTH),
            "attn_output": matrix(WIDTH, HEADS * head),
            "ffn_norm": vector(WIDTH),
            "ffn_gate": matrix(_FEED, WIDTH),
            "ffn_up": matrix(_FEED, WIDTH),
            "ffn_down": matrix(WIDTH, _FEED),
        }
        if gemma or architecture == "qwen3":
            block |= {"attn_q_norm": vector(head), "attn_k_norm": vector(head)}
        if gemma:
            block |= {"post_attention_norm": vector(WIDTH), "post_ffw_norm": vector(WIDTH)}
        found |= {f"blk.{layer}.{name}.weight": value for name, value in block.items()}
        if qwen2:
            sizes = {"attn_q": HEADS * head, "attn_k": _KEYS * head, "attn_v": _KEYS * head}
            found |= {f"blk.{layer}.{k}.bias": vector(size, 0.0) for k, size in sizes.items()}
    return found


def metadata(architecture, **changes):
    """Keys and values of a tiny model with a byte-level vocabulary; None leaves a key out."""
    head = size_of_head(architecture)
    own = {
        "context_length": 256,
        "block_count": _LAYERS,
        "embedding_length": WIDTH,
        "feed_forward_length": _FEED,
        "attention.head_count": HEADS,
        "attention.head_count_kv": _KEYS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.key_length": head,
        "rope.freq_base": 50_000.0,
    }
    if architecture in ("llama", "qwen3"):
        own["rope.dimension_count"] = head
    if architecture == "gemma3":
        own["attention.sliding_window"] = 8
    found = {f"{architecture}.{key}": value for key, value in own.items()}
    found |= {
        "general.name": "tiny",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": _TYPES,
        "tokenizer.ggml.merges": ["Ġ a", "a n", "Ġa n", "1 2"],
        "tokenizer.ggml.bos_token_id": _BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.chat_template": _TEMPLATE,
    }
    found |= changes
    return {key: value for key, value in found.items() if value is not None}


def write(path, architecture="llama", values=None, kind=Kind.F32, split=0, **changes):
    """Writes a GGUF; matrices have the type `kind`, norms and biases are in float32."""
    size = max(len(values or tensors(architecture)) // 2 + 1, 1) if split else 0
    writer = GGUFWriter(path, architecture, split_max_tensors=size)
    for key, value in metadata(architecture, **changes).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, value in (values or tensors(architecture)).items():
        if value.ndim == 2 and kind != Kind.F32:
            writer.add_tensor(name, gguf.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
