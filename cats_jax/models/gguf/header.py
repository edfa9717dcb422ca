"""The header of a GGUF file, or of the parts of one: metadata, and where each tensor's bytes are.

The file may be a stranger's. Every count and length is compared with a limit and with the rest of
the file before anything of that size is read. The reader of the package gguf does neither, and is
40 times slower.
"""

from __future__ import annotations

import math
import pathlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from ...errors import BadInputError, quoted
from ...storage.reading import reading

_MAGIC = b"GGUF"
_MAX_STRING = 1 << 20
_MAX_ITEMS = 1 << 22
_MAX_ENTRIES = 1 << 16
_MAX_HEADER = 1 << 28
_MAX_AXES = 4

# The types of values, by their numbers, as codes of `struct`.
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor is stored.

    Attributes:
        file: the file, or the part, that holds it.
        kind: number of its type in ggml, such as 12 for Q4_K.
        shape: sizes of its axes, in the order of torch.
        start, num_bytes: offset of its first byte in the file, and number of its bytes.
    """

    file: pathlib.Path
    kind: int
    shape: tuple[int, ...]
    start: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFModel:
    """The parts of a model in order, the metadata of the first, and the tensors of all by name."""

    files: tuple[pathlib.Path, ...]
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]


def read_model(path: pathlib.Path, block_sizes: Mapping[int, tuple[int, int]]) -> GGUFModel:
    """The headers of a GGUF file, and of its further parts if it is the first of several.

    Args:
        path: the file, or the first part, named as gguf-split does: `x-00001-of-00003.gguf`.
        block_sizes: for each type, how many values a block has, and how many bytes.

    Raises:
        BadInputError: a file is not a GGUF or cut off, or a part is missing or of another model.
    """
    files = _parts(path)
    metadata, tensors = _read(path, block_sizes)
    count = metadata.get("split.count", 1) or 1
    if count != len(files):
        raise BadInputError(
            f"{str(path)!r} is part of {quoted(count)} by its content and of {len(files)} by its "
            "name: give the first part, whose name ends in -00001-of-0000N.gguf, beside the others"
        )
    for number, file in enumerate(files[1:], 1):
        more, found = _read(file, block_sizes)
        if (more.get("split.no"), more.get("split.count")) != (number, count):
            raise BadInputError(
                f"{str(file)!r} is not part {number + 1} of {count}, as its name says: download "
                "the parts of one release"
            )
        if both := tensors.keys() & found.keys():
            raise BadInputError(
                f"{str(file)!r} holds {quoted(min(both))}, which an earlier part has already: "
                "download the parts of one release"
            )
        tensors.update(found)
    total = metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise BadInputError(
            f"{str(path)!r} and its parts hold {len(tensors)} tensors of {quoted(total)}: download "
            "the parts of one release"
        )
    return GGUFModel(tuple(files), metadata, tensors)


def _parts(path: pathlib.Path) -> list[pathlib.Path]:
    named = _PART.fullmatch(path.name)
    if named is None:
        return [path]
    stem, number, count = named[1], int(named[2]), int(named[3])
    files = [path.with_name(f"{stem}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]
    if number != 1:
        first = path.with_name(f"{stem}-00001-of-{count:05d}.gguf")
        raise BadInputError(f"{str(path)!r} is part {number} of {count}: give {first.name!r}")
    for file in files:
        if not file.is_file():
            raise BadInputError(
                f"{str(path)!r} is the first of {count} parts, and {file.name!r} is not beside it: "
                "download the missing part"
            )
    return files


def _read(
    path: pathlib.Path, block_sizes: Mapping[int, tuple[int, int]]
) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
    what = "is not a complete GGUF file"
    with reading(repr(str(path)), "download it again", what), path.open("rb") as stream:
        return _Header(path, stream, block_sizes).read()


class _Header:
    def __init__(
        self, path: pathlib.Path, stream: BinaryIO, block_sizes: Mapping[int, tuple[int, int]]
    ):
        self._path, self._stream, self._block_sizes = path, stream, block_sizes
        self._size = path.stat().st_size
        self._position = 0

    def read(self) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
        if self._stream.read(4) != _MAGIC:
            raise ValueError(f"it does not begin with {_MAGIC.decode()}")
        self._position = 4
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version} is not read, only 2 and 3 of little-endian files")
        num_tensors, num_keys = (self._count(_MAX_ENTRIES, 12) for _ in range(2))
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._string()
            if key in metadata:
                raise ValueError(f"it has {quoted(key)} twice")
            metadata[key] = self._value(self._number("I"))
        entries = [self._entry() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 16:
            raise ValueError("general.alignment must be a whole number from 1 to 65536")
        start = -(-self._position // alignment) * alignment
        tensors = {}
        for name, shape, kind, offset in entries:
            if name in tensors:
                raise ValueError(f"it has {quoted(name)} twice")
            tensors[name] = self._tensor(name, shape, kind, start + offset)
        # If tensors could share bytes, a small file could hold any number of them.
        if sum(tensor.num_bytes for tensor in tensors.values()) > self._size:
            raise ValueError("its tensors overlap")
        return metadata, tensors

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> GGUFTensor:
        if kind not in self._block_sizes:
            raise ValueError(f"{quoted(name)} has the unknown type {kind}")
        values, num_bytes = self._block_sizes[kind]
        if shape[-1] % values:
            raise ValueError(f"the rows of {quoted(name)} must be whole blocks of {values} values")
        size = math.prod(shape) // values * num_bytes
        if start + size > self._size:
            raise ValueError(
                f"{quoted(name)} ends at byte {start + size}, and the file has {self._size}"
            )
        return GGUFTensor(self._path, kind, shape, start, size)

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        axes = self._number("I")
        if not 1 <= axes <= _MAX_AXES:
            raise ValueError(f"{quoted(name)} has {axes} axes")
        sizes = tuple(self._number("Q") for _ in range(axes))
        if 0 in sizes:
            raise ValueError(f"{quoted(name)} has no values")
        return name, sizes[::-1], self._number("I"), self._number("Q")

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise ValueError(f"a value has the unknown type {kind}")
        inner = self._number("I")
        if inner == _STRING:
            return [self._string() for _ in range(self._count(_MAX_ITEMS, 8))]
        if inner not in _SCALARS:
            raise ValueError(f"an array has values of type {inner}")
        width = struct.calcsize("<" + _SCALARS[inner])
        count = self._count(_MAX_ITEMS, width)
        return list(struct.unpack(f"<{count}{_SCALARS[inner]}", self._bytes(count * width)))

    def _number(self, code: str) -> Any:
        return struct.unpack("<" + code, self._bytes(struct.calcsize("<" + code)))[0]

    def _count(self, most: int, width: int) -> int:
        """A number of items of at least `width` bytes each."""
        count = self._number("Q")
        if count > most or count * width > self._size - self._position:
            raise ValueError(f"it claims {count} items at byte {self._position}")
        return count

    def _string(self) -> str:
        length = self._number("Q")
        if length > _MAX_STRING:
            raise ValueError(f"it claims a text of {length} bytes at byte {self._position}")
        return self._bytes(length).decode()

    def _bytes(self, count: int) -> bytes:
        self._position += count
        if self._position > min(self._size, _MAX_HEADER):
            raise ValueError(f"it is cut off, or its header is too long, at byte {self._position}")
        return self._stream.read(count)
