"""Conversion of a GGUF file to a model folder: safetensors, configuration, tokenizer.

Everything that a header can tell is checked before the first tensor is written. The weights are
dequantised a few rows at a time, so that memory does not grow with the model.
"""

from __future__ import annotations

import copy
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import cats_jax

from ...errors import BadInputError, quoted
from ...storage.reading import reading
from ..local_files import check_sizes
from ..prm.convert import RECORD, Conversion, check_absent, new_folder
from ..shards import divided, read_digest, write_index
from .config import ARCHITECTURES, model_config
from .header import GGUFModel, GGUFTensor, read_model

_CHUNK_VALUES = 1 << 23

_DTYPES = {"bfloat16": ("BF16", 2), "float32": ("F32", 4)}
"""The dtypes of results: their name in safetensors, and the bytes of a value."""

_F32, _F16, _BF16 = 0, 1, 30
_MAX_ROPE_BYTES = 1 << 18

# An adapter or an embedding model can lack a layer's tensors, but no model has fewer than these.
_LEAST_TENSORS = 9


@dataclass(frozen=True, slots=True)
class _Weight:
    """A tensor to be written: name, source, size of heads to unmix, and what is added to values."""

    name: str
    source: GGUFTensor
    head: int | None
    shift: float


def convert_gguf(
    source: str | pathlib.Path,
    target: str | pathlib.Path,
    *,
    dtype: str = "bfloat16",
    progress: Callable[[float], None] = lambda share: None,
) -> Conversion:
    """Writes the folder `target` with the model of a GGUF file.

    Args:
        source: the file, or the first part of one that gguf-split has split.
        target: a folder that does not exist yet, or an empty one.
        dtype: "bfloat16" or "float32".
        progress: called often with the share that is written, in [0, 1].

    Raises:
        BadInputError: the package gguf is missing, `source` is not a complete GGUF of a known
            architecture, `target` is not empty, or the disk has no room. `target` is untouched.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    if dtype not in _DTYPES:
        raise BadInputError(f"dtype must be one of {', '.join(_DTYPES)}, not {quoted(dtype)}")
    if not source.is_file():
        raise BadInputError(f"{str(source)!r} is not a file: give a GGUF, or the first part of one")
    check_absent(target)
    dequantize, block_sizes = _library(source)
    model = read_model(source, block_sizes)
    architecture = model.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise BadInputError(
            f"{str(source)!r} is a GGUF of architecture {quoted(architecture)}, and only those of "
            f"{', '.join(ARCHITECTURES)} are converted: download the release as safetensors"
        )
    # torch and tokenizers take seconds to import: faults of a file are reported before.
    import transformers

    from .tokenizer import special_ids, tokenizer_files

    way_out = "download another GGUF of the model, or the release as safetensors"
    with reading(repr(str(source)), way_out, "can't be converted"):
        shapes = {name: tensor.shape for name, tensor in model.tensors.items()}
        config = model_config(model.metadata, shapes, _rope_factors(model))
        config |= special_ids(model.metadata)
        # Without its version, transformers takes every tokenizer for a faulty one of Mistral.
        config |= {"dtype": dtype, "transformers_version": transformers.__version__}
        check_sizes(config, "")
        weights = _weights(model, config)
        texts = tokenizer_files(model.metadata, config["vocab_size"])
    texts["config.json"] = json.dumps(config, indent=1) + "\n"
    width = _DTYPES[dtype][1]
    num_bytes = sum(_size(weight) * width for weight in weights)
    _check_room(target, num_bytes + sum(map(len, texts.values())))
    with new_folder(target) as folder:
        files = _write(folder, weights, dtype, dequantize, lambda n: progress(n / num_bytes))
        record = {
            "format": 1,
            "source": {file.name: read_digest(file) for file in model.files},
            "dtype": dtype,
            "cats_jax": cats_jax.__version__,
            "left_out": {},
        }
        for name, text in {**texts, RECORD: json.dumps(record, indent=1) + "\n"}.items():
            (folder / name).write_text(text, encoding="utf-8")
        progress(1.0)
    return Conversion(len(weights), num_bytes, tuple(files), {})


def _library(source: pathlib.Path) -> tuple[Callable[..., np.ndarray], dict[int, tuple[int, int]]]:
    """The package's function that dequantises, and the block sizes of the types that it knows."""
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
    except ImportError as error:
        raise BadInputError(
            f"{str(source)!r} is read with the package gguf, which is not installed: "
            "`pip install gguf`, or cats-jax with the extra gguf"
        ) from error

    def known(kind: GGMLQuantizationType) -> bool:
        try:
            dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            return False
        return True

    sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items() if known(kind)}
    return lambda rows, kind: dequantize(rows, GGMLQuantizationType(kind)), sizes


def _rope_factors(model: GGUFModel) -> np.ndarray | None:
    tensor = model.tensors.get("rope_freqs.weight")
    if tensor is None:
        return None
    if tensor.kind != _F32 or tensor.num_bytes > _MAX_ROPE_BYTES:
        raise ValueError("rope_freqs.weight must be a short row of float32 numbers")
    return np.fromfile(tensor.file, "<f4", tensor.num_bytes // 4, offset=tensor.start)


def _weights(model: GGUFModel, config: Mapping[str, Any]) -> list[_Weight]:
    """What is to be written.

    Raises:
        ValueError: a tensor is missing, too many, or not of the shape that transformers expects.
    """
    architecture = model.metadata["general.architecture"]
    # transformers makes as many layers as the configuration names.
    if config["num_hidden_layers"] * _LEAST_TENSORS > len(model.tensors):
        raise ValueError(f"it lacks tensors of its {config['num_hidden_layers']} layers")
    expected = _expected(config)
    names = _names(architecture, config["num_hidden_layers"], expected)
    found: list[_Weight] = []
    for name, tensor in model.tensors.items():
        if name == "rope_freqs.weight":  # its scaling is in the configuration
            continue
        renamed = names.get(name, "")
        shape = expected.pop(renamed, None)
        if shape is None:
            raise ValueError(f"tensor {quoted(name)} has no place in a model of {architecture}")
        if shape != tensor.shape:
            raise ValueError(f"{quoted(name)} has shape {tensor.shape}, expected {shape}")
        if len(shape) == 1 and tensor.kind not in (_F32, _F16, _BF16):
            raise ValueError(f"{quoted(name)} is a quantised vector")
        mixed = architecture == "llama" and (".attn_q." in name or ".attn_k." in name)
        shift = -1.0 if architecture == "gemma3" and "norm.weight" in name else 0.0
        found.append(_Weight(renamed, tensor, config["head_dim"] if mixed else None, shift))
    if expected:
        raise ValueError(f"it lacks the tensor of {min(expected)!r}")
    return found


def _names(architecture: str, num_layers: int, expected: Iterable[str]) -> dict[str, str]:
    """The name in transformers of each tensor of a GGUF."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    (kind,) = (kind for kind, name in MODEL_ARCH_NAMES.items() if name == architecture)
    known = get_tensor_name_map(kind, num_layers)
    suffixes = (".weight", ".bias")
    return {found: name for name in expected if (found := known.get_name(name, suffixes))}


def _expected(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights of a model that transformers makes, without memory for it."""
    from transformers import AutoConfig

    from ..stored_model import parameter_shapes

    # transformers changes nested values of what it is given.
    own = copy.deepcopy({key: value for key, value in config.items() if key != "dtype"})
    expected = parameter_shapes(AutoConfig.for_model(**own))
    if config["tie_word_embeddings"]:
        expected.pop("lm_head.weight", None)
    return expected


def _size(weight: _Weight) -> int:
    return int(np.prod(weight.source.shape, dtype=np.int64))


def _check_room(target: pathlib.Path, needed: int) -> None:
    parent = target.absolute().parent
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise BadInputError(
            f"{str(target)!r} needs {needed / 1e9:.2f} GB and its disk has {free / 1e9:.2f} GB "
            "free: free space, or choose a folder on another disk"
        )


def _write(
    folder: pathlib.Path,
    weights: list[_Weight],
    dtype: str,
    dequantize: Callable[..., np.ndarray],
    progress: Callable[[int], None],
) -> list[str]:
    code, width = _DTYPES[dtype]
    named = {weight.name: weight for weight in weights}
    files = divided({name: _size(weight) * width for name, weight in named.items()})
    written = 0
    for file, names in files.items():
        shard = [named[name] for name in names]
        with (folder / file).open("wb") as stream:
            stream.write(_header(shard, code, width))
            for weight in shard:
                for rows in _rows(weight.source, weight.head, dequantize):
                    if not np.isfinite(rows).all():
                        raise BadInputError(
                            f"{str(weight.source.file)!r} has a value in {weight.name!r} that is "
                            "not finite: download it again"
                        )
                    written += stream.write(_encoded(rows + np.float32(weight.shift), dtype))
                    progress(written)
    write_index(folder, files, written)
    return list(files)


def _header(shard: list[_Weight], code: str, width: int) -> bytes:
    """The beginning of a safetensors file, whose tensors are then written one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    stop = 0
    for weight in shard:
        start, stop = stop, stop + _size(weight) * width
        shape = list(weight.source.shape)
        header[weight.name] = {"dtype": code, "shape": shape, "data_offsets": [start, stop]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _rows(
    tensor: GGUFTensor, head: int | None, dequantize: Callable[..., np.ndarray]
) -> Iterator[np.ndarray]:
    """A tensor's values in float32, some rows at a time.

    llama.cpp mixes the two halves of each head's rows of queries and keys, for the rotations:
    rows 0, h/2, 1, h/2 + 1, ... of a head of size h. `head` is that size where they are mixed.
    """
    # A vector, such as a bias of queries, is mixed by its values: they are its rows.
    count, columns = (*tensor.shape, 1)[:2]
    stored = tensor.num_bytes // count
    raw = np.memmap(tensor.file, np.uint8, "r", tensor.start, (count, stored))
    order = np.arange(count)
    if head is not None:
        order = order.reshape(-1, head // 2, 2).swapaxes(1, 2).ravel()
    step = max(1, _CHUNK_VALUES // columns)
    for start in range(0, len(order), step):
        yield dequantize(raw[order[start : start + step]], tensor.kind)


def _encoded(values: np.ndarray, dtype: str) -> bytes:
    import torch

    if dtype == "float32":
        return values.astype("<f4").tobytes()
    return torch.from_numpy(values).bfloat16().view(torch.uint16).numpy().tobytes()
