"""`cats-jax page`: one self-contained HTML page of run folders."""

from __future__ import annotations

import pathlib

import tyro


def page(
    runs: tyro.conf.Positional[tuple[pathlib.Path, ...]],
    *,
    output: pathlib.Path | None = None,
) -> int:
    """Write one HTML page of run folders, to look at summary, questions and search trees.

    The page needs neither a server nor a network. Folders with the same policy, questions and
    limits are one part of it.

    Args:
        runs: run folders, finished or not.
        output: path of the page, which ends in .html; by default page.html in the first folder.
    """
    from ..errors import BadInputError
    from ..page.build import write_page
    from ..runs.folder import read_run
    from ..storage.durable import check_output
    from .terminal import make_console

    if not runs:
        raise BadInputError("page: name at least one run folder, such as runs/NAME")
    found = [read_run(folder) for folder in {path.resolve(): path for path in runs}.values()]
    path = output or found[0].folder / "page.html"
    if path.suffix != ".html":
        raise BadInputError(f"--output {str(path)!r} must end in .html, for browsers to open it")
    check_output("--output", path)
    console = make_console()
    with console.status("reading the search trees ..."):
        size = write_page(found, path)
    for line in size.damaged:
        console.print(f"left out: {line}", markup=False, soft_wrap=True)
    trees = f"{size.trees} search trees" if size.trees else "no search trees"
    console.print(
        f"wrote {path}: {size.rows} rows, {trees}, {size.bytes / 1e6:.1f} MB",
        markup=False,
        soft_wrap=True,
    )
    if not size.trees:
        console.print(
            "trees are written for N up to 64, and for larger N with 'trees: true'", markup=False
        )
    return 0
