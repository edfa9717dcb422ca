"""`cats-jax grade`: a file of predictions and gold answers, graded within hard limits."""

from __future__ import annotations

import pathlib

from ..errors import BadInputError


def grade(
    *,
    input: pathlib.Path,
    output: pathlib.Path,
    workers: int = 2,
    seconds: float = 5.0,
    memory_mb: int = 1024,
) -> int:
    """Grade rows {"prediction", "answer"}: the same rows, with "correct".

    A prediction is a whole solution or an answer alone. A row that could not be graded within the
    limits is wrong and says why in "error". The output appears whole or not at all.

    Args:
        input: JSONL file.
        output: JSONL file, replaced if it exists.
        workers: processes that compare answers.
        seconds: CPU time for one comparison.
        memory_mb: address space of one process, in MiB.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from ..evaluation.grade_file import count_rows, grade_file
    from ..grading import MathJudge
    from .terminal import make_console

    for name, value in (("workers", workers), ("seconds", seconds), ("memory-mb", memory_mb)):
        if not value > 0:
            raise BadInputError(f"--{name}={value}: must be above 0")
    _check_writable(output)
    rows = count_rows(input)
    console = make_console(stderr=True)
    bar = Progress(
        TextColumn("grading"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with MathJudge(workers=workers, seconds=seconds, memory_mb=memory_mb) as judge, bar:
        task = bar.add_task("grading", total=rows)
        tally = grade_file(input, output, judge, lambda _: bar.advance(task))
    print(
        f"{tally.rows} rows, {tally.correct} correct ({tally.correct / tally.rows:.4f}), "
        f"{tally.errors} not graded: {output}"
    )
    return 0


def _check_writable(path: pathlib.Path) -> None:
    """Raise BadInputError if a file can't be made there."""
    if path.is_dir():
        raise BadInputError(f"--output {str(path)!r} is a folder: name a file")
    if not path.parent.is_dir():
        raise BadInputError(f"--output: folder {str(path.parent)!r} does not exist: make it first")
    probe = path.with_name(path.name + ".new")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInputError(
            f"--output {str(path)!r} can't be written ({error.strerror})"
        ) from error
