"""Makes LoRA adapters smaller: by a lower rank, by 8 bits a number, or by both.

    python studies/real/shrink_adapters.py FULL OUT                  # 8 bits, the rank stays
    python studies/real/shrink_adapters.py FULL OUT --rank 16 --dtype bfloat16

FULL and OUT are folders with `policy` and `prm` in PEFT's layout. The change of a weight is
scale * B A. For each adapter the script prints the error in the Frobenius norm, relative to the
change, and relative to the merged weights when `--base` names the base.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cats_jax.models.folders import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from cats_jax.models.weights import stored_tensors

ADAPTERS = ("policy", "prm")

_PREFIX = "base_model.model."
_DTYPES = {"bfloat16": torch.bfloat16, "float8": torch.float8_e4m3fn}

_LARGEST = 16.0
"""Bound of a factor's values in 8 bits.

float8_e4m3fn has 4 significant bits from 2^-6 to 448, so values of 1/1000 of the largest keep them;
a product of two such factors of rank 64 still fits into float16.
"""


def cut(a: Tensor, b: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Factors of the best approximation of B A by a matrix of lower rank.

    B = Q_b R_b and A^T = Q_a R_a, so that B A has the singular values of the small R_b R_a^T.

    Args:
        a: f32[R, inputs].
        b: f32[outputs, R].
        rank: rank of the approximation, from 1 to R.

    Returns:
        A, f32[rank, inputs], and B, f32[outputs, rank], each with the roots of the singular values.
    """
    if not 1 <= rank <= a.shape[0]:
        raise ValueError(f"rank {rank}: must be from 1 to {a.shape[0]}")
    left_basis, left = torch.linalg.qr(b)
    right_basis, right = torch.linalg.qr(a.T)
    u, values, vh = torch.linalg.svd(left @ right.T)
    roots = values[:rank].sqrt()
    return (vh[:rank] @ right_basis.T) * roots[:, None], (left_basis @ u[:, :rank]) * roots


def at_rank(
    lora: dict[str, Tensor], config: dict[str, Any], rank: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An adapter of a lower rank, f32, and its configuration."""
    smaller = {}
    for name in _first_halves(lora):
        other = _second_half(name)
        smaller[name], smaller[other] = cut(lora[name].float(), lora[other].float(), rank)
    return smaller, {**config, "r": rank, "lora_alpha": _scale(config) * rank}


def in_8_bits(
    lora: dict[str, Tensor], config: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An adapter in 8 bits a number, and its configuration.

    The factors A and the factors B are each multiplied by a power of two; `lora_alpha` divides by
    both.
    """
    powers = {}
    for half in ("lora_A", "lora_B"):
        largest = max(float(t.abs().max()) for name, t in lora.items() if half in name)
        powers[half] = 2.0 ** math.floor(math.log2(_LARGEST / largest))
    smaller = {
        name: (t.float() * powers["lora_A" if "lora_A" in name else "lora_B"]).to(_DTYPES["float8"])
        for name, t in lora.items()
    }
    alpha = config["lora_alpha"] / (powers["lora_A"] * powers["lora_B"])
    return smaller, {**config, "lora_alpha": alpha}


def changes(lora: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """The change of each weight by its name in the base, f32."""
    return {
        name.removeprefix(_PREFIX).replace("lora_A.weight", "weight"): _scale(config)
        * (lora[_second_half(name)].float() @ lora[name].float())
        for name in _first_halves(lora)
    }


def relative_errors(full: dict[str, Tensor], other: dict[str, Tensor]) -> tuple[float, float]:
    """Errors in the Frobenius norm: of all tensors together, and of the worst one."""
    squares = [
        ((other[name] - tensor).square().sum().item(), tensor.square().sum().item())
        for name, tensor in full.items()
    ]
    total = math.sqrt(sum(error for error, _ in squares) / sum(size for _, size in squares))
    return total, max(math.sqrt(error / size) for error, size in squares)


def _first_halves(lora: dict[str, Tensor]) -> list[str]:
    return [name for name in lora if name.endswith("lora_A.weight")]


def _second_half(name: str) -> str:
    return name.replace("lora_A", "lora_B")


def _scale(config: dict[str, Any]) -> float:
    return config["lora_alpha"] / config["r"]


def _merged(base: pathlib.Path, change: dict[str, Tensor]) -> dict[str, Tensor]:
    stored = stored_tensors(base)
    tensors: dict[str, Tensor] = {}
    for file in {stored[name].file for name in change}:
        tensors |= load_file(file)
    return {name: tensors[name].float() + each for name, each in change.items()}


def main() -> None:
    """Write both adapters and print their sizes and errors."""
    parser = argparse.ArgumentParser(description="Make LoRA adapters smaller.")
    parser.add_argument("full", type=pathlib.Path, help="folder with the adapters policy and prm")
    parser.add_argument("out", type=pathlib.Path, help="folder to write them to")
    parser.add_argument("--rank", type=int, help="default: that of the adapters")
    parser.add_argument("--dtype", choices=list(_DTYPES), default="float8")
    parser.add_argument("--base", type=pathlib.Path, help="model folder, for the merged weights")
    options = parser.parse_args()
    for name in ADAPTERS:
        source = options.full / name
        config = json.loads((source / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        lora = load_file(source / ADAPTER_WEIGHTS)
        wanted = changes(lora, config)
        if options.rank is not None:
            lora, config = at_rank(lora, config, options.rank)
        if options.dtype == "float8":
            lora, config = in_8_bits(lora, config)
        lora = {each: t.to(_DTYPES[options.dtype]).contiguous() for each, t in lora.items()}
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / ADAPTER_WEIGHTS
        save_file(lora, file, metadata={"format": "pt"})
        file.chmod(0o644)
        text = json.dumps(config, indent=1) + "\n"
        (folder / ADAPTER_CONFIG).write_text(text, encoding="utf-8")
        reached = changes(lora, config)
        parts = [("change", wanted, reached)]
        if options.base is not None:
            exact, other = (_merged(options.base, each) for each in (wanted, reached))
            parts.append(("merged weights", exact, other))
        print(f"{name}: {file.stat().st_size / 1e6:.1f} MB")
        for label, exact, other in parts:
            total, worst = relative_errors(exact, other)
            print(f"  error of the {label}: {total:.5f} in all, {worst:.5f} at worst")


if __name__ == "__main__":
    main()
