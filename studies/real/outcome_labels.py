"""Label the steps of a run's paths with the grade of the path's answer.

    python -m studies.real.outcome_labels RUN STEPS.jsonl

STEPS.jsonl is a file of labelled steps as `cats-jax quality` reads them, with the keys `question`,
`steps` and `labels`. All steps of a path have one label, 1 if its answer is right and 0 if not: the
outcome supervision of Lightman et al. 2023 (arXiv:2305.20050). So a right step before an error is
labelled wrong, too. A path that was cut has no answer; its whole steps are labelled wrong. A path
that the search dropped before its end is left out. A path that several rows share is written once.
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
from cats_jax.live.results import ROOT, SearchResult


def labelled_paths(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """A row of labelled steps for each path of a run."""
    run = cats_jax.load_run(folder).stored
    written = set[tuple[str, ...]]()
    with MathGrader() as grader:
        for row in run.rows:
            tree = run.tree(row)
            for leaf in ends(tree):
                steps, answer = steps_to(tree, leaf), tree.candidates[leaf - 1].answer
                if (path := (tree.question.text, *steps)) in written:
                    continue
                written.add(path)
                right = (
                    answer is not None
                    and grade_answer(grader, answer, row.gold, row.tolerance).correct
                )
                labels = [int(right)] * len(steps)
                yield {"question": tree.question.text, "steps": list(steps), "labels": labels}


def ends(tree: SearchResult) -> list[int]:
    """Ids of the last whole steps of finished paths, and of paths that were cut in the next one."""
    whole = [candidate for candidate in tree.candidates if candidate.invalid is None]
    parents = {candidate.parent for candidate in whole}
    cut = {each.parent for each in tree.candidates if each.invalid is not None} - parents
    return [candidate.id for candidate in whole if candidate.done or candidate.id in cut]


def steps_to(tree: SearchResult, node: int) -> tuple[str, ...]:
    """Texts of the steps from the first one to a candidate's."""
    texts = list[str]()
    while node != ROOT:
        candidate = tree.candidates[node - 1]
        texts.append(candidate.text)
        node = candidate.parent
    return tuple(reversed(texts))


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
