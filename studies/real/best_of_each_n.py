"""Accuracy of best-of-N at smaller N, over all subsets of a run's recorded paths.

    python -m studies.real.best_of_each_n RUN [RUN ...]

A search with a smaller N has the first paths of a question, which are one subset of them. The mean
over all subsets of this size varies less (`theory.estimators.best_at_k`). Prints a Markdown table
for the paths of `best_of_n` at the largest N of each run, with bootstrap intervals by question, and
the difference from a random path. A path without an answer counts as wrong and ranks last.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np

import cats_jax
from cats_jax.errors import BadInputError
from cats_jax.grading import MathGrader
from cats_jax.reporting.finished_paths import path_grades
from cats_jax.reporting.statistics import bootstrap_mean, paired
from cats_jax.runs.folder import RunFolder
from cats_jax.runs.rows import Row
from theory import estimators


def rows_of_best(run: RunFolder) -> list[Row]:
    """The rows of `best_of_n` at the run's largest N.

    Raises:
        BadInputError: the run has no rows of `best_of_n`, those of several PRMs or seeds, or rows
            without a tree.
    """
    found = [row for row in run.rows if row.strategy == "best_of_n"]
    most = max((row.num_candidates for row in found), default=0)
    rows = [row for row in found if row.num_candidates == most]
    if len({(row.prm, row.seed) for row in rows}) != 1 or any(row.tree is None for row in rows):
        raise BadInputError(
            f"{str(run.folder)!r}: best_of_n needs rows of one PRM and one seed, each with a tree; "
            "evaluate with one of each and `trees: true`"
        )
    return rows


def path_outcomes(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Scores and correctness of the paths of each question, f64[Q, N] each.

    Raises:
        BadInputError: as `rows_of_best`.
    """
    run = cats_jax.load_run(folder).stored
    rows = rows_of_best(run)
    most = rows[0].num_candidates
    scores, correct = np.full((len(rows), most), -np.inf), np.zeros((len(rows), most))
    with MathGrader() as grader:
        for number, row in enumerate(rows):
            tree = run.tree(row)
            grades = path_grades(row, tree, grader)
            for place, path in enumerate(tree.paths):
                if path.answer is not None and path.path_score is not None:
                    scores[number, place] = path.path_score
                    correct[number, place] = grades[path.answer]
    return scores, correct


def main() -> None:
    """Print a row for each run and each power of 2 up to its N."""
    parser = argparse.ArgumentParser(description="Best-of-N over all subsets of recorded paths.")
    parser.add_argument("runs", type=pathlib.Path, nargs="+", metavar="RUN")
    print("| run | N | right | 95 % interval | difference from a random path | some path right |")
    print("|---|---|---|---|---|---|")
    for folder in parser.parse_args().runs:
        scores, correct = path_outcomes(folder)
        most = scores.shape[1]
        random = correct.mean(axis=1)
        for k in (2**power for power in range(most.bit_length())):
            right = estimators.best_at_k(scores, correct, k)
            mean, gain = bootstrap_mean(right.tolist()), paired(right.tolist(), random.tolist())
            some = estimators.pass_at_k(correct.sum(axis=1), most, k).mean()
            low, high = gain.difference.low, gain.difference.high
            print(
                f"| {folder.name} | {k} | {mean.value:.3f} | {mean.low:.3f} to {mean.high:.3f} | "
                f"{gain.difference.value:+.3f} ({low:+.3f} to {high:+.3f}) | {some:.3f} |"
            )


if __name__ == "__main__":
    main()
