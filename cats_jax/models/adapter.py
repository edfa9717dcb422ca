"""A LoRA adapter in PEFT's layout, merged into the weights of its base: W + scale * B A.

Names and shapes are checked by headers alone, before a weight is read. The package peft is not
needed.
"""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ..errors import BadInputError
from ..storage.reading import read_json, reading
from .folders import ADAPTER_CONFIG as CONFIG
from .folders import ADAPTER_WEIGHTS as WEIGHTS
from .folders import adapter_folder
from .local_files import read_config, ties_embeddings
from .weights import StoredTensor, file_tensors, stored_tensors

_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")

# Numbers of 8 bits whose only scale is the adapter's lora_alpha.
_FLOATS_OF_8_BITS = ("F8_E4M3", "F8_E5M2")

# Keys of adapters that change more than W + scale * B A, or another W.
_REFUSED = (
    "modules_to_save", "use_dora", "lora_bias", "target_parameters", "trainable_token_indices",
    "layer_replication", "use_qalora", "alora_invocation_tokens",
)  # fmt: skip

# Other values (PiSSA, OLoRA, LoftQ, CorDA) also change the base's weights.
_PLAIN_BEGINNINGS = (None, True, False, "gaussian", "orthogonal", "eva")

# Regular expressions without groups and with few repetitions, so that a search is short.
_PATTERN = re.compile(r"[\w.\\^$|\[\]+*-]{1,200}")
_MOST_REPETITIONS = 3


@dataclass(frozen=True)
class _Part:
    a: StoredTensor
    b: StoredTensor
    scale: float


class Adapter:
    """An adapter that fits its base.

    Args:
        folder: folder with adapter_config.json and adapter_model.safetensors.
        base: model folder of the base; only its headers are read.

    Raises:
        MissingModelError: the folder is not there, or holds no adapter.
        BadInputError: the adapter can't be merged, or its tensors do not fit the base's.
    """

    def __init__(self, folder: str | pathlib.Path, base: pathlib.Path):
        self.folder = adapter_folder(folder)
        self._config = _read_config(self.folder)
        self._transposed = bool(self._config.get("fan_in_fan_out"))
        # A backbone that is loaded without its head lacks the first part of its tensors' names.
        self._stored = {_bare(name): tensor for name, tensor in stored_tensors(base).items()}
        self._parts = self._read_parts()
        if "lm_head.weight" in self._parts and ties_embeddings(read_config(base)):
            raise self._refuse("it changes lm_head, which the base ties to its embeddings")

    def changes(self, name: str) -> bool:
        """Whether the adapter changes the base's weight of this name."""
        return _bare(name) in self._parts

    def merged(self, name: str, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """A weight with its change, summed in float32.

        Raises:
            BadInputError: the result has NaN or infinity.
        """
        part = self._parts[_bare(name)]
        with safe_open(self.folder / WEIGHTS, framework="pt") as file:
            a, b = (file.get_tensor(tensor.name).float() for tensor in (part.a, part.b))
        change = part.scale * (b @ a)
        result = (weight.float() + (change.T if self._transposed else change)).to(dtype)
        if not bool(result.isfinite().all()):
            raise self._refuse(f"{name!r} holds NaN or infinity when {part.a.name!r} is merged")
        return result

    def merged_stored(self, tensor: StoredTensor) -> Tensor:
        """A tensor of the base, read from its file, with its change, in float32; see `merged`."""
        with safe_open(tensor.file, framework="pt") as file:
            return self.merged(tensor.name, file.get_tensor(tensor.name), torch.float32)

    @torch.no_grad()
    def merge_into(self, model: torch.nn.Module) -> None:
        """Change the weights of a loaded model in place.

        Raises:
            BadInputError: see `merged`; or the loaded model does not have the weights of its files.
        """
        left = dict(self._parts)
        for name, weight in model.named_parameters():
            if left.pop(_bare(name), None) is not None:
                if weight.shape != self._stored[_bare(name)].shape:
                    raise self._refuse(f"transformers changes {name!r} as it reads it", _BY_HAND)
                weight.copy_(self.merged(name, weight, weight.dtype))
        left.pop("lm_head.weight", None)  # of a backbone, whose scores come from another head
        if left:
            raise self._refuse(f"transformers has no {min(left)!r} in the model", _BY_HAND)

    def _read_parts(self) -> dict[str, _Part]:
        halves: dict[str, dict[str, StoredTensor]] = {}
        for tensor in file_tensors(self.folder / WEIGHTS):
            found = _NAME.fullmatch(tensor.name)
            is_number = tensor.is_float or tensor.dtype in _FLOATS_OF_8_BITS
            if found is None or len(tensor.shape) != 2 or not is_number:
                raise self._refuse(
                    f"tensor {tensor.name!r} {list(tensor.shape)} is not a lora_A or lora_B of a "
                    "linear layer"
                )
            halves.setdefault(found[1], {})[found[2]] = tensor
        if not halves:
            raise self._refuse("it holds no tensor")
        return {_bare(f"{name}.weight"): self._part(name, each) for name, each in halves.items()}

    def _part(self, module: str, halves: Mapping[str, StoredTensor]) -> _Part:
        if len(halves) == 1:
            raise self._refuse(f"it holds one of lora_A and lora_B of {module!r}", "copy it anew")
        base = self._stored.get(_bare(f"{module}.weight"))
        if base is None:
            raise self._misfit(f"it changes {module!r}, which the base does not store")
        if not base.is_float:
            raise self._misfit(f"{base.name!r} of the base is {base.dtype}, which is quantised")
        a, b = halves["A"], halves["B"]
        rank = self._count("r", "rank_pattern", module)
        if a.shape[0] != rank or b.shape[1] != rank:
            raise self._refuse(
                f"{a.name!r} has shape {a.shape} and its lora_B {b.shape}, but {CONFIG} gives it "
                f"rank {rank}",
                "take both files from one release",
            )
        shape = (b.shape[0], a.shape[1])
        if base.shape != (shape[::-1] if self._transposed else shape):
            raise self._misfit(
                f"{module!r} has {shape[1]} inputs and {shape[0]} outputs in it, and the shape "
                f"{base.shape} in the base"
            )
        alpha = self._count("lora_alpha", "alpha_pattern", module)
        return _Part(a, b, alpha / (math.sqrt(rank) if self._config.get("use_rslora") else rank))

    def _count(self, key: str, patterns: str, module: str) -> float:
        others = (self._config.get(patterns) or {}).items()
        found = (value for name, value in others if re.fullmatch(rf"(?:.*\.)?(?:{name})", module))
        return next(found, self._config.get(key, 8))

    def _misfit(self, reason: str) -> BadInputError:
        made_for = self._config.get("base_model_name_or_path")
        hint = f" (it names {str(made_for)!r})" if made_for else ""
        return self._refuse(reason, f"give the base that it was trained on{hint}")

    def _refuse(self, reason: str, way_out: str = "") -> BadInputError:
        return _refusal(self.folder, reason, way_out or _BY_HAND)


_BY_HAND = "merge it by the package that made it, and give the folder of the result as path"


def _read_config(folder: pathlib.Path) -> dict[str, Any]:
    where = repr(str(folder / CONFIG))
    with reading(where, "download it again", "can't be read as an adapter's"):
        config = read_json(folder / CONFIG)
        if not isinstance(config, dict):
            raise ValueError("it must be a mapping")
        ranks, alphas = (config.get(name) or {} for name in ("rank_pattern", "alpha_pattern"))
        for pattern in (*ranks, *alphas):
            if not _PATTERN.fullmatch(pattern) or sum(map(pattern.count, "*+")) > _MOST_REPETITIONS:
                raise ValueError(f"the pattern {pattern!r} is more than names of layers")
            re.compile(pattern)
        for value in (config.get("r", 8), *ranks.values()):
            if type(value) is not int or value < 1:
                raise ValueError("a rank must be a whole number of at least 1")
        for value in (config.get("lora_alpha", 8), *alphas.values()):
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise ValueError("lora_alpha must be a number above 0")
    if config.get("peft_type") != "LORA":
        raise _refusal(folder, f"its peft_type is {config.get('peft_type')!r}, not 'LORA'")
    if config.get("bias", "none") != "none":
        raise _refusal(folder, f"it has bias {config['bias']!r}")
    if config.get("init_lora_weights") not in _PLAIN_BEGINNINGS:
        raise _refusal(folder, f"it has init_lora_weights {config['init_lora_weights']!r}")
    for name in _REFUSED:
        if config.get(name):
            raise _refusal(folder, f"it has {name}")
    return config


def _refusal(folder: pathlib.Path, reason: str, way_out: str = _BY_HAND) -> BadInputError:
    return BadInputError(f"adapter {str(folder)!r} can't be merged: {reason}: {way_out}")


def _bare(name: str) -> str:
    return name.removeprefix("model.").removeprefix("transformer.")
