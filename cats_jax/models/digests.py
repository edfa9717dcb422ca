"""SHA-256 of the files that identify a model."""

from __future__ import annotations

import functools
import hashlib
import pathlib

from .folders import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_folder
from .shards import read_digest

_LARGE = 1 << 24
"""Bytes from which on a file's digest is remembered."""

_TEXT_FILES = (
    "tokenizer*",
    "chat_template*",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
)


def text_digests(folder: pathlib.Path) -> dict[str, str]:
    """Digests of the files of tokenizer, chat template and sampling defaults, by name."""
    found = {file for name in _TEXT_FILES for file in folder.glob(name) if file.is_file()}
    return {file.name: file_digest(file) for file in sorted(found)}


def weight_digests(folder: pathlib.Path) -> dict[str, str]:
    """Digests of a model folder's config.json and of each file of weights, by name."""
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    return {file.name: file_digest(file) for file in files}


def adapter_digests(path: str | pathlib.Path) -> dict[str, str]:
    """Digests of the two files of an adapter, by name.

    Raises:
        MissingModelError: see `adapter_folder`.
    """
    folder = adapter_folder(path)
    return {name: file_digest(folder / name) for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}


def folder_digest(folder: pathlib.Path) -> dict[str, str]:
    """A folder's name, and the digest of all its files with their paths."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(folder)).encode() + b"\0")
        digest.update(bytes.fromhex(file_digest(file)))
    return {"name": folder.name, "sha256": digest.hexdigest()}


def file_digest(path: pathlib.Path) -> str:
    """Digest of a file. A large file takes seconds, and is read again only if it has changed."""
    status = path.stat()
    if status.st_size < _LARGE:  # it may change twice within one tick of the file system's clock
        return read_digest(path)
    return _large_digest(path.resolve(), status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=1024)
def _large_digest(path: pathlib.Path, *state: int) -> str:
    return read_digest(path)
