"""`cats-jax convert`: a checkpoint of .bin files as safetensors."""

from __future__ import annotations

import pathlib

import tyro


def convert(
    path: tyro.conf.Positional[pathlib.Path],
    out: tyro.conf.Positional[pathlib.Path],
    *,
    max_seconds: float | None = None,
) -> int:
    """Write a checkpoint of pickled .bin files as safetensors, without running what is in them.

    The files are read in a process of their own, with limits on time and memory. Configuration and
    tokenizer files are copied; conversion.json records the sources' SHA-256.

    Args:
        path: model folder with pytorch_model.bin, or shards of it.
        out: folder to make.
        max_seconds: time after which the process is killed; default: by the files' size.
    """
    from rich.markup import escape

    from ..models.prm.convert import RECORD, convert_checkpoint
    from .progress import ProgressBar
    from .terminal import make_console

    with ProgressBar(make_console(stderr=True), f"converting {path.name}", 1.0) as bar:
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
