"""A bank's folder: a manifest, and two Parquet tables per block of questions.

    manifest.json             recipe, models and world of the bank; see `collect_bank`
    sparsity.json             share of small weights per PRM, in total and in the last layer
    questions-00000.parquet   a row per question, in order
    nodes-00000.parquet       a row per node; those of a question are consecutive, breadth first

The nodes of a block are written before its questions. A block is complete if its questions exist.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import BadInputError
from ..storage import durable, table_folder
from .types import Tree, columns


def _from_format_1(manifest: dict[str, Any]) -> dict[str, Any]:
    """Convert a manifest of format 1 to format 2: keys of the allocation are renamed."""
    old = manifest["config"]["allocation"]
    allocation = {
        "draws": [
            {
                "sampling": entry["sampling"],
                "root_draws": entry["root"],
                "revisit_draws": entry["few"],
            }
            for entry in old["draws"]
        ],
        "revisits_per_prm": old["liked"],
        "revisit_arrivals": old["mixed"],
        "root_draws_per_prm": old.get("favourites", 0),
    }
    config = {**manifest["config"], "allocation": allocation}
    return {**manifest, "format": 2, "config": config}


KIND = table_folder.FolderKind(
    "step bank", format=2, command="cats-jax bank", migrations={1: _from_format_1}
)
_SPARSITY = "sparsity.json"


def write_block(folder: pathlib.Path, number: int, trees: Sequence[Tree]) -> None:
    """Write the trees of one block.

    Raises:
        RunStoppedError: the files can't be written.
    """
    questions = {
        "id": [tree.question.id for tree in trees],
        "text": [tree.question.text for tree in trees],
        "gold": [tree.gold for tree in trees],
        "level": pa.array([tree.level for tree in trees], pa.int32()),
        "num_nodes": pa.array([len(tree.nodes) for tree in trees], pa.int32()),
        "prompt_tokens": pa.array([tree.prompt_tokens for tree in trees], pa.list_(pa.int32())),
    }
    merged: dict[str, list[Any]] = {}
    for tree in trees:
        for name, values in columns(tree.nodes).items():
            merged.setdefault(name, []).extend(values)
    nodes = {name: pa.array(values, _NODE_TYPES[name]) for name, values in merged.items()}
    table_folder.write_table(_file(folder, "nodes", number), pa.table(nodes))
    table_folder.write_table(_file(folder, "questions", number), pa.table(questions))


def write_sparsity(folder: pathlib.Path, sparsity: Mapping[str, tuple[float, float]]) -> None:
    """Write `sparsity.json` with the PRMs' sparsities."""
    durable.replace_json(folder / _SPARSITY, sparsity)


def read_sparsity(folder: str | pathlib.Path) -> dict[str, list[float]]:
    """PRM label -> share of small weights, total and in the last layer.

    Raises:
        BadInputError: the file is missing or damaged.
    """
    path = pathlib.Path(folder) / _SPARSITY
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"step bank {str(folder)!r} has no readable {_SPARSITY}: run its `cats-jax bank` again"
        ) from error


def has_sparsity(folder: pathlib.Path) -> bool:
    """Whether the folder has a `sparsity.json`."""
    return (folder / _SPARSITY).is_file()


def missing_blocks(folder: pathlib.Path, count: int) -> list[int]:
    """Numbers of the blocks 0..count-1 that are not complete."""
    return [number for number in range(count) if not _file(folder, "questions", number).is_file()]


def _num_blocks(folder: pathlib.Path) -> int:
    """Number of complete blocks, which must be the first ones.

    Raises:
        BadInputError: a block is missing, but a later one is complete.
    """
    complete = len(list(folder.glob("questions-*.parquet")))
    missing = missing_blocks(folder, complete)
    if missing:
        raise BadInputError(
            f"step bank {str(folder)!r} lacks block {missing[0]}, but not those behind it: run its "
            f"`{KIND.command}` again"
        )
    return complete


def read_manifest(folder: str | pathlib.Path) -> dict[str, Any]:
    """The manifest of a bank.

    Raises:
        BadInputError: the folder holds no bank, or a bank of another format.
    """
    return table_folder.read_manifest(folder, KIND)


def read_tables(folder: str | pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The questions' and the nodes' columns of all complete blocks.

    Returns:
        Columns of the questions, as lists, and columns of the nodes, as arrays. Columns with a list
        per node are arrays [V, S] or [V, P].

    Raises:
        BadInputError: the bank has no block yet, or a file is damaged.
    """
    folder = pathlib.Path(folder)
    count = _num_blocks(folder)
    if count == 0:
        raise BadInputError(
            f"step bank {str(folder)!r} has no question yet: run its `cats-jax bank`"
        )
    questions, nodes = (
        table_folder.read_tables([_file(folder, name, number) for number in range(count)], KIND)
        for name in ("questions", "nodes")
    )
    arrays = {name: table_folder.column_array(nodes[name]) for name in nodes.column_names}
    return questions.to_pydict(), arrays


def _file(folder: pathlib.Path, table: str, number: int) -> pathlib.Path:
    return folder / f"{table}-{number:05d}.parquet"


_NODE_TYPES = {
    "parent": pa.int32(),
    "text": pa.string(),
    "text_class": pa.int32(),
    "num_tokens": pa.int32(),
    "log_prob": pa.float32(),
    "done": pa.bool_(),
    "invalid": pa.bool_(),
    "answer": pa.int32(),
    "draws": pa.list_(pa.int32()),
    "score": pa.list_(pa.float32()),
    "prm_tokens": pa.list_(pa.int32()),
    "value": pa.float32(),
}
