"""Magnitude pruning of a language model: zero the smallest weights of each linear layer.

    python -m studies.real.prune MODEL PRUNED --sparsity .3

Of each matrix in the decoder's layers, the share `--sparsity` of the entries with the smallest
absolute values becomes zero (Han et al. 2015, arXiv:1506.02626, without training afterwards).
Embeddings, norms and biases stay. PRUNED is a model folder like MODEL.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file


def pruned(weight: torch.Tensor, sparsity: float) -> torch.Tensor:
    """The matrix with its smallest entries set to zero; ties may be pruned beyond the share."""
    count = int(sparsity * weight.numel())
    if count == 0:
        return weight
    size = weight.abs().float()
    return weight.masked_fill(size <= size.flatten().kthvalue(count).values, 0)


def is_pruned(name: str, weight: torch.Tensor) -> bool:
    """Whether a tensor is a matrix of the decoder's layers."""
    return ".layers." in name and weight.ndim == 2


def main() -> None:
    """Write the pruned model and print its sparsity."""
    parser = argparse.ArgumentParser(description="Magnitude pruning of a language model.")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("pruned", type=pathlib.Path)
    parser.add_argument("--sparsity", type=float, required=True)
    options = parser.parse_args()
    if not 0 < options.sparsity < 1:
        parser.error(f"--sparsity {options.sparsity}: must be between 0 and 1")
    unfinished = options.pruned.with_name(options.pruned.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(
        options.model, unfinished, ignore=shutil.ignore_patterns("*.safetensors", "conversion.json")
    )
    zeros = total = 0
    for file in sorted(options.model.glob("*.safetensors")):
        tensors = load_file(file)
        for name, weight in tensors.items():
            if is_pruned(name, weight):
                tensors[name] = pruned(weight, options.sparsity)
            zeros += int((tensors[name] == 0).sum())
            total += weight.numel()
        save_file(tensors, unfinished / file.name, metadata={"format": "pt"})
    facts = {"pruned_from": options.model.name, "sparsity": options.sparsity}
    (unfinished / "pruning.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    unfinished.replace(options.pruned)
    print(f"{options.pruned}: {zeros / total:.4f} of {total} parameters are zero")


if __name__ == "__main__":
    main()
