"""Fits a PRM's calibration to recorded samples of questions, without a language model.

    python studies/real/calibrate_samples.py SAMPLES studies/real/smollm2/calibration.json

SAMPLES is a .jsonl.gz file. A line has `row`, the number of a question, and `samples` with `steps`,
`scores` of the PRM, and `right`. As in `cats-jax calibrate`, a step counts as right if a recorded
completion of its text is right, and groups of 1 to 16 siblings give its votes. Only first steps are
read, because later steps have hardly any siblings. Questions before row `--first-row`, by default
100, are left for searches.

With `--questions FILE` SAMPLES has paths instead: `question`, `steps`, `labels` and, by PRM,
`scores` of the steps. A path is right if its last label is 1. Paths without scores, which
were cut, are left out. The row of a question is its place in FILE, and `--prm` selects the scores.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import logit

from cats_jax.bank.calibrate import fit_logistic, write_calibration
from search.calibration import MIN_SCORE

LABEL = "smollm2"
"""Label of the PRM in the recipe."""

_FIRST_ROW = 100  # questions before it are left for searches
_GROUPS = 4  # of each question, as in `cats_jax.bank.siblings`
_MAX_SIBLINGS = 16


def first_steps(
    questions: Iterable[dict[str, Any]], seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of first steps of the questions that have a right sample.

    Returns:
        Inputs f[C, 3] of the calibration (1, log-odds of the score, log-odds of the votes), whether
        each step is right, b[C], and its weight, f[C]. The weights of a group sum to 1.
    """
    rng = np.random.default_rng(seed)
    inputs, right, weights = [], [], []
    for question in questions:
        steps = [
            (sample["steps"][0], sample["scores"][0], sample["right"])
            for sample in question["samples"]
            if sample["steps"] and sample["scores"] and sample["scores"][0] is not None
        ]
        reached = {text for text, _, is_right in steps if is_right}
        if not reached:
            continue
        for size in rng.integers(1, _MAX_SIBLINGS + 1, _GROUPS):
            group = [steps[i] for i in rng.permutation(len(steps))[:size]]
            texts = [text for text, _, _ in group]
            for text, score, _ in group:
                same = texts.count(text)
                votes = np.log((same + 0.5) / (len(group) - same + 0.5))
                inputs.append((1.0, logit(np.clip(score, MIN_SCORE, 1 - MIN_SCORE)), votes))
                right.append(text in reached)
                weights.append(1 / len(group))
    return np.array(inputs), np.array(right), np.array(weights)


def of_paths(
    paths: Iterable[dict[str, Any]], questions: Iterable[str], prm: str
) -> list[dict[str, Any]]:
    """Recorded paths in the form of SAMPLES; questions without a path are left out."""
    samples: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        if "scores" in path:
            right = path["labels"][-1] == 1
            sample = {"steps": path["steps"], "scores": path["scores"][prm], "right": right}
            samples.setdefault(path["question"], []).append(sample)
    return [
        {"row": row, "samples": samples[question]}
        for row, question in enumerate(questions)
        if question in samples
    ]


def main() -> None:
    """Fit, print and write the calibration."""
    parser = argparse.ArgumentParser(description="Fit a calibration to recorded samples.")
    parser.add_argument("samples", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--first-row", type=int, default=_FIRST_ROW)
    parser.add_argument("--prm", default=LABEL, help="label of the PRM in the recipe")
    parser.add_argument("--questions", type=pathlib.Path, help=".jsonl file, for SAMPLES of paths")
    options = parser.parse_args()
    with gzip.open(options.samples, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if options.questions is not None:
        texts = map(json.loads, options.questions.read_text(encoding="utf-8").splitlines())
        rows = of_paths(rows, (row["question"] for row in texts), options.prm)
    questions = [question for question in rows if question["row"] >= options.first_row]
    inputs, right, weights = first_steps(questions)
    fit = fit_logistic(inputs, right.astype(float), weights, (0, 1, 0))
    names = ("intercept", "slope", "agreement")
    values = {name: round(float(value), 5) for name, value in zip(names, fit, strict=True)}
    content = {
        "kind": "calibration",
        "rows": [questions[0]["row"], questions[-1]["row"]],
        "candidates": len(right),
        "prms": {options.prm: values},
    }
    write_calibration(options.output, content)
    share = float((weights * right).sum() / weights.sum())
    print(f"{values}; {len(right)} first steps, of which a share of {share:.3f} is right")


if __name__ == "__main__":
    main()
