"""Train the linear head that makes a frozen language model a PRM, by logistic regression.

    python studies/real/train_head.py HEAD.safetensors --states STATES ... [--share .1] [--seed 0]

STATES is a folder of `step_states`. The strength of the L2 penalty is the one with the smallest log
loss in cross-validation, whose folds have whole questions. HEAD.safetensors is a file for the key
`head` of a PRM. HEAD.json beside it has the cross-validated log loss and AUC, the number of
questions, and a digest of their texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
from safetensors.numpy import load_file, save_file

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Strengths of the penalty, per squared weight of a standardized state."""

FOLDS = 5


@dataclass(frozen=True)
class Steps:
    """Labelled steps.

    Attributes:
        states: hidden states, f64[S, hidden].
        labels: 1 for a right step, 0 for a wrong one, f64[S].
        group: number of the step's question, i64[S].
    """

    states: np.ndarray
    labels: np.ndarray
    group: np.ndarray

    def where(self, chosen: np.ndarray) -> Steps:
        """The steps at which `chosen`, b[S], is true."""
        return Steps(self.states[chosen], self.labels[chosen], self.group[chosen])


def load_steps(folders: Sequence[pathlib.Path]) -> Steps:
    """The steps of all files in folders of `step_states`."""
    files = [load_file(file) for folder in folders for file in sorted(folder.glob("*.safetensors"))]
    return Steps(
        np.concatenate([file["states"] for file in files]).astype(np.float64),
        np.concatenate([file["labels"] for file in files]).astype(np.float64),
        np.concatenate([file["group"] for file in files]),
    )


def fit_head(steps: Steps, penalty: float) -> tuple[np.ndarray, float]:
    """Weight f64[hidden] and bias of a logistic regression on states.

    It minimizes the mean log loss plus penalty / 2 times the squared norm of the weights that
    belong to standardized states.
    """
    mean, spread = steps.states.mean(0), steps.states.std(0) + 1e-6
    inputs = (steps.states - mean) / spread

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = inputs @ weights[:-1] + weights[-1]
        errors = (scipy.special.expit(logits) - steps.labels) / len(logits)
        value = -scipy.special.log_expit(np.where(steps.labels > 0, logits, -logits)).mean()
        value += penalty / 2 * (weights[:-1] ** 2).sum()
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


def some_questions(steps: Steps, share: float, seed: int) -> Steps:
    """The steps of a share of the questions, at least one for each fold, chosen at random."""
    distinct = np.random.default_rng(seed).permutation(np.unique(steps.group))
    return steps.where(np.isin(steps.group, distinct[: max(FOLDS, round(share * len(distinct)))]))


def main() -> None:
    """Train the head, and write it with what is known of it."""
    parser = argparse.ArgumentParser(description="Train a linear PRM head on hidden states.")
    parser.add_argument("head", type=pathlib.Path)
    parser.add_argument("--states", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--share", type=float, default=1.0, help="share of the questions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = some_questions(load_steps(options.states), options.share, options.seed)
    logits = {each: held_out_logits(steps, each, options.seed) for each in PENALTIES}
    penalty = min(PENALTIES, key=lambda each: log_loss(logits[each], steps.labels))
    weight, bias = fit_head(steps, penalty)
    save_file(
        {"weight": weight[None].astype(np.float32), "bias": np.array([bias], np.float32)},
        options.head,
    )
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
    options.head.with_suffix(".json").write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
