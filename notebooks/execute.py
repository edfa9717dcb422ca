"""Run the notebooks from their text and store them with their outputs (`make notebooks`).

    python notebooks/execute.py                        all of them
    python notebooks/execute.py accuracy_theorem       one
    python notebooks/execute.py --check NAME           run only, write nothing

What is written depends on nothing but code and outputs: no timing, no random cell ids.
"""

import argparse
import pathlib
import sys
import time

import jupytext
import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent
SECONDS_PER_CELL = 600


def names() -> list[str]:
    """Every notebook's name; this script is none."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.name != "execute.py")


def execute(name: str) -> nbformat.NotebookNode:
    """The notebook with fresh outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed, an assertion for instance.
    """
    notebook = jupytext.read(FOLDER / f"{name}.py")
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata.pop("lines_to_next_cell", None)
    return notebook


def main() -> int:
    """Exit code 1 if a notebook fails."""
    parser = argparse.ArgumentParser(description="Run the notebooks and store their outputs.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names())}; default: all")
    parser.add_argument("--check", action="store_true", help="run only, write nothing")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(names()))
    if unknown:
        parser.error(f"there is no notebook {unknown[0]!r}: choose of {', '.join(names())}")
    failed = 0
    for name in options.names or names():
        started = time.monotonic()
        try:
            notebook = execute(name)
        except nbclient.exceptions.CellExecutionError as error:
            failed = 1
            print(f"{name}: FAILED\n{error}", file=sys.stderr)
            continue
        if not options.check:
            nbformat.write(notebook, FOLDER / f"{name}.ipynb")
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
