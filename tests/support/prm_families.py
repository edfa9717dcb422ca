"""Tiny checkpoints with random weights in the families' architectures and released layouts.

Tokenizers are trained on the spot: sentencepiece for Math-Shepherd, byte-level BPE with the
splitting rules of Llama 3 and Qwen 2.5 for the others. What is written is what the releases hold:
names of files and tensors, shards, .bin or safetensors, remote code that must not be run.
"""

import io
import json
import pathlib
import random
from typing import Any
from unittest import mock

import sentencepiece
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForTokenClassification,
)

from cats_jax.models.prm import convert, convert_worker

SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPLIT = QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

CHATML = (
    "{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if not (message['role'] == 'system' and loop.first) %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
_LLAMA_TURNS = (
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
LLAMA_PLAIN = "{{- bos_token }}" + _LLAMA_TURNS
LLAMA_DATED = (
    "{{- bos_token }}"
    "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}"
    "{{- 'Cutting Knowledge Date: December 2023\\nToday Date: ' + date_string + '\\n\\n' }}"
    "{{- '<|eot_id|>' }}" + _LLAMA_TURNS
)

_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,  # vLLM's attention on a CPU wants 32 channels a head
    "num_key_value_heads": 1,
    "initializer_range": 0.12,
    "max_position_embeddings": 2048,
}


NAMES = (
    "math-shepherd",
    "rlhflow-mistral",
    "rlhflow-deepseek",
    "skywork",
    "qwen2.5-math-prm",
    "trl",
)
FORMATS = {name: "rlhflow" if name.startswith("rlhflow") else name for name in NAMES}


def released(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """name -> a folder with safetensors, each under `root`; the package converts .bin releases."""
    math_shepherd(root / "math-shepherd-bin")
    skywork(root / "skywork-bin")
    # A process for each takes seconds, in which it imports torch.
    with (
        mock.patch.object(convert, "_run_worker", _convert_here),
        mock.patch.object(convert_worker, "_limit_memory"),
    ):
        for name in ("math-shepherd", "skywork"):
            convert.convert_checkpoint(root / f"{name}-bin", root / name)
    rlhflow(root / "rlhflow-mistral", dated=False)
    rlhflow(root / "rlhflow-deepseek", dated=True)
    qwen_math_prm(root / "qwen2.5-math-prm")
    trl(root / "trl")
    return {name: root / name for name in NAMES}


def _convert_here(
    source: pathlib.Path, names: list[str], folder: pathlib.Path, *_: Any
) -> dict[str, Any]:
    return convert_worker.convert(source, folder, names)


def corpus() -> list[str]:
    """Sentences whose pieces make both tokenizers' vocabularies."""
    rng = random.Random(0)
    words = "the answer is so we add and get step first then total number of eggs she has left per"
    lines = []
    for _ in range(400):
        a, b = rng.randint(1, 99), rng.randint(1, 99)
        text = " ".join(rng.choices(words.split(), k=6))
        lines.append(f"Step {rng.randint(1, 9)}: {a} + {b} = {a + b}. {text}.\n")
    lines += ["so we get it.\n\n"] * 60
    return [*lines, *["+ - + - ки ки\n\n"] * 60, *["What is $\\frac{1}{2}$?\n\\boxed{7}.\n"] * 60]


def math_shepherd(folder: pathlib.Path) -> pathlib.Path:
    """Mistral's layout under a llama config: two .bin shards, sentencepiece only."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(  # pyright: ignore[reportAttributeAccessIssue]
        sentence_iterator=iter([line.replace("\n", " ") for line in corpus()]),
        model_writer=model,
        vocab_size=440,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        character_coverage=1.0,
        minloglevel=2,
    )
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    _write_json(
        folder / "tokenizer_config.json",
        {
            **special,
            "add_bos_token": True,
            "add_eos_token": False,
            "clean_up_tokenization_spaces": False,
            "legacy": True,
            "sp_model_kwargs": {},
            "tokenizer_class": "LlamaTokenizer",
        },
    )
    _write_json(folder / "special_tokens_map.json", special)
    config = LlamaConfig(**_SHAPE, vocab_size=440, tie_word_embeddings=False)
    state = _random(LlamaForCausalLM, config, seed=1)
    _save_config(folder, config, "LlamaForCausalLM")
    names = list(state)
    _save_bin_shards(folder, [names[:9], names[9:]], state)
    return folder


def rlhflow(folder: pathlib.Path, *, dated: bool) -> pathlib.Path:
    """Llama 3.1's layout, safetensors; the two releases differ in their templates."""
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"]
    special += ["<|eot_id|>"]
    tokenizer = _byte_level(LLAMA_SPLIT, special)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|eot_id|>",
            "chat_template": LLAMA_DATED if dated else LLAMA_PLAIN,
            "clean_up_tokenization_spaces": True,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    size = tokenizer.get_vocab_size()
    config = LlamaConfig(**_SHAPE, vocab_size=size, tie_word_embeddings=False)
    state = _random(LlamaForCausalLM, config, seed=2 + dated)
    _save_config(folder, config, "LlamaForCausalLM")
    names = list(state)
    _save_safetensors_shards(folder, [names[:7], names[7:]], state)
    return folder


def skywork(folder: pathlib.Path) -> pathlib.Path:
    """Qwen 2.5 with tied embeddings under a value head, in one .bin."""
    size = _save_qwen_tokenizer(folder, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    config = Qwen2Config(**_SHAPE, vocab_size=size, tie_word_embeddings=True)
    state = _random(Qwen2ForCausalLM, config, seed=4)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]  # the same memory, as saved
    state["v_head.summary.weight"] = torch.randn(1, 64) * 0.4
    state["v_head.summary.bias"] = torch.tensor([0.3])
    _save_config(folder, config, "Qwen2ForPrmModel")
    torch.save(state, folder / "pytorch_model.bin")
    return folder


def qwen_math_prm(folder: pathlib.Path) -> pathlib.Path:
    """Qwen 2.5 under a head of two layers, beside a language-model head of no use; remote code."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>"]
    size = _save_qwen_tokenizer(folder, special)
    config = Qwen2Config(**_SHAPE, vocab_size=size, tie_word_embeddings=False)
    state = _random(Qwen2ForCausalLM, config, seed=5)
    state["score.0.weight"] = torch.randn(64, 64) * 0.2
    state["score.0.bias"] = torch.randn(64) * 0.2
    state["score.2.weight"] = torch.randn(2, 64) * 0.3
    state["score.2.bias"] = torch.randn(2) * 0.2
    code = {"AutoConfig": "configuration_qwen2_rm.Qwen2RMConfig"}
    code["AutoModel"] = "modeling_qwen2_rm.Qwen2ForProcessRewardModel"
    _save_config(folder, config, "Qwen2ForProcessRewardModel", auto_map=code)
    for name in ("configuration_qwen2_rm.py", "modeling_qwen2_rm.py"):
        (folder / name).write_text("raise RuntimeError('remote code was run')\n")
    names = list(state)
    _save_safetensors_shards(folder, [names[:5], names[5:]], state)
    return folder


def trl(folder: pathlib.Path) -> pathlib.Path:
    """Token classification as TRL saves it, with the tokenizer of a model without a first token."""
    size = _save_qwen_tokenizer(folder, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    file = folder / "tokenizer_config.json"
    _write_json(file, {**json.loads(file.read_text()), "bos_token": None})
    torch.manual_seed(6)
    config = Qwen2Config(**_SHAPE, vocab_size=size, pad_token_id=0)
    config.num_labels = 2
    Qwen2ForTokenClassification(config).save_pretrained(folder)
    return folder


def _save_qwen_tokenizer(folder: pathlib.Path, special: list[str]) -> int:
    tokenizer = _byte_level(QWEN_SPLIT, special)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    content = json.loads(tokenizer.to_str())["model"]
    _write_json(folder / "vocab.json", content["vocab"])
    merges = [" ".join(pair) for pair in content["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "added_tokens_decoder": {
                str(tokenizer.token_to_id(token)): {
                    **dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False),
                    "content": token,
                    "special": True,
                }
                for token in special
            },
            "add_prefix_space": False,
            "bos_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "unk_token": None,
            "chat_template": CHATML,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 131072,
            "tokenizer_class": "Qwen2Tokenizer",
        },
    )
    return tokenizer.get_vocab_size()


def _byte_level(split: str, special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=460,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(special)
    return tokenizer


def _random(kind: Any, config: Any, *, seed: int) -> dict[str, torch.Tensor]:
    """A model's weights; the state of torch's generator is left where the head's draws begin."""
    torch.manual_seed(seed)
    return dict(kind(config).state_dict())


def _save_config(folder: pathlib.Path, config: Any, architecture: str, **more: Any) -> None:
    content = {**config.to_dict(), "architectures": [architecture], **more}
    _write_json(folder / "config.json", content)


def _save_bin_shards(
    folder: pathlib.Path, groups: list[list[str]], state: dict[str, torch.Tensor]
) -> None:
    places = {}
    for number, names in enumerate(groups, 1):
        file = f"pytorch_model-{number:05d}-of-{len(groups):05d}.bin"
        torch.save({name: state[name] for name in names}, folder / file)
        places.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    _write_json(folder / "pytorch_model.bin.index.json", index)


def _save_safetensors_shards(
    folder: pathlib.Path, groups: list[list[str]], state: dict[str, torch.Tensor]
) -> None:
    places = {}
    for number, names in enumerate(groups, 1):
        file = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        tensors = {name: state[name].contiguous() for name in names}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_json(path: pathlib.Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
