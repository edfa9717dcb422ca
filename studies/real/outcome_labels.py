"""Label the steps of a run's finished paths with the grade of the path's answer.

    python -m studies.real.outcome_labels RUN STEPS.jsonl

STEPS.jsonl is a file of labelled steps as `cats-jax quality` reads them, with the keys `question`,
`steps` and `labels`. All steps of a path have one label, 1 if its answer is right and 0 if not: the
outcome supervision of Lightman et al. 2023 (arXiv:2305.20050). So a right step before an error is
labelled wrong, too.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import cats_jax
from cats_jax.grading import MathGrader
from cats_jax.grading.graders import grade_answer


def labelled_paths(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """A row of labelled steps for each path of a run that has an answer."""
    run = cats_jax.load_run(folder).stored
    with MathGrader() as grader:
        for row in run.rows:
            tree = run.tree(row)
            for path in tree.paths:
                if path.answer is None:
                    continue
                right = grade_answer(grader, path.answer, row.gold, row.tolerance).correct
                yield {
                    "question": tree.question.text,
                    "steps": list(path.steps),
                    "labels": [int(right)] * len(path.steps),
                }


def main() -> None:
    """Write the rows and print how many paths are right."""
    parser = argparse.ArgumentParser(description="Label the steps of a run with its outcomes.")
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    rows = list(labelled_paths(options.run))
    options.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} paths, {sum(row['labels'][0] for row in rows)} right: {options.output}")


if __name__ == "__main__":
    main()
