"""A bank's folder: a manifest, and Parquet tables per block of questions.

    manifest.json             recipe, models and world of the bank; see `collect_bank`
    sparsity.json             share of small weights per PRM, in total and in the last layer
    questions-00000.parquet   a row per question, in order
    nodes-00000.parquet       a row per node; those of a question are consecutive, breadth first
    scores-00-00000.parquet   a row per question with the scores of the recipe's first PRM, a list
                              with an entry per node; the second PRM has scores-01-00000.parquet

The nodes of a block are written before its questions. A block is complete if its questions exist.
The manifest's `scored` states where the scores are: in the table of nodes (`WHILE_GROWING`), as a
list per node with an entry per PRM, or in the tables of scores (`AFTERWARDS`).
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import BadInputError
from ..storage import durable, table_folder
from ..storage.reading import read_json, reading
from ..storage.rules import MAPPING, NUMBER, TEXT, Rule, check_entries, list_of, optional
from .trees import Nodes, QuestionTree, ScoreColumn

WHILE_GROWING = "while growing"
"""Value of `scored` in the manifest: all PRMs scored a tree while it grew."""

AFTERWARDS = "afterwards"
"""Value of `scored` in the manifest: the policy grew the trees, then PRM after PRM scored them."""


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
    return _from_format_2({**manifest, "config": config})


def _from_format_2(manifest: dict[str, Any]) -> dict[str, Any]:
    """Convert a manifest of format 2 to format 3, which states when the nodes were scored."""
    return {**manifest, "format": 3, "scored": WHILE_GROWING}


KIND = table_folder.FolderKind(
    "step bank",
    format=3,
    command="cats-jax bank",
    migrations={1: _from_format_1, 2: _from_format_2},
)
_SPARSITY = "sparsity.json"
_SHARES = Rule("two numbers", lambda each: list_of(NUMBER).holds(each) and len(each) == 2)


def write_block(folder: pathlib.Path, number: int, trees: Sequence[QuestionTree]) -> None:
    """Write the trees of one block, and delete tables of scores about other trees.

    Raises:
        RunStoppedError: the files can't be written.
    """
    questions = {
        "id": [tree.question.id for tree in trees],
        "text": [tree.question.text for tree in trees],
        "gold": [tree.gold for tree in trees],
        "level": pa.array([tree.level for tree in trees], pa.int32()),
        "num_nodes": pa.array([len(tree.nodes) for tree in trees], pa.int32()),
    }
    is_scored = any(tree.prompt_tokens for tree in trees)
    if is_scored:
        counts = [tree.prompt_tokens for tree in trees]
        questions["prompt_tokens"] = pa.array(counts, pa.list_(pa.int32()))
    merged: dict[str, list[Any]] = {}
    for tree in trees:
        for name, values in vars(tree.nodes).items():
            merged.setdefault(name, []).extend(values)
    nodes = {
        name: pa.array(values, _NODE_TYPES[name])
        for name, values in merged.items()
        if is_scored or name not in _SCORES
    }
    for path in folder.glob(f"scores-*-{number:05d}.parquet"):
        path.unlink()
    table_folder.write_table(_file(folder, "nodes", number), pa.table(nodes))
    table_folder.write_table(_file(folder, "questions", number), pa.table(questions))


def read_block(folder: pathlib.Path, number: int) -> list[Nodes]:
    """A block's nodes by tree, without scores; BadInputError if a file is missing or damaged."""
    questions, table = (
        table_folder.read_tables([_file(folder, name, number)], KIND)
        for name in ("questions", "nodes")
    )
    trees, start = [], 0
    for size in questions["num_nodes"].to_pylist():
        rows = table.slice(start, size).to_pydict()
        rows |= {name: [[] for _ in range(size)] for name in _SCORES}
        trees.append(Nodes(**rows))
        start += size
    return trees


def write_column(folder: pathlib.Path, prm: int, number: int, trees: Sequence[ScoreColumn]) -> None:
    """Write the scores of the trees of one block by one PRM, whose number in the recipe is `prm`.

    Raises:
        RunStoppedError: the file can't be written.
    """
    table = {
        "prompt_tokens": pa.array([tree.prompt_tokens for tree in trees], pa.int32()),
        **{
            name: pa.array([getattr(tree, name) for tree in trees], _NODE_TYPES[name])
            for name in _SCORES
        },
    }
    table_folder.write_table(_scores_file(folder, prm, number), pa.table(table))


def missing_columns(folder: pathlib.Path, prm: int, count: int) -> list[int]:
    """Numbers of the blocks 0..count-1 that have no table of a PRM's scores."""
    return [number for number in range(count) if not _scores_file(folder, prm, number).is_file()]


def scored_prms(folder: str | pathlib.Path) -> list[str]:
    """Labels of the PRMs that have scored all complete blocks of a bank."""
    folder, manifest = pathlib.Path(folder), read_manifest(folder)
    with reading(f"step bank {str(folder)!r}", "collect it anew, or copy it anew"):
        labels = [spec["label"] for spec in manifest["config"]["prms"]]
        if manifest["scored"] == WHILE_GROWING:
            return labels
    count = _num_blocks(folder)
    return [label for prm, label in enumerate(labels) if not missing_columns(folder, prm, count)]


def write_sparsity(folder: pathlib.Path, sparsity: Mapping[str, Sequence[float]]) -> None:
    """Write `sparsity.json` with the PRMs' sparsities; RunStoppedError if it can't be written."""
    try:
        durable.replace_json(folder / _SPARSITY, sparsity)
    except OSError as error:
        raise durable.stopped(folder, error) from error


def read_sparsity(folder: str | pathlib.Path) -> dict[str, list[float]]:
    """PRM label -> share of small weights, total and in the last layer.

    Raises:
        BadInputError: the file is missing or damaged.
    """
    path = pathlib.Path(folder) / _SPARSITY
    try:
        found = read_json(path)
        check_entries(found, dict.fromkeys(found, _SHARES))
        return found
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BadInputError(
            f"step bank {str(folder)!r} has no readable {_SPARSITY}: run its `cats-jax bank` again"
        ) from error


def known_sparsity(folder: pathlib.Path) -> dict[str, list[float]]:
    """`read_sparsity`, but empty if the file is missing or damaged."""
    try:
        return read_sparsity(folder)
    except BadInputError:
        return {}


def missing_blocks(folder: pathlib.Path, count: int) -> list[int]:
    """Numbers of the blocks 0..count-1 that are not complete."""
    return [number for number in range(count) if not _file(folder, "questions", number).is_file()]


def _num_blocks(folder: pathlib.Path) -> int:
    """Number of complete blocks; BadInputError if they are not the first ones."""
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
        BadInputError: the folder holds no bank, or one of another format or damaged.
    """
    manifest = table_folder.read_manifest(folder, KIND)
    with reading(f"step bank {str(folder)!r}", "collect it anew, or copy it anew"):
        check_entries(manifest, {"world": optional(TEXT), "models": MAPPING})
    return manifest


def read_tables(
    folder: str | pathlib.Path, prms: Sequence[str]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The questions' and the nodes' columns of all complete blocks.

    Args:
        folder: folder of the bank.
        prms: labels of P of the bank's PRMs, in the order of the columns of scores.

    Returns:
        Columns of the questions, as lists, and columns of the nodes, as arrays [V]; `draws` is
        [V, S], and `score` and `prm_tokens` are [V, P].

    Raises:
        BadInputError: the bank has no block yet, a block lacks the scores of one of the PRMs, or a
            file is damaged.
    """
    folder = pathlib.Path(folder)
    count = _num_blocks(folder)
    if count == 0:
        raise BadInputError(
            f"step bank {str(folder)!r} has no question yet: run its `cats-jax bank`"
        )
    manifest = read_manifest(folder)
    labels = [spec["label"] for spec in manifest["config"]["prms"]]
    chosen = [labels.index(label) for label in prms]
    if manifest["scored"] == AFTERWARDS:
        _check_scored(folder, labels, chosen, count)
    questions, table = (
        table_folder.read_tables([_file(folder, name, number) for number in range(count)], KIND)
        for name in ("questions", "nodes")
    )
    rows = questions.to_pydict()
    nodes = {name: table_folder.column_array(table[name]) for name in table.column_names}
    if manifest["scored"] == AFTERWARDS:
        apart = _read_columns(folder, chosen, count)
        rows["prompt_tokens"] = apart.pop("prompt_tokens").tolist()
        nodes |= apart
    else:
        rows["prompt_tokens"] = [[each[prm] for prm in chosen] for each in rows["prompt_tokens"]]
        nodes |= {name: nodes[name][:, chosen] for name in _SCORES}
    return rows, nodes


def _check_scored(
    folder: pathlib.Path, labels: Sequence[str], chosen: Sequence[int], count: int
) -> None:
    """Raise BadInputError if a block has no scores of one of the chosen PRMs."""
    missing = [missing_columns(folder, prm, count) for prm in range(len(labels))]
    for prm in chosen:
        if missing[prm]:
            whole = [label for label, gaps in zip(labels, missing, strict=True) if not gaps]
            way_out = f", or use only the PRMs that it has: {', '.join(whole)}" if whole else ""
            raise BadInputError(
                f"step bank {str(folder)!r} has no scores of PRM {labels[prm]!r} for "
                f"{len(missing[prm])} of its {count} blocks yet: run its `{KIND.command}` again"
                f"{way_out}"
            )


def _read_columns(folder: pathlib.Path, prms: Sequence[int], count: int) -> dict[str, np.ndarray]:
    """Prompt tokens [Q, P], and scores and PRM tokens [V, P], from the tables of scores."""
    tables = [
        table_folder.read_tables(
            [_scores_file(folder, prm, number) for number in range(count)], KIND
        )
        for prm in prms
    ]
    columns_of = {"prompt_tokens": [table["prompt_tokens"].to_numpy() for table in tables]}
    for name in _SCORES:
        columns_of[name] = [table[name].combine_chunks().flatten().to_numpy() for table in tables]
    return {name: np.stack(each, axis=1) for name, each in columns_of.items()}


def _file(folder: pathlib.Path, table: str, number: int) -> pathlib.Path:
    return folder / f"{table}-{number:05d}.parquet"


def _scores_file(folder: pathlib.Path, prm: int, number: int) -> pathlib.Path:
    return _file(folder, f"scores-{prm:02d}", number)


_SCORES = ("score", "prm_tokens")  # columns of `Nodes` with an entry per PRM

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
