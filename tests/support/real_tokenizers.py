"""The published tokenizers of `shared`, and the same vocabularies as tiktoken and bytes.

The encodings here import nothing from the package and know no chat template.
"""

import base64
import json
import pathlib
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable

import prm_families
import sentencepiece
import tiktoken
from safetensors.torch import save_file
from transformers import LlamaConfig, PreTrainedTokenizerFast

NAMES = ("qwen2.5", "qwen2.5-math-prm", "llama-3.1", "llama-2")

QWEN_IDS = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
LLAMA_IDS = {
    "<|begin_of_text|>": 128000,
    "<|start_header_id|>": 128006,
    "<|end_header_id|>": 128007,
    "<|eot_id|>": 128009,
}

Part = int | str

OUR_QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


def build(script: pathlib.Path, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """Folder of each name, made by the script in half a minute."""
    subprocess.run([sys.executable, script, out], check=True, capture_output=True)
    return {name: out / name for name in NAMES}


def build_qwen(script: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """The folder of "qwen2.5" alone, with what the script gives it, in a quarter of the time."""
    made = runpy.run_path(str(script))
    default = "'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'"
    made["byte_level"](
        script.parent / "qwen.tiktoken",
        made["QWEN_PATTERN"],
        made["QWEN_SPECIAL"],
        made["QWEN_REST"],
        out / "qwen2.5",
        chat=made["QWEN_CHAT"].replace("default_system", default),
        first_id=QWEN_IDS["<|endoftext|>"],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=32768,
    )
    return out / "qwen2.5"


def released_llama_2(model: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """A folder with `tokenizer.model` alone, as Math-Shepherd's is; the weights are empty."""
    LlamaConfig().save_pretrained(out)
    save_file({}, out / "model.safetensors")
    shutil.copy(model, out / "tokenizer.model")
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {**special, "legacy": True, "tokenizer_class": "LlamaTokenizer"}
    (out / "tokenizer_config.json").write_text(json.dumps(config))
    return out


def load(folder: pathlib.Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)


class TiktokenVocabulary:
    """A published rank file, read by tiktoken."""

    def __init__(self, file: pathlib.Path, split: str):
        lines = (line.split() for line in file.read_bytes().splitlines() if line)
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        self.bytes = {rank: token for token, rank in ranks.items()}
        self._encoding = tiktoken.Encoding(
            file.name, pat_str=split, mergeable_ranks=ranks, special_tokens={}
        )

    def ids(self, *parts: Part) -> tuple[int, ...]:
        """Ids of special tokens as they are, and of each text by itself, which has no special."""
        found: list[int] = []
        for part in parts:
            found += [part] if isinstance(part, int) else self._encoding.encode_ordinary(part)
        return tuple(found)

    def text(self, ids: Iterable[int]) -> str:
        return b"".join(self.bytes[i] for i in ids).decode("utf-8", errors="replace")


def qwen(shared) -> TiktokenVocabulary:
    return TiktokenVocabulary(shared("real/tokenizers/qwen.tiktoken"), prm_families.QWEN_SPLIT)


def qwen_prompt(question: str, *, system: str = OUR_QWEN_SYSTEM):
    """Up to the open turn's header, the last part of which belongs to the run of what follows."""
    _, start, end = QWEN_IDS.values()
    turns = (start, f"system\n{system}", end, "\n", start, f"user\n{question}", end)
    return (*turns, "\n", start)


def qwen_answer(vocabulary: TiktokenVocabulary, question: str) -> tuple[int, ...]:
    """Ids up to the beginning of the answer."""
    return vocabulary.ids(*qwen_prompt(question), "assistant\n")


def llama(shared) -> TiktokenVocabulary:
    return TiktokenVocabulary(shared("real/tokenizers/llama3.tiktoken"), prm_families.LLAMA_SPLIT)


def pieces(shared) -> sentencepiece.SentencePieceProcessor:
    file = shared("real/tokenizers/llama2/tokenizer.model")
    return sentencepiece.SentencePieceProcessor(model_file=str(file))
