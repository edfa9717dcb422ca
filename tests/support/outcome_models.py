"""Tiny outcome models with random weights, and what transformers' own classifiers make of answers.

`Reference` imports nothing from the package: the tokenizer's own chat template renders question and
answer, and one forward pass of `AutoModelForSequenceClassification` gives the logits.
"""

import json
import pathlib
from typing import Any

import prm_families
import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen2ForSequenceClassification,
)

from cats_jax.world.tokenizer import build_tokenizer

KINDS = ("llama", "qwen", "mistral", "two-labels")

# The turns of Mistral 7B's first release: their marks are ordinary text.
_MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} "
    "[/INST]{% else %} {{ m['content'] | trim }}{{ eos_token }}{% endif %}{% endfor %}"
)

_WORLD = (
    "{{ bos_token }}{% for m in messages %}{{ m['content'] }}"
    "{{ '\n\n' if loop.first else eos_token }}{% endfor %}"
)


def save(folder: pathlib.Path, kind: str) -> pathlib.Path:
    """A sequence classifier: "llama" whose template ends with the padding token, "qwen", "mistral".

    "two-labels" is "qwen" with a second label.
    """
    if kind == "llama":
        prm_families.rlhflow(folder, dated=False)
        for file in folder.glob("*.safetensors*"):
            file.unlink()
        padding = AutoTokenizer.from_pretrained(folder).eos_token_id
        return _save(folder, LlamaForSequenceClassification, pad_token_id=padding)
    prm_families.trl(folder)
    if kind == "mistral":
        file = folder / "tokenizer_config.json"
        content = json.loads(file.read_text())
        bos = {"bos_token": "<|im_start|>", "chat_template": _MISTRAL}
        file.write_text(json.dumps({**content, **bos}))
    labels = 2 if kind == "two-labels" else 1
    return _save(folder, Qwen2ForSequenceClassification, labels=labels, pad_token_id=0)


def save_of_world(folder: pathlib.Path, model: pathlib.Path) -> pathlib.Path:
    """An outcome model with one label that reads the embedded world's text.

    Args:
        folder: the new model.
        model: a model with the world's tokenizer, whose sizes it takes.
    """
    tokenizer = build_tokenizer()
    tokenizer.chat_template = _WORLD
    folder.mkdir()
    AutoConfig.from_pretrained(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return _save(folder, Qwen2ForSequenceClassification)


def _save(folder: pathlib.Path, kind: Any, *, labels: int = 1, **changes: Any) -> pathlib.Path:
    config = AutoConfig.from_pretrained(folder)
    for name, value in {"num_labels": labels, "tie_word_embeddings": False, **changes}.items():
        setattr(config, name, value)
    torch.manual_seed(7)
    model = kind(config)
    model.score.weight.data *= 3.0  # so that scores differ
    model.save_pretrained(folder)
    return folder


class Reference:
    """transformers' own classifier in float32."""

    def __init__(self, folder: pathlib.Path):
        load = AutoModelForSequenceClassification.from_pretrained
        self.model = load(folder, dtype=torch.float32).eval()
        # AutoTokenizer rebuilds the splitting rules of what passes for Qwen's.
        saved = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
        own = PreTrainedTokenizerFast if saved == "TokenizersBackend" else AutoTokenizer
        self.tokenizer = own.from_pretrained(folder)

    @torch.inference_mode()
    def logits(self, question: str, answer: str) -> list[float]:
        """The logits of an answer as the chat template writes it, [labels]."""
        turns = [("user", question), ("assistant", answer)]
        text = self.tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in turns], tokenize=False
        )
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        return self.model(ids).logits[0].tolist()
