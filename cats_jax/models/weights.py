"""Names, dtypes, shapes and places of stored tensors, read from safetensors headers alone."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass

from safetensors import SafetensorError, safe_open

from ..errors import BadInputError, quoted
from ..storage.reading import parse_json, read_json, reading
from .folders import MissingModelError, existing_folder, what_is_lacking

_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor in a file.

    Attributes:
        name, dtype, shape: as in safetensors, for example the dtype "BF16".
        file: file that holds the tensor.
        start, stop: offsets in the file of the tensor's first byte and of the byte after its last.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: pathlib.Path
    start: int
    stop: int

    @property
    def is_float(self) -> bool:
        """Whether the tensor's values are floating-point numbers of 16 bits or more."""
        return self.dtype in _FLOATS


def stored_tensors(folder: str | pathlib.Path) -> dict[str, StoredTensor]:
    """Every tensor of a model folder by name, in the order of files and bytes.

    Raises:
        BadInputError: the folder has no safetensors file, a file is missing or broken, or a tensor
            is stored twice.
    """
    found: dict[str, StoredTensor] = {}
    for file in weight_files(pathlib.Path(folder)):
        for tensor in file_tensors(file):
            if tensor.name in found:
                raise BadInputError(
                    f"{str(folder)!r} stores tensor {tensor.name!r} twice, in "
                    f"{found[tensor.name].file.name} and {file.name}: remove the file that "
                    "does not belong to the model"
                )
            found[tensor.name] = tensor
    return found


def num_values(folder: str | pathlib.Path) -> int:
    """Number of stored values of a model folder; see `stored_tensors` for the errors."""
    return sum(math.prod(tensor.shape) for tensor in stored_tensors(folder).values())


def weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The safetensors files of a model folder, as transformers and vLLM would choose them.

    These are the files of model.safetensors.index.json, or model.safetensors, or all that exist.

    Raises:
        BadInputError: there is no file, the index names a file that does not exist, or it leaves
            out model.safetensors: transformers then reads this file, and vLLM those of the index.
    """
    folder = existing_folder(folder)
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        names = shard_names(index)
        if single.is_file() and single.name not in names:
            raise BadInputError(
                f"{str(folder)!r} holds {single.name} and an index of other files, so that it is "
                f"not clear which are the model's: remove {single.name}, or {index.name}"
            )
        return [folder / name for name in names]
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise MissingModelError(f"model folder {str(folder)!r} {what_is_lacking(folder)}")
    return files


def shard_names(index: pathlib.Path) -> list[str]:
    """The file names of an index of shards, sorted.

    Raises:
        BadInputError: the file is not an index of shards, or a file that it names does not exist.
    """
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
        well_formed = all(name == pathlib.PurePath(name).name for name in names)
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        names, well_formed = [], False
    if not names or not well_formed:
        raise BadInputError(
            f"{str(index)!r} is not an index of shards: it needs a weight_map from tensors to the "
            "names of files beside it; download it again"
        )
    for name in names:
        with reading(repr(str(index)), "download it again", f"names {quoted(name)}, which"):
            there = (index.parent / name).is_file()
        if not there:
            raise BadInputError(
                f"{index.name} in {str(index.parent)!r} names {quoted(name)}, which is not there: "
                "download the missing shard"
            )
    return names


def check_one_dtype(tensors: Iterable[StoredTensor], apart: Iterable[str] = ()) -> None:
    """Check that weights have one precision; mixed ones come from shards of different releases.

    Args:
        tensors: tensors of one checkpoint.
        apart: names of tensors that may differ, such as a small head kept in float32.

    Raises:
        BadInputError: two floating-point tensors have different dtypes.
    """
    apart = set(apart)
    first: StoredTensor | None = None
    for tensor in tensors:
        if not tensor.is_float or tensor.name in apart:
            continue
        first = first or tensor
        if tensor.dtype != first.dtype:
            raise BadInputError(
                f"{str(tensor.file.parent)!r} mixes dtypes: {first.name!r} in {first.file.name} is "
                f"{first.dtype}, {tensor.name!r} in {tensor.file.name} is {tensor.dtype}; take all "
                "shards from one release"
            )


def file_tensors(file: pathlib.Path) -> list[StoredTensor]:
    """Every tensor of one safetensors file, in the order of bytes.

    Raises:
        BadInputError: the file is broken.
    """
    try:
        # The library checks that offsets, shapes and the file's size agree, but does not return
        # them.
        with safe_open(file, framework="np"):
            pass
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = parse_json(stream.read(size))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise BadInputError(
            f"{str(file)!r} is not a complete safetensors file ({error}): download it again"
        ) from error
    begin = 8 + size
    header.pop("__metadata__", None)
    tensors = []
    for name, entry in header.items():
        start, stop = (begin + place for place in entry["data_offsets"])
        tensors.append(StoredTensor(name, entry["dtype"], tuple(entry["shape"]), file, start, stop))
    return sorted(tensors, key=lambda tensor: tensor.start)
