"""The paper's tables beside runs: the paper's numbers, ours, and the differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from theory import paper

from ..datasets.published import PUBLISHED
from ..runs.folder import RunFolder
from . import statistics
from .groups import Group
from .paper_cells import (
    ABLATIONS,
    CATS_LABEL,
    DATASETS,
    POLICY,
    CatsCell,
    PaperCell,
    PaperTable,
    prm_name,
    searched,
)
from .sheets import Column, Record, Sheet, Value, plain

# Column of the paper's comparison -> its heading and the data set that it is read as.
_COMPARED = {
    "gsm8k": ("GSM8K", "gsm8k"),
    "math": ("MATH", "math500"),
    "olympiadbench": ("Olympiad", "olympiadbench"),
}

_ENDS = ("", "_low", "_high")
_EXACT = (
    "accuracies are in percent; the paper prints no intervals, so that the interval of a "
    "difference is that of the run, over its questions"
)


def paper_sheets(runs: Sequence[RunFolder]) -> list[Sheet]:
    """The paper's tables that runs cover at least in part, with the runs' figures beside them.

    A cell of an ablation is a mean over the seven N, our reading of the paper's words "average" and
    "all compute budgets". If some N or PRM of a cell was not searched, the cell has no figure of
    ours. The comparison shows CATS at the largest N of the runs.

    Returns:
        The tables that the runs cover in part; their notes name what the paper or the runs lack.

    Raises:
        BadInputError: two runs have figures for the same cell.
    """
    found = searched(runs)
    sheets = [sheet for table in ABLATIONS if (sheet := _ablation(table, found)) is not None]
    sheets += _comparison(found)
    if not sheets:
        return []
    shown = {sheet.title.partition(",")[0] for sheet in sheets}
    labels = ["tab:compare", *(table.label for table in ABLATIONS)]
    lacking = [label for label in labels if label not in shown]
    others = dict.fromkeys(
        row.strategy
        for run in runs
        for row in run.rows
        if row.strategy not in {key.label for key in found}
    )
    notes = [
        *([f"of these tables the runs have nothing: {', '.join(lacking)}"] if lacking else []),
        *([f"the paper prints no numbers for: {', '.join(others)}"] if others else []),
    ]
    *first, last = sheets
    return [*first, dataclasses.replace(last, notes=(*last.notes, *notes))]


def _ablation(table: PaperTable, found: Mapping[CatsCell, Group]) -> Sheet | None:
    records: list[Record] = []
    lacking: dict[str, list[str]] = {}
    parts: dict[str, int] = {}
    in_runs: set[str] = set()
    for cell in table.cells:
        there, missing = _groups(cell, found)
        if there:
            in_runs.add(cell.dataset)
        if missing:
            lacking.setdefault(cell.dataset, []).append(_describe(cell, there, missing))
        values = None if missing else _mean_by_question(list(there.values()))
        if values:
            parts[cell.dataset] = len(values)
        records.append(
            {
                "row": cell.row,
                "dataset": DATASETS[cell.dataset],
                "prm": prm_name(cell.prms[0]) if len(cell.prms) == 1 else None,
                **_beside(values, cell.accuracy),
            }
        )
    if not in_runs:
        return None
    several = any(len(cell.prms) == 1 for cell in table.cells)
    over = "mean over the seven N" + ("" if several else " and the five PRMs")
    columns = (
        Column("row", ("row",), plain, 0, left=True),
        *([Column("data set", ("dataset",), plain, 0, left=True)] if several else []),
        *([Column("PRM", ("prm",), plain, 0, left=True)] if several else []),
        *_beside_columns("{:.2f}"),
    )
    return Sheet(
        f"paper_{table.label.removeprefix('tab:')}",
        f"{table.label}, {table.about}: {over}, policy {POLICY.rsplit('/', 1)[-1]}, on "
        + ("MATH-500 and AIME24" if several else "MATH-500"),
        columns,
        tuple(records),
        ("dataset",) if several else (),
        (
            _EXACT,
            *(
                f"not in the runs, or not whole, on {DATASETS[dataset]}: "
                + ("; ".join(names) if dataset in in_runs else "all of it")
                for dataset, names in lacking.items()
            ),
            *_parts(parts),
        ),
    )


def _groups(
    cell: PaperCell, found: Mapping[CatsCell, Group]
) -> tuple[dict[CatsCell, Group], list[CatsCell]]:
    """The groups of a cell that the runs have, and the terms of those that they lack."""
    of_labels = [
        [
            CatsCell(POLICY, cell.dataset, label, prm, size)
            for prm in cell.prms
            for size in paper.NUM_CANDIDATES
        ]
        for label in cell.labels
    ]
    wanted = next((keys for keys in of_labels if any(key in found for key in keys)), of_labels[0])
    there = {key: found[key] for key in wanted if key in found}
    return there, [key for key in wanted if key not in found]


def _describe(cell: PaperCell, there: Mapping[CatsCell, Group], missing: list[CatsCell]) -> str:
    name = cell.row
    if len(cell.prms) == 1:
        name += f" with {prm_name(cell.prms[0])}"
    if not there:
        return name
    sizes: dict[str, list[str]] = {}
    for key in missing:
        sizes.setdefault(key.prm, []).append(str(key.num_candidates))
    return (
        f"{name} (no "
        + ", no ".join(
            f"N = {', '.join(of)}" + (f" with {prm_name(prm)}" if len(cell.prms) > 1 else "")
            for prm, of in sizes.items()
        )
        + ")"
    )


def _mean_by_question(found: Sequence[Group]) -> list[float]:
    """For each question that all groups have, the mean over the groups."""
    columns = [group.by_question() for group in found]
    shared = [q for q in columns[0] if all(q in column for column in columns)]
    return [sum(column[q] for column in columns) / len(columns) for q in shared]


def _beside(values: Sequence[float] | None, recorded: float | None) -> dict[str, Value]:
    """Our accuracy in percent, the paper's, and the difference; None where one is missing."""
    found: dict[str, Value] = dict.fromkeys(
        (*(f"ours{end}" for end in _ENDS), "paper", *(f"difference{end}" for end in _ENDS))
    )
    if values:
        accuracy = statistics.accuracy(values)
        for end, of in zip(_ENDS, (accuracy.value, accuracy.low, accuracy.high), strict=True):
            found[f"ours{end}"] = 100 * of
            found[f"difference{end}"] = None if recorded is None else 100 * of - recorded
    return {**found, "paper": recorded, "questions": len(values) if values else None}


def _beside_columns(number: str) -> tuple[Column, ...]:
    text = number.format
    signed = number.replace(":", ":+").format
    return (
        Column("here", ("ours",), text, 1),
        Column("95 % interval", ("ours_low", "ours_high"), f"{number}-{number}".format, 4),
        Column("paper", ("paper",), text, 1),
        Column("difference", ("difference",), signed, 2),
        Column(
            "95 % interval",
            ("difference_low", "difference_high"),
            lambda low, high: f"{signed(low)} to {signed(high)}",
            3,
        ),
        Column("questions", ("questions",), plain, 5),
    )


def _parts(questions: Mapping[str, int]) -> Iterator[str]:
    """A note for data sets of which only a part was searched."""
    parts = []
    for dataset, number in questions.items():
        whole = next(iter(PUBLISHED[dataset].splits.values()))
        if number < whole:
            parts.append(f"{number} of the {whole} questions of {DATASETS[dataset]}")
    if parts:
        yield f"on a part only: {', '.join(parts)}"


def _comparison(found: Mapping[CatsCell, Group]) -> list[Sheet]:
    """The paper's comparison with our rows added, and a table of our differences from it."""
    recorded: list[Record] = []
    differences: list[Record] = []
    lacking: list[str] = []
    parts: dict[str, int] = {}
    for row in paper.COMPARISON:
        printed = {name: getattr(row, name) for name in _COMPARED}
        who: dict[str, Value] = {"method": row.method, "base_model": row.base_model}
        recorded.append({**who, "prm": None, "num_candidates": None, **_with_ends(printed)})
        if row.method != "CATS":
            continue
        ours = _largest(found, paper.HUB_IDS[row.base_model])
        if not ours:
            lacking.append(row.base_model)
        for (prm, size), of_prm in ours.items():
            here: dict[str, Value] = {"prm": prm_name(prm), "num_candidates": size}
            values: dict[str, Value] = {}
            for name, (_, dataset) in _COMPARED.items():
                right = _mean_by_question([of_prm[dataset]]) if dataset in of_prm else []
                beside = _beside(right, printed[name])
                values |= {f"{name}{end}": beside[f"ours{end}"] for end in _ENDS}
                if right:
                    parts[dataset] = len(right)
                    differences.append({**who, **here, "dataset": DATASETS[dataset], **beside})
                else:
                    lacking.append(f"{row.base_model} on {DATASETS[dataset]} with {prm_name(prm)}")
            recorded.append({**who, "method": "CATS, here", **here, **values})
    if not differences:
        return []
    notes = (
        "the paper names neither the PRM nor N of its rows, nor whether its Math is MATH-500; N is "
        "the largest of the runs",
        f"the paper prints no figure for: {', '.join(_unprinted())}",
        *([f"not in the runs: {', '.join(lacking)}"] if lacking else []),
        *_parts(parts),
    )
    return _comparison_sheets(recorded, differences, notes)


def _unprinted() -> Iterator[str]:
    """The figures that the paper's comparison lacks."""
    for row in paper.COMPARISON:
        missing = [title for name, (title, _) in _COMPARED.items() if getattr(row, name) is None]
        if missing:
            yield f"{row.method} on {' and '.join(missing)}"


def _comparison_sheets(
    recorded: Sequence[Record], differences: Sequence[Record], notes: tuple[str, ...]
) -> list[Sheet]:
    base_model = Column("base model", ("base_model",), plain, 0, left=True)
    how = (Column("PRM", ("prm",), plain, 0, left=True), Column("N", ("num_candidates",), plain, 0))
    accuracies = [
        column
        for name, (title, _) in _COMPARED.items()
        for column in (
            Column(title, (name,), "{:.1f}".format, 1),
            Column("95 % interval", (f"{name}_low", f"{name}_high"), "{:.1f}-{:.1f}".format, 2),
        )
    ]
    return [
        Sheet(
            "paper_compare",
            "tab:compare, other systems and CATS: accuracy in percent, in the paper and here",
            (Column("method", ("method",), plain, 0, left=True), base_model, *how, *accuracies),
            tuple(recorded),
            notes=notes,
        ),
        Sheet(
            "paper_compare_differences",
            "tab:compare, CATS here minus CATS in the paper",
            (
                base_model,
                Column("data set", ("dataset",), plain, 0, left=True),
                *how,
                *_beside_columns("{:.1f}"),
            ),
            tuple(differences),
            ("base_model",),
            (_EXACT,),
        ),
    ]


def _with_ends(values: Mapping[str, float | None]) -> dict[str, Value]:
    """The paper's values, which have no intervals."""
    return {
        f"{name}{end}": None if end else value for name, value in values.items() for end in _ENDS
    }


def _largest(
    found: Mapping[CatsCell, Group], policy: str
) -> dict[tuple[str, int], dict[str, Group]]:
    """Groups of CATS by data set, for each PRM at its largest N."""
    mine = [
        key
        for key in found
        if (key.policy, key.label) == (policy, CATS_LABEL)
        and key.dataset in {dataset for _, dataset in _COMPARED.values()}
    ]
    largest = {
        prm: max(key.num_candidates for key in mine if key.prm == prm)
        for prm in dict.fromkeys(key.prm for key in mine)
    }
    return {
        (prm, size): {
            key.dataset: found[key] for key in mine if (key.prm, key.num_candidates) == (prm, size)
        }
        for prm, size in largest.items()
    }
