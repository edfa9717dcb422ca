"""Models made on the spot: Qwen2.5's shapes, random weights, a synthetic vocabulary.

Their text is noise, but their work is that of real models: steps end after 40 tokens on average and
answers after 160, so that caches, batches and searches look as they do in use. For that, one
channel of the residual stream holds a constant: no layer writes to it, and it is ten times larger
than the others, so that the last normalisation leaves it almost constant. The column of the head
for this channel holds the log-probabilities of a unigram distribution. The other channels, which
are computed as in any transformer, change each logit by about one nat.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import string

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from cats_jax.protocols import Path, Question, Step

MEAN_STEP, MEAN_ANSWER = 40, 160
"""Mean number of tokens of a step and of an answer."""

SEPARATORS = ("\n\n", ".\n\n")
END = "<|im_end|>"
_SPECIAL = ("<|endoftext|>", "<|im_start|>", END, "<extra_0>")
_CHATML = (
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>' + '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

_CONSTANT = 10.0
"""The constant channel divided by the root mean square that the others begin with, per sqrt(H)."""

_IMPOSSIBLE = -40.0
"""Log-probability of special tokens, bytes and ids without a token."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen2 model with a head of its own (the released 0.5B and 1.5B tie theirs).

    Attributes:
        name: name of the model.
        hidden, layers, heads, kv_heads, intermediate: as in config.json.
        vocabulary: width of the logits.
        tokens: number of tokens of the tokenizer without special ones; ids above have no text.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int = 151_936
    tokens: int = 151_000


SHAPES = {
    "0.5b": Shape("qwen2.5-0.5b", 896, 24, 14, 2, 4864),
    "1.5b": Shape("qwen2.5-1.5b", 1536, 28, 12, 2, 8960),
    "7b": Shape("qwen2.5-7b", 3584, 28, 28, 4, 18944),
}

TINY = Shape("tiny", 64, 2, 4, 2, 96, vocabulary=1100, tokens=1000)
"""For rehearsals on a CPU."""


def make_policy(shape: Shape, folder: pathlib.Path, *, device: str, seed: int = 0) -> pathlib.Path:
    """Writes a policy in bf16, one file per layer; the random numbers are drawn on `device`."""
    folder.mkdir(parents=True)
    words = _save_tokenizer(shape, folder)
    rng = torch.Generator(device).manual_seed(seed)
    places: dict[str, str] = {}

    def save(name: str, tensors: dict[str, torch.Tensor]) -> None:
        file = f"{name}.safetensors"
        stored = {key: value.bfloat16().contiguous().cpu() for key, value in tensors.items()}
        save_file(stored, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(stored, file))

    save("ends", _ends(shape, words, rng))
    for index in range(shape.layers):
        save(f"layer-{index:02d}", _layer(shape, f"model.layers.{index}", rng))
    _save_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})
    _save_config(shape, folder, "Qwen2ForCausalLM")
    return folder


def make_prm(
    shape: Shape, policy: pathlib.Path, folder: pathlib.Path, *, seed: int = 1
) -> pathlib.Path:
    """Writes a PRM in the layout of Qwen2.5-Math-PRM: the policy's files under a head of its own.

    The layers are links to the policy's, which saves half of the disk and of the time.
    """
    folder.mkdir(parents=True)
    for file in policy.iterdir():
        if file.name != "config.json" and "index" not in file.name:
            (folder / file.name).symlink_to(file.resolve())
    rng = torch.Generator("cpu").manual_seed(seed)
    size = shape.hidden
    first = _normal(rng, size, size, scale=_CONSTANT / math.sqrt(size))
    first[:, 0] = 0.0  # the constant channel tells nothing
    head = {
        "score.0.weight": first,
        "score.0.bias": torch.zeros(size),
        "score.2.weight": _normal(rng, 2, size, scale=5.0 / math.sqrt(size)),
        "score.2.bias": torch.zeros(2),
    }
    stored = {name: value.bfloat16() for name, value in head.items()}
    save_file(stored, folder / "head.safetensors", metadata={"format": "pt"})
    index = json.loads((policy / "model.safetensors.index.json").read_text())
    index["weight_map"].update(dict.fromkeys(stored, "head.safetensors"))
    _save_json(folder / "model.safetensors.index.json", index)
    _save_config(shape, folder, "Qwen2ForProcessRewardModel")
    return folder


def made_questions(count: int, seed: int = 0) -> list[Question]:
    """Questions of 60 random words, which is about as long as those of MATH."""
    rng = np.random.default_rng(seed)
    return [Question(f"q{i}", _text(rng, 60)) for i in range(count)]


def made_path(steps: int, rng: np.random.Generator) -> Path:
    """A path whose steps have 20 to 60 random words, as a PRM reads it (without token ids)."""
    lengths = rng.integers(MEAN_STEP // 2, MEAN_STEP + MEAN_STEP // 2, steps)
    return tuple(Step(_text(rng, int(length)), ()) for length in lengths)


def _text(rng: np.random.Generator, words: int) -> str:
    # Words of two letters are in the vocabularies of all shapes, each one token.
    letters = rng.choice(list(string.ascii_lowercase), (words, 2))
    return "".join(" " + "".join(word) for word in letters)


def _save_tokenizer(shape: Shape, folder: pathlib.Path) -> dict[str, int]:
    """Writes a byte-level BPE tokenizer of words in alphabetical order; returns its vocabulary.

    Every word's beginning is a word, too, so that a text has one way to be cut into tokens.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ċ", "Ċ"), (".", "ĊĊ")]
    room = shape.tokens - len(alphabet) - len(merges)
    by_length = (
        itertools.product(string.ascii_lowercase, repeat=length) for length in itertools.count(1)
    )
    for letters in itertools.islice(itertools.chain.from_iterable(by_length), room):
        merges.append(("Ġ" + "".join(letters[:-1]), letters[-1]))
    tokens = [*alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": None, "eos_token": END, "pad_token": _SPECIAL[0]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _CHATML}
    _save_json(folder / "tokenizer_config.json", {**special, **settings})
    return tokenizer.get_vocab()


def unigram(vocabulary: dict[str, int], width: int) -> torch.Tensor:
    """Log-probabilities f32[width]: separators, the end of the text, and words by Zipf's law."""
    words = [i for token, i in sorted(vocabulary.items()) if token[0] == "Ġ" and len(token) > 1]
    separators = [vocabulary[text.replace("\n", "Ċ")] for text in SEPARATORS]
    probs = torch.zeros(width, dtype=torch.float64)
    probs[separators] = 1.0 / MEAN_STEP / len(separators)
    probs[vocabulary[END]] = 1.0 / MEAN_ANSWER
    ranks = 1.0 / torch.arange(10, 10 + len(words), dtype=torch.float64)
    probs[words] = ranks / ranks.sum() * (1.0 - probs.sum())
    return probs.log().clamp(min=_IMPOSSIBLE).float()


def _ends(shape: Shape, words: dict[str, int], rng: torch.Generator) -> dict[str, torch.Tensor]:
    """Embeddings, last normalisation and head."""
    size, width = shape.hidden, shape.vocabulary
    embeddings = _normal(rng, width, size)
    embeddings[:, 0] = _CONSTANT * math.sqrt(size)
    # After the normalisation the constant channel is about sqrt(H), the others about 1 / 10.
    head = _normal(rng, width, size, scale=0.5 * _CONSTANT / math.sqrt(size))
    head[:, 0] = (unigram(words, width) / math.sqrt(size)).to(head.device)
    return {
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": torch.ones(size),
        "lm_head.weight": head,
    }


def _layer(shape: Shape, prefix: str, rng: torch.Generator) -> dict[str, torch.Tensor]:
    size, inner = shape.hidden, shape.intermediate
    kv = size // shape.heads * shape.kv_heads
    # The constant channel is not read, and the others have a mean square of 1 again.
    norm = torch.full((size,), _CONSTANT)
    norm[0] = 0.0
    linear = {
        "self_attn.q_proj": (size, size),
        "self_attn.k_proj": (kv, size),
        "self_attn.v_proj": (kv, size),
        "self_attn.o_proj": (size, size),
        "mlp.gate_proj": (inner, size),
        "mlp.up_proj": (inner, size),
        "mlp.down_proj": (size, inner),
    }
    tensors = {"input_layernorm.weight": norm, "post_attention_layernorm.weight": norm.clone()}
    for name, (outputs, inputs) in linear.items():
        weight = _normal(rng, outputs, inputs, scale=1.0 / math.sqrt(inputs))
        if name in ("self_attn.o_proj", "mlp.down_proj"):
            weight *= 1.0 / math.sqrt(2 * shape.layers)
            weight[0] = 0.0  # nothing is written to the constant channel
        tensors[f"{name}.weight"] = weight
    for name, width in (("q", size), ("k", kv), ("v", kv)):
        tensors[f"self_attn.{name}_proj.bias"] = torch.zeros(width)
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def _normal(rng: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    values = torch.randn(shape, generator=rng, device=rng.device, dtype=torch.float32)
    return values.mul_(scale)


def _save_config(shape: Shape, folder: pathlib.Path, architecture: str) -> None:
    end = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    _save_json(
        folder / "config.json",
        {
            "architectures": [architecture],
            "model_type": "qwen2",
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "max_position_embeddings": 4096,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "eos_token_id": next(each["id"] for each in end if each["content"] == END),
            "torch_dtype": "bfloat16",
        },
    )


def _save_json(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
