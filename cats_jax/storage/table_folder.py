"""Folders of Parquet tables with a manifest, which grow block by block and survive a kill.

A table is written whole or not at all, and never changed. A process that was killed continues with
the first missing block.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import BadInputError
from . import durable
from .manifest import MANIFEST, begin_folder, with_current_names
from .parquet import MAX_TABLES, bounded_batches
from .reading import read_json, reading
from .rules import COUNT, TEXT, check_entries

# Entries in which a continued folder may differ from its beginning; the seeds are in `config`, too.
_FREE = ("schema", "created", "versions", "git", "seeds", "notes")


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder of tables, such as a step bank.

    Attributes:
        name: name of the kind, for messages and manifests.
        format: current version of the folder's format.
        command: command that creates such a folder, for messages.
        results: pattern of the files of results, which a failed start does not leave.
        migrations: for each older version that can be read, a function that rewrites its manifest
            as one of the current version. A reader refuses all other versions.
    """

    name: str
    format: int
    command: str
    results: str = "**/*.parquet"
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(
        default_factory=dict, hash=False
    )

    def stamp(self) -> dict[str, Any]:
        """The manifest entries `kind` and `format` of such a folder."""
        return {"kind": self.name, "format": self.format}


@contextlib.contextmanager
def locked(
    folder: pathlib.Path,
    manifest: Mapping[str, Any],
    kind: FolderKind,
    extend: Callable[[dict[str, Any]], dict[str, Any]] = lambda old: old,
) -> Iterator[None]:
    """Create or continue a folder, and lock it until the end of the `with` block.

    `extend` gets the manifest of an existing folder, and returns it with the additions that this
    process may make. If the result agrees with `manifest`, the folder gets it.

    Raises:
        BadInputError: the folder was begun with other settings, is of another kind, is in use, or
            can't be written.
    """
    with durable.hold(folder):
        old = read_manifest(folder, kind) if (folder / MANIFEST).exists() else None
        filled = any(folder.glob(kind.results))
        with reading(repr(str(folder / MANIFEST))):
            begun = extend(old) if old is not None and filled else old
        names = [name for name in manifest if name not in _FREE]
        try:
            begin_folder(folder, kind.name, begun, manifest, names, filled=filled)
            if begun is not None and begun != old:
                durable.replace_json(folder / MANIFEST, begun)
        except OSError as error:
            raise durable.unwritable(folder, error) from error
        yield


def read_manifest(folder: str | pathlib.Path, kind: FolderKind) -> dict[str, Any]:
    """The manifest of a folder.

    Raises:
        BadInputError: the folder does not exist, or is of another kind or format.
    """
    folder = pathlib.Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise BadInputError(
            f"{str(folder)!r} is no {kind.name}: it has no {MANIFEST}; make one with "
            f"`{kind.command}`"
        )
    what = f"is no {kind.name}: its {MANIFEST} is another's or damaged"
    with reading(repr(str(folder)), f"copy it anew, or collect it with `{kind.command}`", what):
        manifest = with_current_names(read_json(path))
        check_entries(manifest, {"kind": TEXT, "format": COUNT})
        name, version = manifest["kind"], manifest["format"]
        if name != kind.name:
            raise BadInputError(f"{str(folder)!r} is a {name:.80}, not a {kind.name}")
        if version not in (*kind.migrations, kind.format):
            raise BadInputError(
                f"{kind.name} {str(folder)!r} has format {version}, this version reads "
                f"{kind.format}: collect it anew"
            )
        if version in kind.migrations:
            manifest = kind.migrations[version](manifest)
        return manifest


def write_table(path: pathlib.Path, table: pa.Table) -> None:
    """Write a table to the disk; RunStoppedError if it can't be written."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    try:
        durable.replace(path, buffer.getvalue().to_pybytes())
    except OSError as error:
        raise durable.stopped(path.parent, error) from error


def read_tables(paths: Sequence[pathlib.Path], kind: FolderKind) -> pa.Table:
    """Rows of tables of the same columns, in order; BadInputError for missing or damaged tables."""
    way_out = f"delete the files of its number, and the same `{kind.command}` collects them anew"
    tables: list[pa.Table] = []
    rest = MAX_TABLES
    for path in paths:
        with reading(repr(str(path)), way_out):
            batches = list(bounded_batches(path, rest))
            rest -= sum(batch.nbytes for batch in batches)
            table = pa.Table.from_batches(batches, None if batches else pq.read_schema(path))
            if tables and table.schema != tables[0].schema:
                raise ValueError("its columns are not those of the other tables")
            tables.append(table)
    return pa.concat_tables(tables)


def column_array(column: pa.ChunkedArray) -> np.ndarray:
    """A column of R rows as an array: [R], or [R, L] for a column of lists of length L."""
    if not pa.types.is_list(column.type):
        return column.to_numpy()
    flat = column.combine_chunks().flatten().to_numpy()
    return flat.reshape(len(column), -1)
