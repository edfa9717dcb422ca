"""`cats-jax report`: tables and plot of run folders."""

from __future__ import annotations

import pathlib

import tyro


def report(runs: tyro.conf.Positional[tuple[pathlib.Path, ...]], *, paired: bool = False) -> int:
    """Print the tables of run folders and draw their plots, finished or not.

    Args:
        runs: run folders.
        paired: also compare every two strategies at the same N, question by question.
    """
    from .. import report as tables
    from ..errors import BadInputError
    from ..runs import read_run
    from ..terminal import make_console, show_table
    from .evaluate import show_run

    if not runs:
        raise BadInputError("report: name at least one run folder, such as runs/NAME")
    console = make_console()
    for folder in runs:
        run = read_run(folder)
        show_run(console, run)
        if paired:
            pairs = tables.neighbour_pairs(tables.groups(run.rows))
            show_table(console, tables.paired_table(pairs, "every two strategies at the same N"))
    return 0
