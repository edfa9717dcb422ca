"""LoRA adapters with random weights, in PEFT's layout, and what they stand for."""

import json
import math
import pathlib
from typing import Any

import torch
from safetensors.torch import load_file, save_file

MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj")


def save_adapter(
    path: pathlib.Path,
    base: pathlib.Path,
    *,
    rank: int = 4,
    ranks: dict[str, int] | None = None,
    seed: int = 0,
    **changes: Any,
) -> pathlib.Path:
    """Writes an adapter for some layers of a base.

    Args:
        path: folder to write.
        base: model folder.
        rank: rank of the layers.
        ranks: other ranks, by the ends of names.
        seed: seed of the weights.
        changes: to the configuration.
    """
    path.mkdir()
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, weight in load_file(base / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if module.endswith(MODULES):
            own = next((r for end, r in (ranks or {}).items() if module.endswith(end)), rank)
            outputs, inputs = weight.shape
            for half, shape in (("A", (own, inputs)), ("B", (outputs, own))):
                key = f"base_model.model.{module}.lora_{half}.weight"
                tensors[key] = torch.randn(shape, generator=generator) / 8
    save_file(tensors, path / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "someone/base",
        "r": rank,
        "lora_alpha": 6,
        "bias": "none",
        "target_modules": [name.rpartition(".")[2] for name in MODULES],
        **changes,
    }
    (path / "adapter_config.json").write_text(json.dumps(config))
    return path


def edit(path: pathlib.Path, change: Any) -> pathlib.Path:
    """The adapter, after a function has changed its tensors."""
    tensors = load_file(path / "adapter_model.safetensors")
    change(tensors)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path / "adapter_model.safetensors")
    return path


def run_beside(model: torch.nn.Module, path: pathlib.Path, scale: Any = None) -> None:
    """Adds the adapter to each layer's output, base(x) + scale * B(A(x)), without merging it.

    Args:
        model: transformers' model of the base.
        path: the adapter.
        scale: function from a module's name to its scale; default: lora_alpha / r.
    """
    tensors = load_file(path / "adapter_model.safetensors")
    config = json.loads((path / "adapter_config.json").read_text())
    plain = config["lora_alpha"] / config["r"]
    for name in tensors:
        if ".lora_A." in name:
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            a, b = tensors[name], tensors[name.replace("lora_A", "lora_B")]
            factor = plain if scale is None else scale(module)

            def add(_: Any, inputs: Any, output: Any, a: Any = a, b: Any = b, f: Any = factor):
                return output + f * (inputs[0] @ a.T @ b.T)

            model.get_submodule(module).register_forward_hook(add)


def rslora(alpha: float, rank: int) -> float:
    """The scale of rank-stabilised LoRA."""
    return alpha / math.sqrt(rank)
