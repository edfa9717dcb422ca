"""Hidden states of a frozen language model at the ends of labelled steps: inputs of a PRM head.

    python -m studies.real.step_states MODEL STATES --steps STEPS.jsonl ... --format FORMAT.yaml

STEPS.jsonl is a file of labelled steps as `cats-jax quality` reads them. FORMAT.yaml says how the
PRM reads a solution. The folder STATES gets a file for each block of solutions. An interrupted run
resumes: only blocks that are missing, or that are of other solutions, another model or another
format, are computed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import AutoModel

from cats_jax.models.digests import weight_digests
from cats_jax.models.huggingface.tokenizer import load_tokenizer
from cats_jax.models.prm.encoder import StepEncoder
from cats_jax.models.prm.family import load_format
from cats_jax.scoring.labelled import LabelledSteps, read_labelled

BLOCK = 16
"""Solutions in a file and in a forward pass, of similar lengths: all are sorted by length."""

DIGEST, SOURCE = "solutions", "model and format"
"""Keys of digests in the metadata of a block's file: of its solutions, and see `source_digest`."""

_NO_READ_OUT = {"read_out": {"positive": "+", "negative": "-"}}  # a head replaces it

Backbone = Callable[..., Any]


def make_encoder(prm_format: pathlib.Path, tokenizer: Any) -> StepEncoder:
    """The ids of solutions in a PRM's format, whose read-out does not matter."""
    return StepEncoder(load_format(prm_format, _NO_READ_OUT), tokenizer)


def step_states(
    backbone: Backbone, encoder: StepEncoder, solutions: Sequence[LabelledSteps]
) -> dict[str, np.ndarray]:
    """The states of some solutions, computed in one forward pass.

    Returns:
        `states` f16[S, hidden], the last hidden state behind the final norm where the score of each
        labelled step is read; `labels` i8[S]; `group` i64[S], a number of the step's question;
        `path` i64[S], the solution's place among the given ones.
    """
    chunks = [encoder.chunks(each.question, each.steps) for each in solutions]
    ids = [list(itertools.chain.from_iterable(each)) for each in chunks]
    width = max(map(len, ids))
    padded = torch.tensor([each + [0] * (width - len(each)) for each in ids])
    mask = torch.tensor([[1] * len(each) + [0] * (width - len(each)) for each in ids])
    with torch.inference_mode():
        hidden = backbone(input_ids=padded, attention_mask=mask).last_hidden_state
    states, labels, groups, paths = [], [], [], []
    for i, (row, solution, parts) in enumerate(zip(hidden, solutions, chunks, strict=True)):
        ends = np.cumsum([len(part) for part in parts])[-len(solution.steps) :] - 1
        kept = [place for place, label in enumerate(solution.labels) if label is not None]
        states.append(row[ends[kept]].half().numpy())
        labels += [solution.labels[place] for place in kept]
        groups += [question_number(solution.question)] * len(kept)
        paths += [i] * len(kept)
    return {
        "states": np.concatenate(states),
        "labels": np.array(labels, np.int8),
        "group": np.array(groups, np.int64),
        "path": np.array(paths, np.int64),
    }


def by_length(file: pathlib.Path) -> list[LabelledSteps]:
    """The solutions of a file of labelled steps, the shortest first."""
    return sorted(read_labelled([file]).paths, key=lambda each: len("".join(each.steps)))


def digest(block: Sequence[LabelledSteps]) -> str:
    """SHA-256 of a block's questions, steps and labels."""
    rows = [[each.question, list(each.steps), list(each.labels)] for each in block]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def source_digest(model: pathlib.Path, prm_format: pathlib.Path) -> str:
    """SHA-256 of what states depend on beside the solutions: a model's files, and the format."""
    parts = [weight_digests(model), prm_format.read_text(encoding="utf-8")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def digests_of(file: pathlib.Path) -> dict[str, str]:
    """The digests `DIGEST` and `SOURCE` of a block's file; empty if there is no file."""
    if not file.is_file():
        return {}
    with safe_open(file, "numpy") as opened:
        return opened.metadata() or {}


def question_number(text: str) -> int:
    """A number that follows from the text of a question."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def main() -> None:
    """Compute the blocks that are missing."""
    parser = argparse.ArgumentParser(description="Hidden states at the ends of labelled steps.")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("states", type=pathlib.Path)
    parser.add_argument("--steps", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--format", type=pathlib.Path, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.model)
    encoder = make_encoder(options.format, tokenizer)
    backbone = functools.cache(
        lambda: AutoModel.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()
    )
    options.states.mkdir(parents=True, exist_ok=True)
    source = source_digest(options.model, options.format)
    for file in options.steps:
        solutions = by_length(file)
        starts = range(0, len(solutions), BLOCK)
        for start in starts:
            block = solutions[start : start + BLOCK]
            target = options.states / f"{file.stem}-{start:06d}.safetensors"
            wanted = {DIGEST: digest(block), SOURCE: source}
            if digests_of(target) == wanted:
                continue
            arrays = step_states(backbone(), encoder, block)
            arrays["path"] += start
            unfinished = target.with_suffix(".part")
            save_file(arrays, unfinished, wanted)
            unfinished.replace(target)
            print(f"{target.name}: {start // BLOCK + 1} of {len(starts)} blocks", flush=True)


if __name__ == "__main__":
    main()
