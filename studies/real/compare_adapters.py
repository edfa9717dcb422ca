"""Compares small adapters with the full ones: greedy answers, and scores of recorded samples.

    python studies/real/compare_adapters.py FULL SMALL --samples SAMPLES --questions FILE

FULL and SMALL are folders with `policy` and `prm`. The models have the settings of the demo's
recipe. The questions are those of SAMPLES, see `calibrate_samples`, from row 100 on, and FILE is
GSM8K's test set. Recorded scores, computed in bfloat16 on a GPU, are compared, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import pathlib
from collections.abc import Sequence

import numpy as np

import search
from cats_jax import Searcher
from cats_jax.datasets import read_questions
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step
from cats_jax.specs.recipe import Recipe, load_recipe

RECIPE = "recipes/real/smollm2-demo.yaml"

_FIRST_ROW = 100


def greedy_texts(recipe: Recipe, adapter: pathlib.Path, questions: Sequence[Question]) -> list[str]:
    """Greedy solutions of the policy with an adapter."""
    policy = ModelFolders().policy(dataclasses.replace(recipe.policy, adapter=str(adapter)))
    searcher = Searcher(
        policy=policy, strategy=search.greedy(), num_candidates=1, max_depth=recipe.max_depth
    )
    results = searcher.run(questions)
    return ["\n".join(r.paths[0].steps) if r.paths else "" for r in results]


def scores(
    recipe: Recipe,
    adapter: pathlib.Path,
    questions: Sequence[Question],
    paths: Sequence[tuple[Step, ...]],
) -> np.ndarray:
    """The PRM's scores of all steps of the paths, one after the other."""
    prm = ModelFolders().prm(dataclasses.replace(recipe.prms[0], adapter=str(adapter)))
    # A score is that of a path's last step.
    asked = [
        (question, path[:end])
        for question, path in zip(questions, paths, strict=True)
        for end in range(1, len(path) + 1)
    ]
    found = prm.score([question for question, _ in asked], [path for _, path in asked])
    return np.array(found.all_scores(), dtype=float)


def compared(scores: np.ndarray, others: np.ndarray) -> str:
    """One line on two lists of scores; pairs without a number are left out."""
    both = np.isfinite(scores) & np.isfinite(others)
    one, other = scores[both], others[both]
    away = np.abs(one - other)
    return (
        f"{both.sum()} steps, correlation {np.corrcoef(one, other)[0, 1]:.5f}, "
        f"mean |difference| {away.mean():.5f}, largest {away.max():.4f}"
    )


def main() -> None:
    """Print the comparisons."""
    parser = argparse.ArgumentParser(description="Compare small adapters with the full ones.")
    parser.add_argument("full", type=pathlib.Path)
    parser.add_argument("small", type=pathlib.Path)
    parser.add_argument("--samples", type=pathlib.Path, required=True)
    parser.add_argument("--questions", type=pathlib.Path, required=True)
    parser.add_argument("--greedy", type=int, default=10, help="questions to answer")
    parser.add_argument("--scored", type=int, default=10, help="questions with 10 samples each")
    options = parser.parse_args()
    recipe = load_recipe(RECIPE)
    everything = read_questions(options.questions, layout="gsm8k").questions
    with gzip.open(options.samples, "rt", encoding="utf-8") as file:
        rows = [row for line in file if (row := json.loads(line))["row"] >= _FIRST_ROW]

    asked, paths, recorded = [], [], []
    for row in rows[: options.scored]:
        whole = [s for s in row["samples"] if s["scores"] and len(s["scores"]) == len(s["steps"])]
        for sample in whole[:10]:
            asked.append(everything[row["row"]])
            paths.append(tuple(Step(text, ()) for text in sample["steps"]))
            recorded += [np.nan if score is None else score for score in sample["scores"]]
    full, small = (
        scores(recipe, folder / "prm", asked, paths) for folder in (options.full, options.small)
    )
    print(f"{len(paths)} samples; small against full: {compared(small, full)}")
    print(f"full against recorded: {compared(full, np.array(recorded))}")
    print(f"small against recorded: {compared(small, np.array(recorded))}", flush=True)

    questions = [everything[row["row"]] for row in rows[: options.greedy]]
    texts, others = (
        greedy_texts(recipe, folder / "policy", questions)
        for folder in (options.full, options.small)
    )
    equal = sum(one == other for one, other in zip(texts, others, strict=True))
    last = [[t.rpartition("\\boxed{")[2] for t in each] for each in (texts, others)]
    answers = sum(one == other for one, other in zip(*last, strict=True))
    print(f"greedy: {equal} of {len(texts)} solutions equal, {answers} final answers")


if __name__ == "__main__":
    main()
