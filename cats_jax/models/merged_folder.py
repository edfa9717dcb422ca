"""Copies of model folders with an adapter merged, for engines that read a folder by themselves.

A copy's place in the user's cache follows from the dtype and the content of base and adapter,
tokenizer and chat template included, so it is written once for all engines. It is moved there when
it is complete.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import BadInputError
from ..storage.reading import read_json
from .adapter import Adapter
from .digests import adapter_digests, text_digests, weight_digests
from .folders import ADAPTER_CONFIG
from .hub import folder_name
from .weights import StoredTensor, stored_tensors, weight_files

_RECORD = "merged.json"
"""File of a copy that names its sources and the sizes of its weights; other rules need another."""

_TEXTS = (".json", ".txt", ".model", ".jinja", ".tiktoken")
_SPARE_BYTES = 1 << 26


def merged_folder(folder: pathlib.Path, adapter: str | pathlib.Path, dtype: str) -> pathlib.Path:
    """The copy of a model folder with an adapter merged; it is written if it is not there.

    Args:
        folder, adapter: folders of the base and of the adapter.
        dtype: dtype of the copy's weights, which the engine computes with.

    Raises:
        BadInputError: the adapter does not fit, or the copy can't be written.
    """
    merging = Adapter(adapter, folder)
    name = f"{folder_name(folder.resolve())}+{folder_name(merging.folder)}"
    base = weight_digests(folder) | text_digests(folder)
    sources = {"base": base, "adapter": adapter_digests(adapter), "dtype": dtype}
    key = hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()[:32]
    target = _cache() / key / name  # engines know a model by its folder's name
    if _is_whole(target):
        return target
    tensors = stored_tensors(folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_room(target.parent, tensors.values(), dtype)
        work = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
        try:
            _write(folder, work, merging, getattr(torch, dtype))
            sizes = {file.name: file.stat().st_size for file in work.glob("*.safetensors")}
            (work / _RECORD).write_text(json.dumps({**sources, "sizes": sizes}, indent=1) + "\n")
            if not _is_whole(target):  # otherwise another process was faster
                shutil.rmtree(target, ignore_errors=True)
                work.replace(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        if not _is_whole(target):
            raise _unwritable(target, str(error)) from error
    return target


def _cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "cats-jax" / "merged"


def _is_whole(folder: pathlib.Path) -> bool:
    """Whether all weights of a copy are there with the sizes that were recorded."""
    try:
        sizes = read_json(folder / _RECORD)["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _check_room(folder: pathlib.Path, tensors: Iterable[StoredTensor], dtype: str) -> None:
    size = getattr(torch, dtype).itemsize
    needed = _SPARE_BYTES + sum(
        size * math.prod(tensor.shape) if tensor.is_float else tensor.stop - tensor.start
        for tensor in tensors
    )
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _unwritable(
            folder, f"it needs {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"
        )


def _write(folder: pathlib.Path, work: pathlib.Path, adapter: Adapter, dtype: torch.dtype) -> None:
    """Writes all files of the copy; one file of weights at a time is in memory."""
    for source in weight_files(folder):
        with safe_open(source, framework="pt") as file:
            found = {}
            for name in file.keys():  # noqa: SIM118 - the file is not a mapping
                values = file.get_tensor(name)
                if adapter.changes(name):
                    values = adapter.merged(name, values, dtype)
                elif values.is_floating_point():
                    values = values.to(dtype)
                found[name] = values.contiguous()
        save_file(found, work / source.name, metadata={"format": "pt"})
        with (work / source.name).open("rb") as written:
            os.fsync(written.fileno())
    for text in folder.iterdir():
        if text.suffix in _TEXTS and text.is_file() and text.name not in (ADAPTER_CONFIG, _RECORD):
            shutil.copyfile(text, work / text.name)


def _unwritable(folder: pathlib.Path, reason: str) -> BadInputError:
    return BadInputError(
        f"the merged copy {str(folder)!r} for vLLM can't be written: {reason}: name another cache "
        "by XDG_CACHE_HOME, or use backend hf, which merges in memory"
    )
