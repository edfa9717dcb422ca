"""The tokenizer of a model folder, as it was saved."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ..local_files import LOCAL_FILES


def load_tokenizer(folder: pathlib.Path) -> Any:
    """The tokenizer as it was saved.

    For some model types, such as qwen2 and llama, AutoTokenizer (5.19) rebuilds the rules of the
    type, even if the folder holds another tokenizer. If a folder says that its tokenizer.json is
    the whole tokenizer, that file alone is used. Any other tokenizer gets the rules of its file.
    """
    file, whole = folder / "tokenizer_config.json", folder / "tokenizer.json"
    saved_class = json.loads(file.read_text()).get("tokenizer_class") if file.is_file() else None
    if saved_class in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, **LOCAL_FILES)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer
    pieces = folder / "tokenizer.model"
    if whole.is_file():
        saved = Tokenizer.from_file(str(whole))
        backend.model, backend.decoder = saved.model, saved.decoder
        backend.normalizer, backend.pre_tokenizer = saved.normalizer, saved.pre_tokenizer
    elif pieces.is_file():
        _merge_by_score(backend, pieces)
    return tokenizer


def _merge_by_score(backend: Tokenizer, pieces: pathlib.Path) -> None:
    """Orders the merges of a converted sentencepiece model by the scores of its pieces.

    transformers (5.19) orders them by id. In the models of Llama 2 and Mistral, runs of spaces have
    low ids and the lowest score: two spaces before a word would become one token.
    """
    stored = json.loads(backend.to_str())["model"]
    if stored["type"] != "BPE" or not stored["byte_fallback"]:
        return  # no sentencepiece model with merges: Unigram, or a vocabulary of tiktoken
    from sentencepiece import SentencePieceProcessor

    model: Any = SentencePieceProcessor(model_file=str(pieces))
    score = {model.id_to_piece(i): model.get_score(i) for i in range(model.get_piece_size())}
    backend.model = models.BPE(
        vocab=stored["vocab"],
        merges=sorted(map(tuple, stored["merges"]), key=lambda pair: -score["".join(pair)]),
        unk_token=stored["unk_token"],
        fuse_unk=stored["fuse_unk"],
        byte_fallback=True,
    )
