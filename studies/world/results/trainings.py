"""Controllers of several training seeds, whose labels end in `-SEED`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cats_jax.reporting.groups import Group
from cats_jax.reporting.statistics import mean_of_seeds

from .groups import PRMS, SIZES, cell, find, of_seeds, value
from .markdown import Table, share


def seed_table(name: str, groups: Sequence[Group], label: str) -> Table:
    """Mean accuracy of the controllers `LABEL-SEED`, with Student's interval over seeds."""
    lines = []
    for size in SIZES:
        cells = []
        for prm in PRMS:
            accuracies, tokens = _figures(groups, label, size, prm)
            if len(accuracies) > 1:
                mean = mean_of_seeds(accuracies)
                half = share((mean.high - mean.low) / 2)
                cells.append(f"{share(mean.value)} ± {half} ({np.mean(tokens):.0f})")
            else:
                cells.append("")
        if any(cells):
            lines.append([str(size), *cells])
    return Table(name, ["N", *PRMS], lines)


def price_table(name: str, groups: Sequence[Group]) -> Table:
    """Controllers `KIND-PRICE-SEED`: accuracy minus price, mean over PRMs and N, of each seed."""
    values: dict[tuple[str, str], list[str]] = {}
    for label in sorted({group.strategy for group in groups}):
        kind, price, _ = label.split("-")
        found = [value(group, float(price)) for group in groups if group.strategy == label]
        values.setdefault((kind, price), []).append(share(float(np.mean(found))))
    lines = [[f"{kind} scores", price, *row] for (kind, price), row in values.items()]
    num_seeds = max(map(len, values.values()), default=0)
    return Table(name, ["ranked by", "price", *(f"seed {n}" for n in range(num_seeds))], lines)


def training_tables(name: str, groups: Sequence[Group]) -> list[Table]:
    """Controllers `LABEL-SEED` by label: their values, and for each N accuracies with each PRM.

    A value is a mean over PRMs: of all seeds, and in brackets of each seed. An accuracy is the mean
    over seeds, then the lowest and the highest.
    """
    labels = dict.fromkeys(group.strategy.rpartition("-")[0] for group in groups)
    labels.pop("", None)  # greedy decoding
    sizes = sorted({group.num_candidates for group in groups} - {1})
    header = ["training", *(f"N = {size}" for size in sizes)]
    values = [[label, *(_values(groups, label, size) for size in sizes)] for label in labels]
    tables = [Table(f"{name}-values", header, values)]
    for size in sizes:
        lines = [["greedy decoding", *([cell(find(groups, "greedy", size, None))] * len(PRMS))]]
        for label in labels:
            lines.append([label, *(_mean_and_range(groups, label, size, prm) for prm in PRMS)])
        tables.append(Table(f"{name}-{size}", ["training", *PRMS], lines))
    return tables


def _values(groups: Sequence[Group], label: str, size: int) -> str:
    seeds: dict[str, list[float]] = {}
    for group in of_seeds(groups, label, size):
        seeds.setdefault(group.strategy, []).append(value(group))
    means = [float(np.mean(seeds[seed])) for seed in sorted(seeds)]
    return f"{share(float(np.mean(means)))} ({', '.join(map(share, means))})"


def _mean_and_range(groups: Sequence[Group], label: str, size: int, prm: str) -> str:
    accuracies, tokens = _figures(groups, label, size, prm)
    mean = share(float(np.mean(accuracies)))
    return f"{mean} [{share(min(accuracies))}, {share(max(accuracies))}] ({np.mean(tokens):.0f})"


def _figures(groups: Sequence[Group], label: str, size: int, prm: str) -> tuple[list[float], ...]:
    """Accuracy and tokens per question, each of every seed."""
    found = of_seeds(groups, label, size, prm)
    return [group.accuracy().value for group in found], [group.mean("tokens") for group in found]
