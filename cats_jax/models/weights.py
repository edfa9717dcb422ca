"""What a model folder's safetensors files hold, by their headers: no weight is read here."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass

from safetensors import SafetensorError, safe_open

from ..errors import BadInputError

_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor in a file.

    Attributes:
        name: as stored.
        dtype: as safetensors names it, "BF16" for example.
        shape: its sizes.
        file: that holds it.
        start, stop: its bytes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: pathlib.Path
    start: int
    stop: int

    @property
    def is_float(self) -> bool:
        """Whether its values are plain floating-point numbers, 16 bits or more."""
        return self.dtype in _FLOATS


def stored_tensors(folder: str | pathlib.Path) -> dict[str, StoredTensor]:
    """Every tensor of a model folder by name, in the order of files and bytes.

    Raises:
        BadInputError: no safetensors file, a missing or broken one, or a tensor stored twice.
    """
    found: dict[str, StoredTensor] = {}
    for file in weight_files(pathlib.Path(folder)):
        for tensor in _header(file):
            if tensor.name in found:
                raise BadInputError(
                    f"{str(folder)!r} stores tensor {tensor.name!r} twice, in "
                    f"{found[tensor.name].file.name} and {file.name}: remove what does not belong"
                )
            found[tensor.name] = tensor
    return found


def weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files transformers would load: those of the index, the single one, or all there are.

    Raises:
        BadInputError: there is none, or the index names one that is not there.
    """
    if not folder.is_dir():
        raise BadInputError(f"model folder {str(folder)!r} does not exist: give a local folder")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return [folder / name for name in shard_names(index)]
    single = folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadInputError(
            f"{str(folder)!r} has no *.safetensors file, and no other format is read: "
            f"`cats-jax convert {folder} OUT` makes one from .bin files"
        )
    return files


def shard_names(index: pathlib.Path) -> list[str]:
    """The file names of an index of shards, sorted.

    Raises:
        BadInputError: it is no such index, or a file it names is not beside it.
    """
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        well_formed = all(name == pathlib.PurePath(name).name for name in names)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        names, well_formed = [], False
    if not names or not well_formed:
        raise BadInputError(
            f"{str(index)!r} is no index of shards: it needs a weight_map from tensors to the "
            "names of files beside it; download it again"
        )
    for name in names:
        if not (index.parent / name).is_file():
            raise BadInputError(
                f"{index.name} in {str(index.parent)!r} names {name!r}, which is not there: "
                "download the missing shard"
            )
    return names


def check_one_dtype(tensors: Iterable[StoredTensor], apart: Iterable[str] = ()) -> None:
    """Refuses weights of several precisions, which come from shards of different releases.

    Args:
        tensors: of one checkpoint.
        apart: names of tensors that may differ: a small head is often kept in float32.

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


def _header(file: pathlib.Path) -> list[StoredTensor]:
    try:
        # The library checks that offsets, shapes and the file's size agree, but does not tell them.
        with safe_open(file, framework="np"):
            pass
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(size))
    except (SafetensorError, OSError) as error:
        raise BadInputError(
            f"{str(file)!r} is no whole safetensors file ({error}): download it again"
        ) from error
    begin = 8 + size
    tensors = [
        StoredTensor(
            name,
            entry["dtype"],
            tuple(entry["shape"]),
            file,
            begin + entry["data_offsets"][0],
            begin + entry["data_offsets"][1],
        )
        for name, entry in header.items()
        if name != "__metadata__"
    ]
    return sorted(tensors, key=lambda tensor: tensor.start)
