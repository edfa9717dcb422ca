"""Reads .bin files and writes safetensors, in the process that `convert.py` starts for it.

Called as `python -m cats_jax.models.prm.convert_worker SOURCE FOLDER NAME...`; prints one JSON
object, with the key "error" if it failed. The files are mapped into memory, not read into it.
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import re
import sys
import threading
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

import cats_jax

from ..shards import divided, read_digest, write_index

# What torch and Python need beside the mapped files, and a copy of a tensor that has gaps.
_SPARE_BYTES = 4_000_000_000

_HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"


class Refusal(Exception):
    """Why the files can't be converted, in one line."""


def main() -> None:
    """Converts the files and prints the report."""
    end_with_owner(0)
    source, folder, *names = sys.argv[1:]
    try:
        report = convert(pathlib.Path(source), pathlib.Path(folder), names)
    except Refusal as error:
        report = {"error": str(error)}
    except MemoryError:
        report = {"error": "it asks for far more memory than its files hold"}
    except OSError as error:
        report = {"error": error.strerror or type(error).__name__}
    print(json.dumps(report))


def end_with_owner(descriptor: int) -> None:
    """Ends this process when the other end of a pipe is closed, as it is if its owner is killed."""

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def convert(source: pathlib.Path, folder: pathlib.Path, names: list[str]) -> dict[str, Any]:
    """Writes the safetensors files, and an index if there are several.

    Raises:
        Refusal: a file is broken, asks for code to be run, or holds anything but tensors.
    """
    size = sum((source / name).stat().st_size for name in names)
    _limit_memory(2 * size + _SPARE_BYTES)
    tensors = _read(source, names)
    left_out = _tied(tensors, source / "config.json")
    for name in left_out:
        del tensors[name]
    num_bytes = sum(tensor.nbytes for tensor in tensors.values())
    if num_bytes > 2 * size:
        raise Refusal(f"its tensors claim {num_bytes} bytes, its files have {size}")
    files = _write(folder, tensors)
    return {
        "num_tensors": len(tensors),
        "num_bytes": num_bytes,
        "files": files,
        "left_out": left_out,
        "source": {name: read_digest(source / name) for name in names},
        "torch": torch.__version__,
        "cats_jax": cats_jax.__version__,
    }


def _limit_memory(more: int) -> None:
    """Limits the growth of the process's address space to `more` bytes, on Linux only."""
    try:
        import resource

        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        pass  # no Linux: the limit on time and the check of sizes remain


def _read(source: pathlib.Path, names: list[str]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name in names:
        for key, value in _load(source / name).items():
            if not isinstance(key, str) or not isinstance(value, Tensor):
                raise Refusal(f"{name} holds {key!r}, which is not a named tensor")
            if value.layout != torch.strided or value.is_quantized or value.is_complex():
                raise Refusal(f"{name} holds {key!r}, which is not a plain tensor of numbers")
            if key in found:
                raise Refusal(f"{name} holds {key!r}, which another file has already")
            found[key] = value.detach()
    if not found:
        raise Refusal("it holds no tensor")
    return found


def _load(file: pathlib.Path) -> dict[Any, Any]:
    try:
        content = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        raise Refusal(f"{file.name} {_what_it_asked_for(str(error))}") from error
    except (RuntimeError, OSError, EOFError, LookupError, ValueError, TypeError) as error:
        if "memory" in str(error).lower():
            raise MemoryError from error
        if "mmap can only be used" in str(error):
            raise Refusal(
                f"{file.name} is not a zip file, as torch has written them since 1.6: save it "
                "again with a newer torch, if you trust it"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Refusal(f"{file.name} is not a complete checkpoint file ({reason})") from error
    if not isinstance(content, dict):
        raise Refusal(f"{file.name} holds a {type(content).__name__}, not tensors by name")
    return content


def _what_it_asked_for(message: str) -> str:
    """The end of an error message, which names the function or class that a pickle would call."""
    wanted = re.search(r"GLOBAL ([\w.]+)", message)
    if wanted is None:
        return "can't be read as weights alone; nothing in it was run"
    return (
        f"asks for {wanted[1]!r} while it is read, which no weights need: nothing was run; do not "
        "trust this file"
    )


def _tied(tensors: dict[str, Tensor], config: pathlib.Path) -> dict[str, str]:
    """{head: embedding} if the configuration ties them and both are stored and equal; else {}."""
    try:
        tie = json.loads(config.read_text(encoding="utf-8")).get("tie_word_embeddings", False)
    except (OSError, ValueError, AttributeError) as error:
        raise Refusal(f"config.json can't be read ({error})") from error
    head, embedding = tensors.get(_HEAD), tensors.get(_EMBEDDING)
    if not tie or head is None or embedding is None:
        return {}
    same = head.shape == embedding.shape and torch.equal(head, embedding)
    return {_HEAD: _EMBEDDING} if same else {}


def _write(folder: pathlib.Path, tensors: dict[str, Tensor]) -> list[str]:
    files = divided({name: tensor.nbytes for name, tensor in tensors.items()})
    for file, names in files.items():
        shard = _separate({name: tensors[name] for name in names})
        save_file(shard, folder / file, metadata={"format": "pt"})
    write_index(folder, files, sum(tensor.nbytes for tensor in tensors.values()))
    return list(files)


def _separate(shard: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as contiguous ones that share no memory, copied only where necessary."""
    owners: set[int] = set()
    found = {}
    for name, stored in shard.items():
        tensor = stored
        storage = tensor.untyped_storage().data_ptr()
        fits = tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()
        if not fits or storage in owners:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        found[name] = tensor
        owners.add(storage)
    return found


if __name__ == "__main__":
    main()
