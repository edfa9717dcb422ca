"""Ablations: results as they are kept, and their tables beside the paper's."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cats_jax.training.ablations import Result, load_ablations
from theory import paper

from .markdown import Table, at_cost

Document = Mapping[str, Any]
"""A `result.json` of `cats-jax ablations` with its `table` and `num_iterations`."""


def read_results(folder: pathlib.Path) -> list[Document]:
    """The results `TABLE/ROW/result.json` in a folder of `cats-jax ablations`."""
    documents = []
    for path in sorted(folder.glob("*/*/result.json")):
        document = {"table": path.parts[-3], **json.loads(path.read_text(encoding="utf-8"))}
        document["num_iterations"] = document.pop("made_of")["row"]["num_iterations"]
        documents.append(document)
    return documents


def merge(kept: Iterable[Document], new: Iterable[Document]) -> list[Document]:
    """Kept results with new ones added or in their place, in the order of the recipe.

    Rows that the recipe no longer has are left out.
    """
    found = {(document["table"], document["label"]): document for document in (*kept, *new)}
    order = [(table, row.label) for table, rows in load_ablations().items() for row in rows]
    return [found[key] for key in order if key in found]


def ablation_tables(study: str, documents: Iterable[Document]) -> list[Table]:
    """One table per table of the study, the paper's figures beside the rows that it has."""
    tables: dict[str, list[Document]] = {}
    for document in documents:
        tables.setdefault(document["table"], []).append(document)
    return [_table(f"{study}-{name}", rows, papers_figures(name)) for name, rows in tables.items()]


def _table(name: str, rows: Iterable[Document], printed: Mapping[str, str]) -> Table:
    lines = []
    for result in map(Result.from_dict, rows):
        value = result.value()
        worth = f"{value.value:.3f} ± {(value.high - value.low) / 2:.3f}"
        collapsed = f"{sum(result.collapsed)}/{len(result.collapsed)}"
        cells = map(at_cost, result.accuracy.mean(axis=0), result.candidates.mean(axis=0))
        line = [result.label, *cells, worth, f"{np.mean(result.entropy):.2f}", collapsed]
        lines.append([*line, printed[result.label]] if printed else line)
    header = ["row", "N = 16", "N = 64", "accuracy minus price", "entropy", "collapsed"]
    return Table(name, [*header, "the paper, %"] if printed else header, lines)


def papers_figures(table: str) -> dict[str, str]:
    """What the paper prints for the rows of one of its tables, by our label; {} for tables of ours.

    Accuracy in percent on MATH-500, mean over PRMs and budgets. For the sparsity, whose table has a
    row for each PRM, the mean over PRMs on MATH-500 and then on AIME24.
    """
    rows: Sequence[Any]
    match table:
        case "sparsity":
            columns = zip(*(row[1:] for row in paper.SPARSITY_ABLATION), strict=True)
            math_with, aime_with, math_without, aime_without = map(np.mean, columns)
            return {
                "with": f"{math_with:.2f}; {aime_with:.2f}",
                "without": f"{math_without:.2f}; {aime_without:.2f}",
            }
        case "reward":
            rows = paper.REWARD_ABLATION
            label = "cost {0.lambda_c:g}, margin {0.lambda_m:g}, score {0.lambda_r:g}"
        case "networks":
            rows = paper.NETWORK_ABLATION
            label = "actor {0.actor_layers}x{0.actor_dim}, critic {0.critic_layers}x{0.critic_dim}"
        case "discount":
            rows, label = paper.DISCOUNT_ABLATION, "{0.discount:g}"
        case _:
            return {}
    return {label.format(row): f"{row.accuracy:.2f}" for row in rows}
