"""Write the path scores of best-of-N in a run, for `cats-jax quality`.

    python -m studies.real.path_scores RUN PATHS.jsonl
    cats-jax quality PATHS.jsonl

A row is a finished path of `best_of_n` at the run's largest N, as one step: `question`, `steps`
with the whole answer, `labels` with 1 if the answer is right, and `scores` with the path's score.
The AUC is then over paths, and the accuracy of pairs is over paths of the same question.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import cats_jax
from cats_jax.grading import MathGrader
from cats_jax.reporting.finished_paths import path_grades

from .best_of_each_n import rows_of_best


def scored_paths(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """A row for each finished path that has an answer and a score.

    Raises:
        BadInputError: as `rows_of_best`.
    """
    run = cats_jax.load_run(folder).stored
    with MathGrader() as grader:
        for row in rows_of_best(run):
            tree = run.tree(row)
            grades = path_grades(row, tree, grader)
            for path in tree.paths:
                if path.answer is not None and path.path_score is not None:
                    yield {
                        "question": tree.question.text,
                        "steps": ["\n\n".join(path.steps)],
                        "labels": [int(grades[path.answer])],
                        "scores": [path.path_score],
                    }


def main() -> None:
    """Write the rows and print their number."""
    parser = argparse.ArgumentParser(description="Path scores of best-of-N with their outcomes.")
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    rows = list(scored_paths(options.run))
    options.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} paths: {options.output}")


if __name__ == "__main__":
    main()
