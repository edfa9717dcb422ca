"""Path scores of several heads on the same paths, for `cats-jax quality`.

    python -m studies.real.head_quality STATES PATHS.jsonl --steps STEPS.jsonl \
        --heads HEAD.safetensors ... --held-out TRAINED.jsonl ...
    cats-jax quality PATHS.jsonl

STATES is the folder that `step_states` made from STEPS.jsonl, whose labels are outcomes of paths.
HEAD is a head that was trained on other questions. TRAINED.jsonl has step scores by the head of its
name: the cross-validated ones that `train_head` writes, or those of a head for another model. A row
of PATHS.jsonl is a path as one step: its label is the outcome, and its scores are aggregated step
scores, one for each head. A path without scores in a file TRAINED.jsonl is left out. The script
also prints how often the best path of a question, by each head, is right.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special
from safetensors.numpy import load_file

from cats_jax.scoring.labelled import LabelledSteps
from search.aggregations import AGGREGATIONS

from .step_states import by_length
from .train_head import load_steps

Scored = Mapping[tuple[str, ...], np.ndarray]
"""Scores f64[steps] of a path, by its question and its steps."""


def key(path: LabelledSteps) -> tuple[str, ...]:
    """What identifies a path."""
    return (path.question, *path.steps)


def scored_by_head(head: pathlib.Path, states: pathlib.Path, file: pathlib.Path) -> Scored:
    """Scores of a head on all paths of a file."""
    tensors, steps = load_file(head), load_steps(states, [file])
    scores = scipy.special.expit(steps.states @ tensors["weight"][0] + tensors["bias"][0])
    return {key(path): scores[steps.path == i] for i, path in enumerate(by_length(file))}


def scored_by_others(trained: pathlib.Path) -> Scored:
    """Scores in a file, of those paths that have them."""
    rows = map(json.loads, trained.read_text(encoding="utf-8").splitlines())
    return {
        (row["question"], *row["steps"]): np.array(row["scores"][trained.stem])
        for row in rows
        if "scores" in row
    }


def path_rows(
    paths: Sequence[LabelledSteps], heads: Mapping[str, Scored], path_score: str
) -> list[dict[str, Any]]:
    """A row for each path, with the path score by each head."""
    lengths = jnp.array([len(path.steps) for path in paths])
    values = {}
    for name, scored in heads.items():
        padded = np.zeros((len(paths), int(lengths.max())), np.float32)
        for row, path in zip(padded, paths, strict=True):
            row[: len(path.steps)] = scored[key(path)]
        values[name] = np.asarray(AGGREGATIONS[path_score].value(jnp.asarray(padded), lengths))
    return [
        {
            "question": path.question,
            "steps": ["\n\n".join(path.steps)],
            "labels": [path.labels[0]],
            "scores": {name: [round(float(each[i]), 7)] for name, each in values.items()},
        }
        for i, path in enumerate(paths)
    ]


def right_of_best(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[int, int]:
    """On how many questions the best path by a head is right, and the number of questions."""
    by_question = defaultdict[str, list[Any]](list)
    for row in rows:
        by_question[row["question"]].append(row)
    best = [max(each, key=lambda row: row["scores"][name][0]) for each in by_question.values()]
    return sum(row["labels"][0] for row in best), len(best)


def main() -> None:
    """Write the rows, and print what the best paths are worth."""
    parser = argparse.ArgumentParser(description="Path scores of heads on the same paths.")
    parser.add_argument("states", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--steps", type=pathlib.Path, required=True)
    parser.add_argument("--heads", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--held-out", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--path-score", choices=tuple(AGGREGATIONS), default="min")
    options = parser.parse_args()
    known = (options.states, options.steps)
    heads = {head.stem: scored_by_head(head, *known) for head in options.heads}
    heads |= {trained.stem: scored_by_others(trained) for trained in options.held_out}
    paths = [
        path
        for path in by_length(options.steps)
        if all(key(path) in scored for scored in heads.values())
    ]
    rows = path_rows(paths, heads, options.path_score)
    options.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name in heads:
        right, of = right_of_best(rows, name)
        print(f"{name}: the best path is right on {right} of {of} questions")


if __name__ == "__main__":
    main()
