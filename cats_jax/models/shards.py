"""Files of weights that are written: how tensors are divided among them, their index and digests.

The process that converts pickles imports this module, so it imports nothing that takes long.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping

_SHARD_BYTES = 5_000_000_000
"""The largest size of one file, as transformers has it."""


def divided(sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """Names of the files for tensors of some bytes, one or more, each with its tensors in order."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, num_bytes in sizes.items():
        if shards[-1] and size + num_bytes > _SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += num_bytes
    if len(shards) == 1:
        return {"model.safetensors": shards[0]}
    count = len(shards)
    return {f"model-{i:05d}-of-{count:05d}.safetensors": each for i, each in enumerate(shards, 1)}


def write_index(folder: pathlib.Path, files: Mapping[str, Iterable[str]], num_bytes: int) -> None:
    """Writes the index of the files of `divided` into a folder, if there are several."""
    if len(files) > 1:
        places = {name: file for file, names in files.items() for name in names}
        index = {"metadata": {"total_size": num_bytes}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def read_digest(path: pathlib.Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
