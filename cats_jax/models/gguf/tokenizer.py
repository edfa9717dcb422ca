"""The tokenizer of a GGUF as tokenizer.json and the files beside it.

A GGUF names the rule by which text is split before merges, but does not hold it. For a byte-level
vocabulary it holds the merges, for a sentencepiece one the scores from which they follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from ...errors import known_names

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
_SPACE = "\u2581"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _CONTRACTIONS + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_LLAMA3 = _CONTRACTIONS + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    + _REST.replace(r"[\r\n]*", r"[\r\n/]*", 1)
)
# None: GPT-2's own rule, which ByteLevel has.
_SPLITS = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    "tekken": _TEKKEN,
    "smollm": None,
    "gpt-2": None,
}

# Texts of tokens that end an answer; llama.cpp ends at these, too, whatever the file names.
_ENDS = frozenset(
    ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
     "<|end_of_text|>", "</s>", "<eos>")
)  # fmt: skip


def tokenizer_files(metadata: Mapping[str, Any], rows: int) -> dict[str, str]:
    """Names and contents of the files of a tokenizer, and of generation_config.json.

    Args:
        metadata: keys and values of the GGUF.
        rows: number of rows of the embeddings.

    Raises:
        ValueError: a value is not of its kind, or names a tokenizer that is not known.
        KeyError: a key is missing.
    """
    own = _Vocabulary(metadata, rows)
    build = {"gpt2": _byte_level, "llama": _sentencepiece}.get(own.kind)
    if build is None:
        raise ValueError(f"tokenizer.ggml.model {own.kind[:40]!r} is not gpt2 or llama")
    tokenizer = build(own)
    for special, kinds in ((True, (_UNKNOWN, _CONTROL)), (False, (_USER_DEFINED,))):
        marked = [token for token, kind in own.typed if kind in kinds and token in own.ids]
        added = [AddedToken(token, normalized=False, special=special) for token in marked]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    first = [own.names["bos_token"]] if own.adds("bos", own.begins) else []
    last = [own.names["eos_token"]] if own.adds("eos", False) else []
    if first or last:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last],
            pair=[*first, "$A", *last, *(f"{token}:1" for token in first), "$B:1", *last],
            special_tokens=[(token, own.ids[token]) for token in {*first, *last}],
        )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **own.names,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata[f"{metadata['general.architecture']}.context_length"],
    }
    if template := metadata.get("tokenizer.chat_template"):
        config["chat_template"] = _text(template, "tokenizer.chat_template")
    return {
        "tokenizer.json": tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(config, indent=1) + "\n",
        "generation_config.json": json.dumps(own.ends(), indent=1) + "\n",
    }


def special_ids(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The ids for config.json: the one end token that the GGUF names, not all that end answers."""
    names = {"bos": "bos", "eos": "eos", "padding": "pad"}
    keys = {key: f"tokenizer.ggml.{key}_token_id" for key in names}
    return {f"{names[key]}_token_id": metadata[k] for key, k in keys.items() if k in metadata}


class _Vocabulary:
    """What a GGUF says of its vocabulary, checked.

    Attributes:
        kind: "gpt2" for byte-level merges, "llama" for sentencepiece.
        typed: each token and its type, by id.
        ids: ids of the tokens that can occur.
        names: begin, end, unknown and padding token, as far as the file names them.
        begins: whether a text begins with the begin token where the file does not say.
    """

    def __init__(self, metadata: Mapping[str, Any], rows: int):
        self._metadata = metadata
        self.kind = _text(self._own("model"), "tokenizer.ggml.model")
        tokens = self.texts("tokens")
        types = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
        if not isinstance(types, list) or len(types) != len(tokens) or len(tokens) > rows:
            raise ValueError(f"it has {len(tokens)} tokens, and {rows} rows of embeddings")
        self.typed = list(zip(tokens, types, strict=True))
        if self.kind == "llama" and metadata["general.architecture"] == "gemma3":
            # A token of several spaces is stored as spaces; merges make it, so it is not an added
            # one.
            for number, token in enumerate(tokens):
                if token[:2] == "  " and not token.strip(" "):
                    self.typed[number] = (_SPACE * len(token), _NORMAL)
        # Rows of embeddings without a token have names of llama.cpp's own.
        self.ids: dict[str, int] = {}
        for number, (token, kind) in enumerate(self.typed):
            if kind != _UNUSED:
                self.ids.setdefault(token, number)
        self.names = {}
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            number = metadata.get(f"tokenizer.ggml.{key}_token_id")
            if number is not None:
                self.names[f"{name}_token"] = self._token(number)
        self.begins = self.kind == "llama" or _SPLITS.get(self.split) in (_LLAMA3, _TEKKEN)

    @property
    def split(self) -> str:
        """Name of the rule by which text is split, "" without one."""
        return str(self._metadata.get("tokenizer.ggml.pre", ""))

    def _own(self, key: str) -> Any:
        return self._metadata[f"tokenizer.ggml.{key}"]

    def _token(self, number: Any) -> str:
        if type(number) is not int or not 0 <= number < len(self.typed):
            raise ValueError(f"it names token {number!r} of {len(self.typed)}")
        return self.typed[number][0]

    def texts(self, key: str) -> list[str]:
        """An array of texts, checked."""
        values = self._own(key)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ValueError(f"tokenizer.ggml.{key} is not an array of texts")
        return values

    def scores(self) -> Sequence[float]:
        """The scores by which sentencepiece merges, the highest first."""
        if self._metadata["general.architecture"] == "gemma3":
            # Gemma's scores do not follow the order of its merges; its ids do.
            return range(0, -len(self.typed), -1)
        scores = self._own("scores")
        if not isinstance(scores, list) or len(scores) != len(self.typed):
            raise ValueError("tokenizer.ggml.scores must have one number for each token")
        return scores

    def adds(self, name: str, default: bool) -> bool:
        """Whether a text gets the begin ("bos") or end ("eos") token."""
        asked = self._metadata.get(f"tokenizer.ggml.add_{name}_token", default)
        return bool(asked) and f"{name}_token" in self.names

    def spaced(self) -> bool:
        """Whether a text gets a space before it."""
        default = self._metadata["general.architecture"] != "gemma3"
        return bool(self._metadata.get("tokenizer.ggml.add_space_prefix", default))

    def ends(self) -> dict[str, Any]:
        """The content of generation_config.json, with all tokens that end an answer."""
        ids = special_ids(self._metadata)
        named = [self._metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eot", "eom")]
        named = [self.ids[self._token(number)] for number in named if number is not None]
        marked = [
            number
            for number, (token, kind) in enumerate(self.typed)
            if token in _ENDS and kind in (_CONTROL, _USER_DEFINED)
        ]
        first = [ids["eos_token_id"]] if "eos_token_id" in ids else []
        found = list(dict.fromkeys([*first, *named, *marked]))
        return {**ids, "eos_token_id": found} if found else ids


def _byte_level(own: _Vocabulary) -> Tokenizer:
    if own.split not in _SPLITS:
        raise ValueError(f"tokenizer.ggml.pre {own.split[:40]!r}: {known_names('', _SPLITS)}")
    split = _SPLITS[own.split]
    # No token has a space, except as the text of an added one.
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in own.texts("merges"))]
    whole = split in (_LLAMA3, _TEKKEN)
    tokenizer = Tokenizer(models.BPE(vocab=own.ids, merges=merges, ignore_merges=whole))
    before: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)]
    if split is not None:
        before.insert(0, pre_tokenizers.Split(Regex(split), "isolated"))
    elif own.split == "smollm":
        before.insert(0, pre_tokenizers.Digits(individual_digits=True))
    if split == _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(before)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(own: _Vocabulary) -> Tokenizer:
    scores = own.scores()
    merges: list[tuple[float, str, str]] = []
    for (token, kind), score in zip(own.typed, scores, strict=True):
        if kind not in (_NORMAL, _USER_DEFINED):
            continue
        for cut in range(len(token) - 1, 0, -1):
            if token[:cut] in own.ids and token[cut:] in own.ids:
                merges.append((score, token[:cut], token[cut:]))
    merges.sort(key=lambda merge: -merge[0])
    model = models.BPE(
        vocab=own.ids,
        merges=[(left, right) for _, left, right in merges],
        unk_token=own.names.get("unk_token"),
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    replace = normalizers.Replace(" ", _SPACE)
    after: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if own.spaced():
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), replace])
        after.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = replace
    tokenizer.decoder = decoders.Sequence(after)
    return tokenizer


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a text")
    return value
