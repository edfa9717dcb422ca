"""The tables and figures of the pages, and the kept rows each is made from."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from cats_jax.reporting.figure_setup import drawing, save_figure
from cats_jax.reporting.groups import Group

from .ablations import ablation_tables
from .accuracies import accuracy_tables, level_table, size_table
from .banks import ceiling_table, sparsity_tables
from .comparisons import chosen_table, equal_cost_table, same_size_table, verdict_table
from .frontier import POLICIES, draw_frontier
from .frontier_tables import frontier_tables
from .groups import SIZES
from .markdown import Table
from .methods import draw_methods, method_tables
from .page_figures import make_page_figures
from .ranking import ranking_table
from .rows import load_groups
from .trainings import price_table, seed_table, training_tables

_BASELINES = ("baselines-small", "baselines-64", "baselines-256")
_LIVE = (*_BASELINES, "cats", "cats-256", "seeds", "from-weak", "paper", "calibrated")


def make(results: pathlib.Path) -> list[pathlib.Path]:
    """Make every table and figure that the kept rows allow; those of earlier calls are replaced.

    `results` has pages and `rows`, and gets `tables` and `figures`. A table that no page includes,
    here or in a folder beside this one, is left out. Returns the files that were written.
    """
    pages = "".join(page.read_text(encoding="utf-8") for page in results.parent.glob("*/*.md"))
    rows, figures = results / "rows", results / "figures"
    for folder in (results / "tables", figures):
        folder.mkdir(exist_ok=True)
    written: list[pathlib.Path] = []
    tables = list(_tables_of_one_part(rows))
    compared: dict[str, Table] = {}
    for policy in ("weak", "strong"):
        tables += _replay_tables(rows, policy)
        tables += frontier_tables(rows, policy)
        ranking = rows / f"ranking-{policy}.json"
        if ranking.is_file():
            tables.append(ranking_table(f"ranking-{policy}", _read(ranking)))
        live = load_groups(rows, policy, _LIVE)
        if live:
            tables += _live_tables(rows, policy, live)
            with drawing():
                count = len({question for group in live for question in group.by_question()})
                title = f"Accuracy against tokens: policy {policy}, {count} test questions"
                figure = draw_frontier(live, title)
                written.append(save_figure(figure, figures / f"frontier-{policy}.png"))
        for cost in ("tokens", "candidates"):
            table = equal_cost_table(f"equal-{cost}-{policy}", live, tuple(POLICIES), cost)
            compared[f"{policy}, {{}}, equal {cost}"] = table
    methods = load_groups(rows, "weak", ["methods"])
    if methods:
        tables += method_tables("methods-weak", methods)
        count = len(methods[0].by_question())
        for prm in sorted({group.prm for group in methods if group.prm is not None}):
            with drawing():
                title = f"Methods: policy weak, PRM {prm}, {count} questions"
                figure = draw_methods(methods, prm, title)
                written.append(save_figure(figure, figures / f"methods-weak-{prm}.png"))
    for table in (*tables, *compared.values(), verdict_table("verdicts", compared)):
        if table.lines and f"tables/{table.name}.md" in pages:
            path = results / "tables" / f"{table.name}.md"
            path.write_text(table.markdown(), encoding="utf-8")
            written.append(path)
    return written + make_page_figures(results)


def _live_tables(rows: pathlib.Path, policy: str, groups: Sequence[Group]) -> Iterator[Table]:
    yield from accuracy_tables(f"live-{policy}", groups)
    strategies = ("greedy", "majority", "best_of_n", "beam", "cats", "cats-0.02")
    yield level_table(f"levels-{policy}", groups, strategies, 16)
    yield seed_table(f"seeds-{policy}", groups, "cats-seed")
    yield same_size_table(f"same-n-{policy}", groups, "cats")
    bank = rows / f"bank-{policy}.json"
    if bank.is_file():
        measured = _read(bank)
        yield from sparsity_tables(f"sparsity-{policy}", groups, measured)
        yield ceiling_table(f"oracle-{policy}", groups, measured)


def _replay_tables(rows: pathlib.Path, policy: str) -> Iterator[Table]:
    test = load_groups(rows, policy, ["test-replay"])
    yield from accuracy_tables(f"replay-{policy}", test)
    validation = load_groups(rows, policy, ["validation-replay"])
    if validation:
        for size in set(SIZES) & {group.num_candidates for group in test}:
            yield chosen_table(f"chosen-{policy}-{size}", validation, test, size)


def _tables_of_one_part(rows: pathlib.Path) -> Iterator[Table]:
    yield price_table("validation-weak", load_groups(rows, "weak", ["seeds-validation"]))
    yield from training_tables("transfer-weak", load_groups(rows, "weak", ["transfer"]))
    yield from accuracy_tables("offline-weak", load_groups(rows, "weak", ["offline"]))
    confidence = load_groups(rows, "weak", ["confidence-test"])
    yield size_table("confidence-weak", confidence, "confidence")
    ablations = load_groups(rows, "weak", ["paper", "ablations"])
    yield from accuracy_tables("live-ablations", ablations)
    for path in sorted(rows.glob("ablations*.json")):
        yield from ablation_tables(path.stem, _read(path))


def _read(path: pathlib.Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
