"""Train the linear head that makes a frozen language model a PRM, by logistic regression.

    python -m studies.real.train_head HEAD.safetensors STATES --steps STEPS.jsonl ...

STATES is the folder that `step_states` made from the files STEPS.jsonl. The L2 penalty has the
strength with the smallest log loss in cross-validation, whose folds have whole questions.
HEAD.safetensors is a file for the key `head` of a PRM. HEAD.json beside it has the cross-validated
log loss and AUC, the number of questions, and a digest of their texts. HEAD.jsonl has the labelled
steps with scores, for `cats-jax quality HEAD.jsonl --by data`: cross-validated ones, and with
`--share` below 1 those of the head on the other questions. No head scores a question that it was
trained on.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
from safetensors.numpy import load_file, save_file

from studies.real.step_states import BLOCK, DIGEST, SOURCE, by_length, digest, digests_of

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Strengths of the penalty, per squared weight of a standardized state."""

FOLDS = 5


@dataclass(frozen=True)
class Steps:
    """Labelled steps: hidden states f64[S, hidden], and labels f64[S], 1 right and 0 wrong.

    `group` and `path`, i64[S], number the steps' questions, and the solutions of all files.
    """

    states: np.ndarray
    labels: np.ndarray
    group: np.ndarray
    path: np.ndarray

    def where(self, chosen: np.ndarray) -> Steps:
        """The steps at which `chosen`, b[S], is true."""
        return Steps(*(array[chosen] for array in dataclasses.astuple(self)))


def load_steps(folder: pathlib.Path, files: Sequence[pathlib.Path]) -> Steps:
    """The steps of the blocks that `step_states` made of files.

    Raises:
        SystemExit: a block is missing or of other solutions, or blocks are of several models or
            formats.
    """
    blocks, before = [], 0
    sources = set[str | None]()
    for file in files:
        solutions = by_length(file)
        number = len(solutions)
        for start in range(0, number, BLOCK):
            block = folder / f"{file.stem}-{start:06d}.safetensors"
            if not block.is_file():
                raise SystemExit(f"{str(block)!r} is missing: run step_states on {file} again")
            known = digests_of(block)
            sources.add(known.get(SOURCE))
            if known.get(DIGEST) != digest(solutions[start : start + BLOCK]):
                raise SystemExit(
                    f"{str(block)!r} is of other solutions: run step_states on {file} again"
                )
            found = load_file(block)
            blocks.append({**found, "path": found["path"] + before})
        before += number
    if len(sources) > 1:
        raise SystemExit(
            f"{str(folder)!r} has states of several models or formats: run step_states on each file"
        )
    joined = {name: np.concatenate([each[name] for each in blocks]) for name in blocks[0]}
    return Steps(
        joined["states"].astype(np.float64),
        joined["labels"].astype(np.float64),
        joined["group"],
        joined["path"],
    )


def scored_rows(
    files: Sequence[pathlib.Path], steps: Steps, scores: np.ndarray, name: str
) -> Iterator[dict[str, Any]]:
    """Rows of labelled steps with scores f64[S]; `data` is the name of the row's file.

    Solutions with a step that has no label, or no score, are left out.
    """
    number = 0
    for file in files:
        for solution in by_length(file):
            own = scores[steps.path == number]
            number += 1
            if len(own) == len(solution.steps):
                yield {
                    "question": solution.question,
                    "steps": list(solution.steps),
                    "labels": list(solution.labels),
                    "scores": {name: [round(float(score), 6) for score in own]},
                    "data": file.stem,
                }


def fit_head(steps: Steps, penalty: float) -> tuple[np.ndarray, float]:
    """Weight f64[hidden] and bias of a logistic regression on states.

    It minimizes the mean log loss plus penalty / 2 times the squared norm of the weights of
    standardized states.
    """
    mean, spread = steps.states.mean(0), steps.states.std(0) + 1e-6
    inputs = (steps.states - mean) / spread

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = inputs @ weights[:-1] + weights[-1]
        errors = (scipy.special.expit(logits) - steps.labels) / len(logits)
        value = log_loss(logits, steps.labels) + penalty / 2 * (weights[:-1] ** 2).sum()
        return value, np.append(inputs.T @ errors + penalty * weights[:-1], errors.sum())

    start = np.zeros(inputs.shape[1] + 1)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B").x
    weight = found[:-1] / spread
    return weight, float(found[-1] - mean @ weight)


def held_out_logits(steps: Steps, penalty: float, seed: int) -> np.ndarray:
    """Logits f64[S] of each step under the head that was trained on the other folds."""
    fold = folds(steps.group, seed)
    logits = np.empty(len(fold))
    for number in range(FOLDS):
        weight, bias = fit_head(steps.where(fold != number), penalty)
        logits[fold == number] = steps.states[fold == number] @ weight + bias
    return logits


def folds(group: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each step, i64[S]; the steps of a question have the same one."""
    distinct, index = np.unique(group, return_inverse=True)
    return np.random.default_rng(seed).permutation(len(distinct))[index] % FOLDS


def auc(logits: np.ndarray, labels: np.ndarray) -> float:
    """Share of the pairs of a right and a wrong step in which the right one has more; ties half."""
    right = labels > 0
    statistic = scipy.stats.mannwhitneyu(logits[right], logits[~right]).statistic
    return float(statistic / (right.sum() * (~right).sum()))


def log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log-likelihood of the labels, in nats."""
    return float(-scipy.special.log_expit(np.where(labels > 0, logits, -logits)).mean())


def of_some_questions(steps: Steps, share: float, seed: int) -> np.ndarray:
    """Whether a step is of a share of the questions, at least one for each fold, b[S]."""
    distinct = np.random.default_rng(seed).permutation(np.unique(steps.group))
    return np.isin(steps.group, distinct[: max(FOLDS, round(share * len(distinct)))])


@dataclass(frozen=True)
class Trained:
    """A head, and what is known of it.

    Attributes:
        weight, bias: the head, f64[hidden] and a number.
        scores: scores f64[S] of all steps, none by a head that was trained on the step's question.
        facts: what HEAD.json contains.
    """

    weight: np.ndarray
    bias: float
    scores: np.ndarray
    facts: dict[str, Any]


def train(everything: Steps, share: float, seed: int) -> Trained:
    """Train a head on a share of the questions, and score all steps."""
    chosen = of_some_questions(everything, share, seed)
    steps = everything.where(chosen)
    logits = {each: held_out_logits(steps, each, seed) for each in PENALTIES}
    penalty = min(PENALTIES, key=lambda each: log_loss(logits[each], steps.labels))
    weight, bias = fit_head(steps, penalty)
    scored = everything.states @ weight + bias
    scored[chosen] = logits[penalty]
    questions = np.unique(steps.group)
    facts = {
        "penalty": penalty,
        "log_loss": round(log_loss(logits[penalty], steps.labels), 4),
        "auc": round(auc(logits[penalty], steps.labels), 4),
        "steps": len(steps.labels),
        "right": int(steps.labels.sum()),
        "questions": len(questions),
        "questions_digest": hashlib.sha256(questions.tobytes()).hexdigest(),
    }
    return Trained(weight, bias, scipy.special.expit(scored), facts)


def main() -> None:
    """Train the head, and write it with what is known of it."""
    parser = argparse.ArgumentParser(description="Train a linear PRM head on hidden states.")
    parser.add_argument("head", type=pathlib.Path)
    parser.add_argument("states", type=pathlib.Path)
    parser.add_argument("--steps", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--share", type=float, default=1.0, help="share of the questions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = load_steps(options.states, options.steps)
    trained = train(steps, options.share, options.seed)
    weight, bias = trained.weight, trained.bias
    save_file(
        {"weight": weight[None].astype(np.float32), "bias": np.array([bias], np.float32)},
        options.head,
    )
    options.head.with_suffix(".json").write_text(json.dumps(trained.facts, indent=2) + "\n")
    rows = scored_rows(options.steps, steps, trained.scores, options.head.stem)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    options.head.with_suffix(".jsonl").write_text(text, encoding="utf-8")
    print(json.dumps(trained.facts))


if __name__ == "__main__":
    main()
