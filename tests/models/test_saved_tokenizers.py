"""Tokenizers as model folders hold them, whatever transformers makes of their classes."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from cats_jax.models.huggingface.tokenizer import load_tokenizer

_NAMES = ["<unk>", "<s>", "</s>", "\u2581", "\n", *map(chr, range(33, 127))]


def saved(folder, model_type, tokenizer_class, **rules):
    """The tokenizer of a folder of a model type and class, with rules of its own."""
    backend = Tokenizer(
        models.BPE({name: i for i, name in enumerate(_NAMES)}, [], unk_token="<unk>")
    )
    backend.add_special_tokens(["<s>", "</s>"])
    for name, rule in rules.items():
        setattr(backend, name, rule)
    backend.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {**special, "tokenizer_class": tokenizer_class, "legacy": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return backend


LLAMA_2 = {
    "normalizer": normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    ),
    "decoder": decoders.Replace("\u2581", " "),
}
OTHER = {
    "normalizer": normalizers.Replace(" ", "\u2581"),
    "pre_tokenizer": pre_tokenizers.Split(Regex("[0-9]"), "isolated"),
    "decoder": decoders.Replace("\u2581", "_"),
}


@pytest.mark.parametrize("rules", [LLAMA_2, OTHER], ids=["llama-2", "other"])
@pytest.mark.parametrize(
    ("model_type", "tokenizer_class"),
    [("llama", "LlamaTokenizer"), ("llama", "LlamaTokenizerFast"), ("qwen2", "Qwen2Tokenizer")],
)
def test_the_rules_of_the_file_are_kept(tmp_path, model_type, tokenizer_class, rules):
    backend = saved(tmp_path, model_type, tokenizer_class, **rules)
    loaded = load_tokenizer(tmp_path)
    for text in ("<s>[INST] 1+1? [/INST]", " two  blanks</s>12\n", "1"):
        ids = backend.encode(text, add_special_tokens=False).ids
        assert loaded(text, add_special_tokens=False)["input_ids"] == ids
        decoded = backend.decode(ids, skip_special_tokens=False)
        assert loaded.backend_tokenizer.decode(ids, skip_special_tokens=False) == decoded
    assert loaded.eos_token_id == 2
