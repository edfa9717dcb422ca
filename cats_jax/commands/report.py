"""`cats-jax report`: tables and figures of run folders."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Literal, NamedTuple

import tyro

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ..reporting.groups import Group
    from ..reporting.selection import Selection
    from ..reporting.sheets import Sheet
    from ..runs.folder import RunFolder


def report(
    runs: tyro.conf.Positional[tuple[pathlib.Path, ...]],
    *,
    output: pathlib.Path | None = None,
    strategies: tuple[str, ...] = (),
    num_candidates: tuple[int, ...] = (),
    prms: tuple[str, ...] = (),
    cost: Literal["tokens", "flops"] = "tokens",
    paired: bool = False,
    compute_optimal: bool = False,
    frontier: tuple[pathlib.Path, ...] = (),
    budgets: tuple[float, ...] = (),
    paper: bool = False,
    held_out: pathlib.Path | None = None,
    quantile: float = 0.5,
) -> int:
    """Print the tables of run folders and draw their figures, finished or not.

    Folders with the same policy, questions and limits share one table, and their strategies are
    compared question by question. A row that several of them have counts once. If several folders
    are given, one that can't be read is named and skipped.

    Args:
        runs: run folders.
        output: also write every table to this folder as Markdown, CSV and LaTeX, and every figure
            as PNG, SVG and PDF; the figures of runs that can't be merged go to a folder each.
        strategies: labels of the strategies to report; default: all.
        num_candidates: values of N to report; strategies that ignore N stay. Default: all.
        prms: labels of the PRMs to report; strategies without a PRM stay. Default: all.
        cost: measure of cost for baselines of similar compute and for budgets: tokens or FLOPs.
        paired: also compare every two strategies at the same N, question by question.
        compute_optimal: also choose the best strategy, N and PRM at each budget for each level of
            the questions (eq. 1 of the paper), on one half of them, and evaluate it on the other.
        frontier: runs on validation questions: also compare each trained controller with the Pareto
            frontier of the untrained strategies, whose mixtures are chosen on these runs.
        budgets: mean costs of a question at which they are compared; default: nine, evenly spaced
            in their logarithm from the cheapest to the most expensive configuration.
        paper: also put the paper's ablations and its comparison beside the runs, where the runs
            have the paper's policy, PRMs, data sets and strategies as recipes/paper names them.
        held_out: run on other questions, which gives epsilon: on the share --quantile of them no
            score deviates from the truth by more. An answer is certified if it leads every other
            answer by more than 2 epsilon.
        quantile: share of held-out questions on which that epsilon holds, in (0, 1].
    """
    from ..errors import BadInputError
    from ..reporting.certificates import NothingToCertifyError, certified_answers, held_out_run
    from ..reporting.figure_setup import file_name
    from ..reporting.printing import show_sheet
    from ..reporting.run_report import show_overview
    from ..reporting.selection import Selection, select_runs
    from ..reporting.sheet_files import output_folder, write_sheets
    from ..reporting.sheets import distinct_name, named_after
    from ..runs.merge import merge_runs
    from ..runs.reading import read_runs
    from .terminal import make_console

    if not runs:
        raise BadInputError("report: name at least one run folder, such as runs/NAME")
    if budgets and not frontier:
        raise BadInputError("--budgets are those of --frontier: name runs on validation questions")
    reference = held_out_run(held_out, quantile)
    whole, skipped = read_runs(runs)
    selection = Selection(strategies, num_candidates, prms)
    found = select_runs(whole, selection)
    validation = _validation(frontier, selection) if frontier else None
    more = _More(cost, paired, compute_optimal, validation, budgets)
    folder = None if output is None else output_folder(output)
    console = make_console()
    sheets, figures = [], []
    merged_runs, taken = merge_runs(found), set[str]()
    for merged in merged_runs:
        # A name from somebody else's folder, such as "..", must not lead out of the output.
        name = file_name(str(merged.manifest["config"]["name"])).lstrip(".") or "run"
        prefix = f"{distinct_name(name, taken)}-" if len(merged_runs) > 1 else ""
        place = None if folder is None else folder / prefix.removesuffix("-")
        made, drawn = _show_run(console, merged, more, place)
        if any(merged is run for run in whole):
            show_overview(console, merged)
        sheets += [dataclasses.replace(sheet, name=f"{prefix}{sheet.name}") for sheet in made]
        figures += drawn
    if paper:
        sheets += _show_paper(console, merged_runs)
    if reference is not None:
        failures = []
        for run in found:
            try:
                sheet = certified_answers(run, reference, quantile)
            except NothingToCertifyError as error:
                failures.append(str(error))
                continue
            if len(found) > 1:
                title = f"{run.folder}: {sheet.title}"
                sheet = dataclasses.replace(named_after(sheet, run.folder.name), title=title)
            sheets.append(sheet)
            show_sheet(console, sheet)
        if len(failures) == len(found):
            raise BadInputError("; ".join(failures))
        skipped += failures
    if folder is not None:
        written = write_sheets(sheets, folder)
        counts = f"{len(written)} files of tables and {len(figures)} of figures"
        console.print(f"{counts}: {folder}", markup=False, soft_wrap=True)
    elif not all(any(merged is run for run in whole) for merged in merged_runs):
        console.print("figures of filtered or merged runs: give --output FOLDER", soft_wrap=True)
    for reason in skipped:
        make_console(stderr=True).print(f"skipped: {reason}", markup=False, soft_wrap=True)
    return 0


class _More(NamedTuple):
    """What is reported of every run beside its tables."""

    cost: Literal["tokens", "flops"]
    paired: bool
    compute_optimal: bool
    validation: RunFolder | None
    budgets: tuple[float, ...]


def _show_run(
    console: Console, run: RunFolder, more: _More, place: pathlib.Path | None
) -> tuple[list[Sheet], list[pathlib.Path]]:
    """Print the tables of a run, and draw its figures into a folder if one is given."""
    from ..reporting.figure_setup import FORMATS
    from ..reporting.figures import write_figures
    from ..reporting.printing import show_sheet
    from ..reporting.run_report import run_parts, show_tables
    from ..reporting.sheets import named_after

    made, figures = show_tables(console, run, more.cost), []
    taken: set[str] = set()
    for label, title, part in run_parts(run):
        for sheet in _more_sheets(console, run, part, label, title, more):
            show_sheet(console, sheet)
            made.append(named_after(sheet, label))
        if place is not None:
            figures += write_figures(part, place, title, FORMATS, run=run, taken=taken)
    return made, figures


def _more_sheets(
    console: Console, run: RunFolder, part: list[Group], label: str, title: str, more: _More
) -> list[Sheet]:
    """The further tables of one part of a run."""
    from ..reporting.compute_optimal_tables import compute_optimal_sheets
    from ..reporting.frontier.tables import frontier_sheets
    from ..reporting.groups import neighbour_pairs
    from ..reporting.plain_text import one_line
    from ..reporting.run_tables import paired_sheet

    sheets: list[Sheet] = []
    pairs = neighbour_pairs(part) if more.paired else []
    if pairs:
        of = f"every two strategies at the same N{label and f', {label}'}"
        sheets.append(paired_sheet(pairs, of, "pairs", more.cost))
    elif more.paired:
        none = f"{one_line(title, 200)}: no two strategies at the same N and PRM\n"
        console.print(none, markup=False)
    if more.compute_optimal:
        sheets += compute_optimal_sheets(part, title, more.cost)
    if more.validation is not None:
        sheets += frontier_sheets(part, run, more.validation, title, more.budgets, more.cost)
    return sheets


def _show_paper(console: Console, runs: Sequence[RunFolder]) -> list[Sheet]:
    """Print the paper's tables beside the runs."""
    from ..reporting.paper_cells import nothing_found
    from ..reporting.paper_tables import paper_sheets
    from ..reporting.printing import show_sheet

    sheets = paper_sheets(runs)
    for sheet in sheets:
        show_sheet(console, sheet)
    if not sheets:
        console.print(f"{nothing_found(runs)}\n", markup=False, soft_wrap=True)
    return sheets


def _validation(folders: tuple[pathlib.Path, ...], selection: Selection) -> RunFolder:
    """The chosen rows of the runs on validation questions as one run."""
    from ..errors import BadInputError
    from ..reporting.selection import select_runs
    from ..runs.merge import merge_runs
    from ..runs.reading import read_runs

    found, skipped = read_runs(folders)
    if skipped:
        raise BadInputError(f"--frontier: {'; '.join(skipped)}")
    merged = merge_runs(select_runs(found, selection))
    if len(merged) > 1:
        names = ", ".join(str(run.folder) for run in merged)
        raise BadInputError(
            f"--frontier: {names} differ in policy, questions or limits: name runs of one setting"
        )
    return merged[0]
