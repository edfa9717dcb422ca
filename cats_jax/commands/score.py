"""`cats-jax score`: a process reward model's score for every step of a file of solutions."""

from __future__ import annotations

import os
import pathlib

from ..errors import BadInputError


def score(
    *,
    prm: str,
    input: pathlib.Path,
    output: pathlib.Path,
    family: str = "auto",
    backend: str = "hf",
    device: str = "cpu",
    dtype: str = "float32",
    batch_tokens: int = 1 << 15,
    num_threads: int = 1,
    gpu_memory_utilization: float = 0.45,
) -> int:
    """Score rows {"question", "steps": [...]}: the same rows, with "scores", one for each step.

    A row that has no valid scores (a blank step, no step, more tokens than the model has
    positions) says why in "error". The output appears whole or not at all. The exit code is 1 if
    no row could be scored.

    Args:
        prm: model folder with safetensors weights, or a PRM of the embedded world.
        input: JSONL file.
        output: JSONL file, replaced if it exists.
        family: how the PRM reads a solution: the name of a format, a .yaml file, or auto, which
            goes by the model's configuration, head and tokenizer.
        backend: hf (transformers), vllm (an engine started here), or the address of a server of
            vLLM that has this PRM.
        device: cpu, cuda or cuda:N; of the back end hf.
        dtype: float32 or bfloat16; a server has its own.
        batch_tokens: rows are scored together up to so many tokens, which the back end hf holds.
        num_threads: of torch; of the back end hf.
        gpu_memory_utilization: share of a GPU's memory for the engine of the back end vllm.
    """
    from ..models.prm.family import choose_format
    from ..models.source import ModelFolders, model_folder, silence_transformers
    from ..scoring.score_rows import count_rows, score_file
    from ..specs.recipe import PrmSpec
    from .progress import ProgressBar
    from .terminal import make_console

    if batch_tokens < 1:
        raise BadInputError(f"--batch-tokens={batch_tokens}: must be at least 1")
    spec = PrmSpec(
        prm,
        backend=backend,
        format=family,
        device=device,
        dtype=dtype,
        batch_tokens=batch_tokens,
        num_threads=num_threads,
        gpu_memory_utilization=gpu_memory_utilization,
    )
    folder = model_folder(spec)
    _check_output(output)
    rows = count_rows(input)
    silence_transformers()
    prm_format = choose_format(family, folder)
    scorer = ModelFolders().prm(spec)
    with ProgressBar(make_console(stderr=True), f"scoring with {scorer.name}", rows) as bar:
        tally = score_file(input, output, scorer, held_tokens=batch_tokens, on_rows=bar.show)
    print(
        f"{tally.rows} rows, {tally.errors} without scores, {tally.tokens} tokens computed, "
        f"format {prm_format.name}: {output}"
    )
    return int(tally.errors == tally.rows)


def _check_output(path: pathlib.Path) -> None:
    """Raise BadInputError if a file can't be made there."""
    if path.is_dir():
        raise BadInputError(f"--output {str(path)!r} is a folder: name a file")
    if not path.parent.is_dir():
        raise BadInputError(f"--output: folder {str(path.parent)!r} does not exist: make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadInputError(f"--output {str(path)!r} can't be written: choose another folder")
