"""Trains a stopper on recorded paths of a real model; no language model is called.

    python -m studies.real.train_stopper PATHS.jsonl.gz FOLDER

A row of PATHS is a path, as in `recorded_searches`: `question`, `steps`, `labels`, and `scores`
with a list of step scores for each PRM. A path is right if its last label is 1. A path without
scores, or without a final answer in its steps, has no answer. With `--prm` the stopper reads the
last step scores of this PRM, and its vote is weighted by them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import learners
import search
from cats_jax.controllers.stopper import Stopper, save_stopper
from cats_jax.datasets.digests import text_digest
from cats_jax.grading import MathGrader
from cats_jax.live.tree import AnswerClasses

PATH_SCORE = "last"
PRICES = (1.0, 3.0, 10.0)
NUM_SEEDS = 3
ENTROPY_WEIGHT = 0.2  # at .01, training on so few questions can end in stopping at once
LAST_UPDATES = 100
"""Mean return of the last updates, by which the best of `NUM_SEEDS` trainings is chosen."""


def recorded_answers(
    rows: Iterable[Mapping[str, Any]], prm: str | None, grader: MathGrader
) -> learners.Recorded:
    """The answers of each question's paths, `[Q, M]`; M is the smallest number of a question."""
    paths = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        paths[row["question"]].append(row)
    most = min(map(len, paths.values()))
    shape = len(paths), most
    answer, right = np.full(shape, -1, np.int32), np.zeros(shape, bool)
    score = np.zeros(shape, np.float32)
    for q, each in enumerate(paths.values()):
        classes = AnswerClasses(grader)
        for m, row in enumerate(each[:most]):
            found = grader.extract(row["steps"]) if "scores" in row else None
            if found is None:
                continue
            answer[q, m] = classes.number(found)
            right[q, m] = row["labels"][-1] == 1
            score[q, m] = row["scores"][prm][-1] if prm else 0.0
    answers = search.stopping.Answers(*map(jnp.asarray, (answer >= 0, answer, score)))
    return learners.Recorded(answers, jnp.asarray(right))


def main() -> None:
    """Train a stopper and write it."""
    parser = argparse.ArgumentParser(description="Train a stopper on recorded paths.")
    parser.add_argument("paths", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--prm", help="name of the scores; default: none are read")
    options = parser.parse_args()
    with gzip.open(options.paths, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with MathGrader() as grader:
        recorded = recorded_answers(rows, options.prm, grader)
    num_paths = recorded.right.shape[1]
    config = learners.StoppingConfig(
        uses_scores=options.prm is not None,
        num_candidates=(num_paths,),
        prices=PRICES,
        num_iterations=1000,
        entropy_weight=ENTROPY_WEIGHT,
    )
    train = jax.jit(jax.vmap(learners.make_stopping(config), in_axes=(None, 0)))
    states, returns = train(recorded, jax.random.split(jax.random.key(0), NUM_SEEDS))
    means = np.mean(np.asarray(returns)[:, -LAST_UPDATES:], axis=1)
    best = int(np.argmax(means))
    actor = jax.tree.map(lambda leaf: leaf[best], states.actor)
    texts = [text_digest(text) for text in dict.fromkeys(row["question"] for row in rows)]
    stopper = Stopper(
        actor=jax.device_get(actor),
        uses_scores=config.uses_scores,
        path_score=PATH_SCORE,
        hidden=config.actor_hidden,
        prices=config.prices,
        info={"seed": best, "questions": [*map(str, range(len(texts)))], "texts": texts},
    )
    save_stopper(options.output, stopper)
    print(
        f"{len(recorded.right)} questions, {num_paths} paths of each; returns {np.round(means, 3)}"
    )
    for price in config.prices:
        sampled, right = learners.stopping_times(
            config, actor, recorded, jnp.int32(num_paths), jnp.float32(price)
        )
        print(f"price {price}: {np.mean(sampled):.2f} paths, {np.mean(right):.3f} right")


if __name__ == "__main__":
    main()
