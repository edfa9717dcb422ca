"""The report of a run: its tables as text, its summary and its figures."""

from __future__ import annotations

import dataclasses
import errno
import io
import pathlib

from rich.console import Console

from ..errors import BadInputError
from ..runs import run_manifest
from ..runs.folder import RunFolder, write_summary
from .figures import write_figures
from .groups import Group, by_dataset, groups, summarize
from .printing import PIPE_WIDTH, show_sheet
from .run_tables import Cost, run_sheets
from .sheets import Sheet, named_after
from .step_boundaries import without_boundaries


def report_text(run: RunFolder, cost: Cost = "tokens") -> str:
    """The tables of a run with their notes, as `show_tables` prints them to a file.

    Raises:
        BadInputError: see `run_parts`.
    """
    text = io.StringIO()
    console = Console(
        file=text, width=PIPE_WIDTH, highlight=False, force_terminal=False, force_jupyter=False
    )
    show_tables(console, run, cost)
    return text.getvalue()


def show_run(console: Console, run: RunFolder) -> None:
    """Print the tables of a run, and write its summary and figures."""
    show_tables(console, run)
    show_overview(console, run)


def show_tables(console: Console, run: RunFolder, cost: Cost = "tokens") -> list[Sheet]:
    """Print the tables of a run, and return them."""
    sheets = [
        named_after(sheet, label)
        for label, title, part in run_parts(run)
        for sheet in run_sheets(part, title, cost)
    ]
    sheets[0] = dataclasses.replace(sheets[0], notes=(*sheets[0].notes, *run.notes))
    for sheet in sheets:
        show_sheet(console, sheet)
    warning = without_boundaries(run)
    if warning is not None:
        console.print(warning, markup=False, soft_wrap=True)
    return sheets


def show_overview(console: Console, run: RunFolder) -> None:
    """Write the summary and the figures of a run, and print the paths of the figures.

    A folder that may only be read, such as another person's, still has its tables printed.
    """
    try:
        lines = [f"figure: {path}" for path in write_overview(run)]
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        reason = f"{str(run.folder)!r} can't be written ({error.strerror})"
        lines = [f"no figures there: {reason}; --output FOLDER of `report` writes them elsewhere"]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def write_overview(run: RunFolder) -> list[pathlib.Path]:
    """Write the summary and the figures of a run to its folder; returns the paths of figures."""
    taken: set[str] = set()
    paths = [
        path
        for _, title, part in run_parts(run)
        for path in write_figures(part, run.folder, title, run=run, taken=taken)
    ]
    write_summary(run.folder, summarize(run))
    return paths


def run_parts(run: RunFolder) -> list[tuple[str, str, list[Group]]]:
    """(label, title, groups) of each data set of a run; the title says if questions lack rows.

    Raises:
        BadInputError: the run has no rows, or its manifest lacks an entry.
    """
    run_manifest.check_described(run.folder, run.manifest)
    if not run.rows:
        raise BadInputError(f"{str(run.folder)!r} has no rows yet: run `cats-jax evaluate` first")
    name = str(run.manifest["config"]["name"])
    questions = run.manifest["questions"]
    source, asked = questions["source"], questions.get("count")
    parts = []
    for label, part in by_dataset(groups(run.rows)).items():
        count = len({row.question for group in part for row in group.rows})
        seeds = sorted({row.seed for group in part for row in group.rows})
        is_part = not label and isinstance(asked, int) and count < asked
        number = f"{count} of {asked}" if is_part else str(count)
        runs = f"; run seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else ""
        parts.append((label, f"{name}: {number} questions of {label or source}{runs}", part))
    return parts


def has_failed_group(run: RunFolder) -> bool:
    """Whether every search of some strategy, N and PRM on a data set failed."""
    return any(all(row.status == "failed" for row in group.rows) for group in groups(run.rows))
