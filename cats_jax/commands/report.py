"""`cats-jax report`: tables and figures of run folders."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        held_out: run on other questions, which gives epsilon, the largest deviation of the scores.
            An answer is certified if it leads every other answer by more than 2 epsilon.
        quantile: share of held-out questions on which that epsilon holds, in (0, 1].
    """
    from ..errors import BadInputError
    from ..reporting.certificates import certified_answers, held_out_run
    from ..reporting.compute_optimal_tables import compute_optimal_sheets
    from ..reporting.drawing import FORMATS, file_name
    from ..reporting.figures import write_figures
    from ..reporting.frontier.tables import frontier_sheets
    from ..reporting.groups import neighbour_pairs
    from ..reporting.paper_cells import nothing_found
    from ..reporting.paper_tables import paper_sheets
    from ..reporting.plain_text import one_line
    from ..reporting.printing import show_sheet
    from ..reporting.run_report import run_parts, show_overview, show_tables
    from ..reporting.run_tables import paired_sheet
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
    folder = None if output is None else output_folder(output)
    console = make_console()

    def more_sheets(run: RunFolder, part: list[Group], label: str, title: str) -> Iterator[Sheet]:
        """The further tables of one data set of a run."""
        pairs = neighbour_pairs(part) if paired else []
        if pairs:
            of = f"every two strategies at the same N{label and f', {label}'}"
            yield paired_sheet(pairs, of, "pairs", cost)
        elif paired:
            none = f"{one_line(title, 200)}: no two strategies at the same N and PRM\n"
            console.print(none, markup=False)
        if compute_optimal:
            yield from compute_optimal_sheets(part, title, cost)
        if validation is not None:
            yield from frontier_sheets(part, run, validation, title, budgets, cost)

    sheets: list[Sheet] = []
    figures: list[pathlib.Path] = []
    merged_runs, taken = merge_runs(found), set[str]()
    for merged in merged_runs:
        # A name from somebody else's folder, such as "..", must not lead out of the output.
        name = file_name(str(merged.manifest["config"]["name"])).lstrip(".") or "run"
        prefix = f"{distinct_name(name, taken)}-" if len(merged_runs) > 1 else ""
        place = None if folder is None else folder / prefix.removesuffix("-")
        made, drawn = show_tables(console, merged, cost), set[str]()
        for label, title, part in run_parts(merged):
            for sheet in more_sheets(merged, part, label, title):
                show_sheet(console, sheet)
                made.append(named_after(sheet, label))
            if place is not None:
                figures += write_figures(part, place, title, FORMATS, run=merged, taken=drawn)
        if any(merged is run for run in whole):
            show_overview(console, merged)
        sheets += [dataclasses.replace(sheet, name=f"{prefix}{sheet.name}") for sheet in made]
    last = paper_sheets(merged_runs) if paper else []
    if paper and not last:
        console.print(f"{nothing_found(merged_runs)}\n", markup=False, soft_wrap=True)
    if reference is not None:
        last += [certified_answers(run, reference, quantile) for run in found]
    for sheet in last:
        show_sheet(console, sheet)
    sheets += last
    if folder is not None:
        written = write_sheets(sheets, folder)
        counts = f"{len(written)} files of tables and {len(figures)} of figures"
        console.print(f"{counts}: {folder}", markup=False, soft_wrap=True)
    elif not all(any(merged is run for run in whole) for merged in merged_runs):
        console.print("figures of filtered or merged runs: give --output FOLDER", soft_wrap=True)
    for reason in skipped:
        make_console(stderr=True).print(f"skipped: {reason}", markup=False, soft_wrap=True)
    return 0


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
