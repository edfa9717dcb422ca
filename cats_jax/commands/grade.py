"""`cats-jax grade`: a file of predictions and gold answers, graded within hard limits."""

from __future__ import annotations

import itertools
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

    A prediction is a whole solution or an answer alone. A row that can't be graded within the
    limits is wrong and says why in "error". The output is written as a whole or not at all.

    Args:
        input: JSONL file.
        output: JSONL file, replaced if it exists.
        workers: processes that compare answers.
        seconds: CPU time for one comparison.
        memory_mb: address space of one process, in MiB.
    """
    from ..evaluation.grade_file import count_rows, grade_file
    from ..grading import MathGrader
    from ..storage.durable import check_output
    from .progress import ProgressBar
    from .terminal import make_console

    for name, value in (("workers", workers), ("seconds", seconds), ("memory-mb", memory_mb)):
        if not value > 0:
            raise BadInputError(f"--{name}={value}: must be above 0")
    check_output("--output", output)
    rows = count_rows(input)
    done = itertools.count(1)
    with (
        MathGrader(workers=workers, seconds=seconds, memory_mb=memory_mb) as grader,
        ProgressBar(make_console(stderr=True), "grading", rows) as bar,
    ):
        tally = grade_file(input, output, grader, lambda _: bar.show(next(done)))
    print(
        f"{tally.rows} {'row' if tally.rows == 1 else 'rows'}, "
        f"{tally.correct} correct ({tally.correct / tally.rows:.4f}), "
        f"{tally.errors} not graded: {output}"
    )
    return 0
