"""Sparsity of a checkpoint, streamed from its safetensors files in blocks.

Weights are compared with the threshold as they are stored, without rounding.
"""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.sparsity import THRESHOLD, Sparsity

from ...errors import BadInputError
from ...storage.reading import read_json, reading
from ..folders import existing_folder
from ..local_files import ties_embeddings
from ..weights import StoredTensor, stored_tensors
from .format import PRM_FORMATS, WORLD, Head, TokenPair
from .head_file import tensors_of_file

if TYPE_CHECKING:
    from ..adapter import Adapter

# Bytes read and counted together: they fit a core's cache.
_BLOCK = 1 << 20

_LM_HEAD = "lm_head.weight"
_EMBEDDINGS = ("model.embed_tokens.weight", "embed_tokens.weight", "transformer.wte.weight")


@dataclass(frozen=True)
class CheckpointSparsity:
    """The sparsity of a checkpoint, as `cats-jax sparsity` prints it.

    Attributes:
        counts: numbers of weights and of small weights in each counted tensor.
        read_out: names of the read-out's tensors, which are the last layer; empty if not known.
        unknown: why the read-out is not known; empty if it is.
        unused: names of stored tensors that the model does not use; they are counted.
        duplicates: names of stored copies of a tied tensor; they are not counted.
    """

    counts: Sparsity
    read_out: tuple[str, ...]
    unknown: str
    unused: tuple[str, ...]
    duplicates: tuple[str, ...]

    @property
    def total(self) -> float:
        """Share of small weights among all counted ones, in [0, 1]."""
        return self.counts.total

    @property
    def last_layer(self) -> float:
        """Share of small weights in the last layer, in [0, 1]; NaN if the layer is not known."""
        return self.counts.share(self.read_out) if self.read_out else math.nan


def checkpoint_sparsity(
    path: str | pathlib.Path,
    read_out: TokenPair | Head | None = None,
    *,
    adapter: Adapter | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> CheckpointSparsity:
    """Counts the weights below the threshold in a model folder, in the stored precision.

    Every stored floating-point tensor counts once. A head that the configuration or its model type
    ties to the embedding does not count if both are stored and equal. Integers (counters, masks) do
    not count.

    Args:
        path: a folder with safetensors weights, sharded or not.
        read_out: read-out whose tensors are the last layer. None finds it in the weights: the head
            of a known family, or the head of a causal language model.
        adapter: adapter whose changes are merged; the weights that it changes count in float32.
        progress: called after each tensor with the share of bytes read, in [0, 1].

    Raises:
        BadInputError: no safetensors file, a broken one, NaN or infinite weights, quantised
            weights, no weights at all, or a read-out whose tensors are not stored.
    """
    folder = existing_folder(path)
    tensors = stored_tensors(folder) | tensors_of_file(read_out)
    config = _config(folder)
    _check_plain(folder, tensors.values(), config)
    embedding = next((name for name in _EMBEDDINGS if name in tensors), None)
    sizes: dict[str, int] = {}
    zeros: dict[str, int] = {}
    read, all_bytes = 0, sum(tensor.stop - tensor.start for tensor in tensors.values())
    merged = {name for name in tensors if adapter is not None and adapter.changes(name)}
    for name, tensor in tensors.items():
        if tensor.is_float:
            if adapter is not None and name in merged:
                values = adapter.merged_stored(tensor).numpy()
                sizes[name], zeros[name] = values.size, _num_small(np.abs(values))
            else:
                sizes[name], zeros[name] = math.prod(tensor.shape), _num_stored_small(tensor)
        read += tensor.stop - tensor.start
        progress(read / max(1, all_bytes))
    duplicates: tuple[str, ...] = ()
    twice = {embedding, _LM_HEAD} <= sizes.keys() - merged
    if twice and _equal(tensors[_LM_HEAD], tensors[str(embedding)]) and ties_embeddings(config):
        duplicates = (_LM_HEAD,)
        del sizes[_LM_HEAD], zeros[_LM_HEAD]
    if not sum(sizes.values()):
        raise BadInputError(f"{str(folder)!r}: its sparsity is undefined: it stores no weights")
    if read_out is None:
        read_out = _known_read_out(sizes, config)
    names, unknown = _last_layer(folder, sizes, read_out, embedding)
    unused = (_LM_HEAD,) if isinstance(read_out, Head) and _LM_HEAD in {*sizes} - {*names} else ()
    return CheckpointSparsity(Sparsity(sizes, zeros), names, unknown, unused, duplicates)


def _config(folder: pathlib.Path) -> dict[str, Any]:
    """Content of config.json; empty if there is none, because counting does not need it."""
    file = folder / "config.json"
    with reading(repr(str(file)), "download it again", "is not JSON"):
        config = read_json(file) if file.is_file() else {}
    if not isinstance(config, dict):
        raise BadInputError(f"{str(file)!r} is not a JSON object: download it again")
    return config


def _check_plain(
    folder: pathlib.Path, tensors: Iterable[StoredTensor], config: dict[str, Any]
) -> None:
    """Raises BadInputError for quantised weights, whose stored numbers are not the weights."""
    packed = next((t for t in tensors if t.dtype.startswith(("F8_", "F6_", "F4", "C"))), None)
    if packed is not None or config.get("quantization_config"):
        what = f"tensor {packed.name!r} is {packed.dtype}" if packed else "config.json says so"
        raise BadInputError(
            f"{str(folder)!r} holds quantised weights ({what}), whose sparsity is undefined: give "
            "the checkpoint in 16 or 32 bits"
        )


def _known_read_out(sizes: Collection[str], config: dict[str, Any]) -> TokenPair | Head | None:
    """The read-out by a known family's head or by the language-model head; None without these."""
    for known in PRM_FORMATS.values():
        head = known.read_out
        if isinstance(head, Head) and all(f"{layer}.weight" in sizes for layer in head.layers):
            return head
    named = config.get("architectures")
    causal = isinstance(named, list) and any(str(name).endswith("ForCausalLM") for name in named)
    return WORLD.read_out if causal or _LM_HEAD in sizes else None


def _last_layer(
    folder: pathlib.Path,
    sizes: Collection[str],
    read_out: TokenPair | Head | None,
    embedding: str | None,
) -> tuple[tuple[str, ...], str]:
    """(names of the read-out's tensors, ""), or no names and the reason."""
    if read_out is None:
        return (), "no language-model head, and the head of no known family"
    if isinstance(read_out, Head):
        weights = [f"{layer}.weight" for layer in read_out.layers]
        names = [n for layer in read_out.layers for n in (f"{layer}.weight", f"{layer}.bias")]
        missing = [name for name in weights if name not in sizes]
    else:
        # A tied head is stored as the embedding only.
        names = [_LM_HEAD] if _LM_HEAD in sizes or embedding is None else [embedding]
        missing = [name for name in names if name not in sizes]
    if missing:
        raise BadInputError(
            f"{str(folder)!r} stores no {missing[0]!r}, which the PRM format reads scores from: "
            "choose the format the PRM was trained with"
        )
    return tuple(name for name in names if name in sizes), ""


def _blocks(tensor: StoredTensor) -> Iterator[np.ndarray]:
    """The stored values of a tensor, some at a time; those of 16 bits as u16."""
    kind = np.dtype(_KINDS[tensor.dtype])
    size = (tensor.stop - tensor.start) // kind.itemsize
    step = _BLOCK // kind.itemsize
    for start in range(0, size, step):
        offset = tensor.start + start * kind.itemsize
        count = min(step, size - start)
        values = np.fromfile(tensor.file, kind, count, offset=offset)
        if len(values) < count:
            raise BadInputError(f"{str(tensor.file)!r} ends early: download it again")
        yield values


def _num_stored_small(tensor: StoredTensor) -> int:
    """Number of a tensor's values below the threshold."""
    small, found = 0, _num_below(tensor.dtype) if _KINDS[tensor.dtype] == "<u2" else None
    for values in _blocks(tensor):
        magnitudes = np.abs(values) if found is None else values & 0x7FFF
        if not magnitudes.max() < (np.inf if found is None else found[1]):  # nor NaN
            raise BadInputError(
                f"{str(tensor.file.parent)!r}: its sparsity is undefined: tensor "
                f"{tensor.name!r} holds NaN or infinity"
            )
        small += (
            _num_small(magnitudes) if found is None else np.count_nonzero(magnitudes < found[0])
        )
    return int(small)


def _equal(one: StoredTensor, other: StoredTensor) -> bool:
    """Whether two tensors are stored as the same bytes."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    pairs = zip(_blocks(one), _blocks(other), strict=True)
    return all(first.tobytes() == second.tobytes() for first, second in pairs)


def _num_small(magnitudes: np.ndarray) -> int:
    # In float64, so that no number of fewer bits is compared with a rounded threshold.
    return int(np.count_nonzero(magnitudes < np.float64(THRESHOLD)))


@functools.cache
def _num_below(dtype: str) -> tuple[int, int]:
    """How many numbers of 16 bits without sign are below the threshold, and how many are finite.

    Numbers without sign ascend with their bits, so these are the bits of the first that are not.
    """
    bits = np.arange(1 << 15, dtype="<u2")
    # A bfloat16 is the upper half of a float32.
    numbers = bits.view("<f2") if dtype == "F16" else (bits.astype("<u4") << 16).view("<f4")
    return _num_small(numbers), int(np.count_nonzero(np.isfinite(numbers)))


_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<u2", "BF16": "<u2"}
