"""Accuracy of every strategy: with each PRM, and by the level of the question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from cats_jax.reporting.groups import Group

from .groups import PRMS, SIZES, cell, find
from .markdown import Table, share


def accuracy_tables(name: str, groups: Sequence[Group]) -> list[Table]:
    """Every strategy with every PRM: accuracy (tokens), one table per N."""
    strategies = dict.fromkeys(group.strategy for group in groups)
    tables = []
    # Greedy decoding stands beside every N, but makes no table by itself.
    for size in sorted(set(SIZES) & {group.num_candidates for group in groups}):
        lines = [
            [strategy, *(cell(find(groups, strategy, size, prm)) for prm in PRMS)]
            for strategy in strategies
        ]
        lines = [line for line in lines if any(line[1:])]
        tables.append(Table(f"{name}-{size}", ["strategy", *PRMS], lines))
    return tables


def size_table(name: str, groups: Sequence[Group], prm: str) -> Table:
    """Every strategy at each N, with one PRM: accuracy (tokens).

    The controllers `LABEL-SEED` have one line. Its cells have each value that a seed has.
    """
    sizes = sorted(set(SIZES) & {group.num_candidates for group in groups})
    lines: dict[str, list[dict[str, None]]] = {}
    for strategy in dict.fromkeys(group.strategy for group in groups):
        label, _, seed = strategy.rpartition("-")
        cells = lines.setdefault(label if seed.isdigit() else strategy, [{} for _ in sizes])
        for found, size in zip(cells, sizes, strict=True):
            group = find(groups, strategy, size, prm)
            if group is not None:
                found[cell(group)] = None
    header = ["strategy", *(f"N = {size}" for size in sizes)]
    return Table(name, header, [[label, *map(", ".join, row)] for label, row in lines.items()])


def level_table(name: str, groups: Sequence[Group], strategies: Sequence[str], size: int) -> Table:
    """Accuracy by the level of the question, from 1 to 5, with a good and a middling PRM."""
    lines = []
    for strategy in strategies:
        found = (find(groups, strategy, size, prm) for prm in ("exact", "monte-carlo"))
        # A strategy that reads no PRM is found twice.
        for group in {group.prm: group for group in found if group is not None}.values():
            right: defaultdict[int, list[bool]] = defaultdict(list)
            for row in group.rows:
                right[row.meta["level"]].append(row.correct)
            shares = [share(float(np.mean(right[level]))) for level in sorted(right)]
            lines.append([strategy, str(group.num_candidates), group.prm or "-", *shares])
    return Table(name, ["strategy", "N", "PRM", *(f"level {n}" for n in range(1, 6))], lines)
