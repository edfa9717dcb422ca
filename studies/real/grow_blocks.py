"""Several processes record one step bank on one GPU.

    python -m studies.real.grow_blocks begin RECIPE.yaml FOLDER
    python -m studies.real.grow_blocks grow RECIPE.yaml FOLDER [RECIPE.yaml FOLDER ...] --share 2/6
    python -m studies.real.grow_blocks score RECIPE.yaml FOLDER --prm LABEL

`begin` makes the folder. `grow` grows the trees of every sixth block, from the second on, except
blocks that are there. The blocks of several banks count as one list, in turns. `score` adds one
PRM's scores to all blocks that are grown. `cats-jax bank RECIPE.yaml --output FOLDER` then finds
all blocks, and records what is missing. The recipe must have `revisits_per_prm: 0`.

A single process leaves a GPU idle between the short kernels of a step. Eight at once with a model
of 1.5 billion parameters fill the memory of an H200. See docs/engines/gpu.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from cats_jax.bank.build import BLOCK_SIZE, PlannedBank, plan_bank
from cats_jax.bank.grow import grow
from cats_jax.bank.recipe import load_bank_recipe
from cats_jax.bank.score import score_column
from cats_jax.bank.store import (
    KIND,
    missing_blocks,
    missing_columns,
    read_block,
    read_manifest,
    write_block,
    write_column,
)
from cats_jax.errors import BadInputError
from cats_jax.grading.graders import default_grader
from cats_jax.models.source import ModelFolders
from cats_jax.specs.recipe import PolicySpec, PrmSpec
from cats_jax.storage.table_folder import locked

_Bank = tuple[PlannedBank, pathlib.Path]


class _WithoutDigests(ModelFolders):
    """Models that are not read for a manifest, which only `begin` writes."""

    def fingerprint(self, spec: PolicySpec | PrmSpec) -> dict[str, Any]:
        """An empty fingerprint."""
        del spec
        return {}


def _begin(planned: PlannedBank, folder: pathlib.Path) -> None:
    """Make the folder of a bank without blocks."""
    with locked(folder, planned.manifest, KIND):
        print(f"{folder}: {len(planned.blocks)} blocks")


def _check_begun(planned: PlannedBank, folder: pathlib.Path) -> None:
    """Raise BadInputError unless the folder was begun with this recipe and these blocks."""
    old, new = read_manifest(folder), json.loads(json.dumps(planned.manifest))
    for key in ("config", "questions", "block_size", "scored"):
        if old[key] != new[key]:
            raise BadInputError(f"{folder}: was begun with another {key}: choose another folder")


def _in_turns(banks: list[_Bank]) -> Iterator[tuple[_Bank, int]]:
    """The blocks of several banks: the first ones of all, then the second ones, and so on."""
    columns = [[(bank, number) for number in range(len(bank[0].blocks))] for bank in banks]
    for turn in itertools.zip_longest(*columns):
        yield from (each for each in turn if each is not None)


def _grow(banks: list[_Bank], first: int, every: int) -> None:
    """Grow what is missing of a share of the blocks of banks that share their policy."""
    spec = banks[0][0].recipe.policy
    if any(planned.recipe.policy != spec for planned, _ in banks):
        raise BadInputError("the banks have several policies: grow those of one policy at a time")
    policy = ModelFolders().policy(spec)
    for (planned, folder), number in list(_in_turns(banks))[first - 1 :: every]:
        if number not in missing_blocks(folder, len(planned.blocks)):
            continue
        start = time.perf_counter()
        trees = grow(
            planned.blocks[number],
            planned.known,
            policy,
            {},
            default_grader(planned.recipe.questions),
            planned.recipe.allocation,
            max_depth=planned.recipe.max_depth,
            seed=planned.recipe.seed,
        )
        write_block(folder, number, trees)
        tokens = sum(sum(tree.nodes.num_tokens) for tree in trees)
        print(
            f"{folder} {number}: {tokens} tokens, {time.perf_counter() - start:.0f} s", flush=True
        )


def _score(planned: PlannedBank, folder: pathlib.Path, label: str) -> None:
    """Add one PRM's scores to the blocks that are grown."""
    column = [spec.label for spec in planned.recipe.prms].index(label)
    prm = ModelFolders().prm(planned.recipe.prms[column])
    absent = set(missing_blocks(folder, len(planned.blocks)))
    for number in missing_columns(folder, column, len(planned.blocks)):
        if number in absent:
            continue
        start = time.perf_counter()
        pairs = list(zip(planned.blocks[number], read_block(folder, number), strict=True))
        write_column(folder, column, number, score_column(pairs, prm))
        print(f"{folder} {label} {number}: {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    """Begin, grow or score banks."""
    parser = argparse.ArgumentParser(description="Several processes record one step bank.")
    parser.add_argument("what", choices=("begin", "grow", "score"))
    parser.add_argument("banks", nargs="+", type=pathlib.Path, metavar="RECIPE FOLDER")
    parser.add_argument("--share", default="1/1", help="I/N: every N-th block from the I-th on")
    parser.add_argument("--prm", help="label of the PRM")
    parser.add_argument("--block-size", type=int, default=BLOCK_SIZE)
    options = parser.parse_args()
    models = ModelFolders() if options.what == "begin" else _WithoutDigests()
    banks = [
        (plan_bank(load_bank_recipe(recipe), models, options.block_size), folder)
        for recipe, folder in zip(options.banks[::2], options.banks[1::2], strict=True)
    ]
    first, every = map(int, options.share.split("/"))
    if not 1 <= first <= every:
        parser.error(f"--share {options.share}: needs I/N with I from 1 to N")
    for planned, folder in banks:
        labels = [spec.label for spec in planned.recipe.prms]
        if options.what == "score" and options.prm not in labels:
            parser.error(f"--prm {options.prm}: {folder} needs one of {', '.join(labels)}")
    for planned, folder in banks:
        if planned.recipe.allocation.reads_scores:
            raise BadInputError(f"{folder}: scores may not choose draws: set revisits_per_prm: 0")
        if options.what != "begin":
            _check_begun(planned, folder)
    if options.what == "grow":
        _grow(banks, first, every)
        return
    for planned, folder in banks:
        if options.what == "begin":
            _begin(planned, folder)
        else:
            _score(planned, folder, options.prm)


if __name__ == "__main__":
    main()
