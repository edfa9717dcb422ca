"""Sparsity of a checkpoint, streamed from its safetensors files tensor by tensor."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import numpy as np
from safetensors import SafetensorError, safe_open

from cats_jax.errors import BadInputError
from cats_jax.prms.format import PRMFormat
from theory.sparsity import Sparsity, measure_sparsity


def checkpoint_sparsity(path: str | pathlib.Path) -> Sparsity:
    """Counts the weights below the threshold in a model folder, in the stored precision.

    Raises:
        BadInputError: no safetensors file, a broken one, or NaN or infinite weights.
    """
    try:
        return measure_sparsity(_stored_tensors(pathlib.Path(path)))
    except BadInputError:
        raise
    except (ValueError, SafetensorError) as error:
        raise BadInputError(f"{str(path)!r}: its sparsity is undefined: {error}") from error


def last_layer_sparsity(sparsity: Sparsity, prm_format: PRMFormat) -> float:
    """Share of small weights in the format's read-out tensors.

    Raises:
        BadInputError: the checkpoint stores none of them.
    """
    for names in prm_format.last_layer:
        if all(name in sparsity.sizes for name in names):
            return sparsity.share(names)
    expected = " or ".join(" + ".join(names) for names in prm_format.last_layer)
    raise BadInputError(
        f"the checkpoint stores no read-out of format {prm_format.name!r} ({expected}): "
        f"choose the format it was trained with"
    )


def _stored_tensors(folder: pathlib.Path) -> Iterator[tuple[str, np.ndarray]]:
    """Every stored floating-point tensor once, file by file, as float32 or wider."""
    for file in _weight_files(folder):
        # Through torch, because numpy has no bfloat16.
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (a handle, not a dict)
                tensor = tensors.get_tensor(name)
                if tensor.is_floating_point():
                    yield name, tensor.float().numpy()


def _weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files transformers would load: those of the index, the single one, or all there are."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [folder / name for name in sorted(names)]
    single = folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadInputError(
            f"{str(folder)!r} has no *.safetensors file, and no other format is read: "
            f"`cats-jax convert {folder} OUT` makes one from .bin files"
        )
    return files
