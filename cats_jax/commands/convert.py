"""`cats-jax convert`: a checkpoint of .bin files, or a GGUF file, as safetensors."""

from __future__ import annotations

import pathlib
from typing import Literal

import tyro

from ..errors import BadInputError


def convert(
    path: tyro.conf.Positional[pathlib.Path],
    out: tyro.conf.Positional[pathlib.Path],
    *,
    dtype: Literal["bfloat16", "float32"] | None = None,
    max_seconds: float | None = None,
) -> int:
    """Write a checkpoint of pickled .bin files, or a GGUF, as a model folder with safetensors.

    .bin files are read in a process of their own, with limits on time and memory, and nothing in
    them is run. Configuration and tokenizer files are copied. A GGUF's weights are dequantised, and
    its configuration and tokenizer converted. conversion.json records the sources' SHA-256.

    Args:
        path: model folder with pytorch_model.bin, or shards of it; or a GGUF of architecture llama,
            qwen2, qwen3 or gemma3, or the first part of one, as in x-00001-of-00003.gguf.
        out: folder to make.
        dtype: of a GGUF's weights; default: bfloat16. Weights of .bin files keep theirs.
        max_seconds: time after which the process that reads .bin files is killed; default: by the
            files' size.
    """
    from rich.markup import escape

    from ..models.gguf.convert import convert_gguf
    from ..models.prm.convert import RECORD, convert_checkpoint
    from .progress import ProgressBar
    from .terminal import make_console

    is_gguf = path.suffix.lower() == ".gguf"
    if is_gguf and max_seconds is not None:
        raise BadInputError("--max-seconds is for .bin files: leave it out for a GGUF")
    if not is_gguf and dtype is not None:
        raise BadInputError("--dtype is for GGUF files: weights of .bin files keep their dtype")
    with ProgressBar(make_console(stderr=True), f"converting {path.name}", 1.0) as bar:
        if is_gguf:
            done = convert_gguf(path, out, dtype=dtype or "bfloat16", progress=bar.show)
        else:
            done = convert_checkpoint(path, out, max_seconds=max_seconds, progress=bar.show)
    left_out = "".join(f"; {name} left out, tied to {to}" for name, to in done.left_out.items())
    make_console().print(
        escape(
            f"{out}: {done.num_tensors} tensors, {done.num_bytes / 1e9:.3f} GB in "
            f"{len(done.files)} file{'s' * (len(done.files) > 1)}{left_out}; sources in {RECORD}"
        ),
        soft_wrap=True,
    )
    return 0
