"""`cats-jax report`: tables and plot of run folders."""

from __future__ import annotations

import pathlib

import tyro


def report(
    runs: tyro.conf.Positional[tuple[pathlib.Path, ...]],
    *,
    paired: bool = False,
    held_out: pathlib.Path | None = None,
    level: float = 0.5,
) -> int:
    """Print the tables of run folders and draw their plots, finished or not.

    Folders with the same policy, questions and limits are one table, and their strategies are
    compared question by question; a row may be in one of them only.

    Args:
        runs: run folders.
        paired: also compare every two strategies at the same N, question by question.
        held_out: run on other questions, to tell which answers are certified: those that lead
            every other answer by more than 2 epsilon, the scores' largest deviation there.
        level: share of held-out questions on which that epsilon holds, in (0, 1].
    """
    from ..errors import BadInputError
    from ..reporting.groups import by_dataset, groups, neighbour_pairs
    from ..reporting.run_tables import paired_table
    from ..runs.folder import read_run
    from ..runs.merge import merge_runs
    from .evaluate import held_out_run, show_certificates, show_run, show_tables
    from .terminal import make_console, show_table

    if not runs:
        raise BadInputError("report: name at least one run folder, such as runs/NAME")
    reference = None if held_out is None else held_out_run(held_out, level)
    console = make_console()
    found = [read_run(folder) for folder in {path.resolve(): path for path in runs}.values()]
    for merged in merge_runs(found):
        if any(merged is run for run in found):
            show_run(console, merged)
        else:
            show_tables(console, merged)
        if paired:
            for label, part in by_dataset(groups(merged.rows)).items():
                title = f"every two strategies at the same N{label and f', {label}'}"
                show_table(console, paired_table(neighbour_pairs(part), title))
    if reference is not None:
        for run in found:
            show_certificates(console, run, reference, level)
    return 0
