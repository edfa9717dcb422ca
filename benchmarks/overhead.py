"""All parts of `evaluate`'s time on the embedded world: what is outside policy and PRM?

64 questions, N = 64, the weak policy and the best PRM: with models this small everything else
weighs most. Each strategy runs twice, into new run folders; the first run compiles, the second,
which is printed, does not.

    python benchmarks/overhead.py [--questions 64] [--num-candidates 64]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from cats_jax import world
from cats_jax.commands import terminal
from cats_jax.evaluation.evaluate import evaluate, prepare
from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.models.source import ModelFolders
from cats_jax.reporting import run_tables
from cats_jax.specs.recipe import parse_recipe

_STRATEGIES = ("best_of_n", "beam", "cats_random")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=64)
    parser.add_argument("--strategies", nargs="+", default=_STRATEGIES)
    options = parser.parse_args()
    console = terminal.make_console()
    for strategy in options.strategies:
        measure(strategy, options.questions, options.num_candidates)  # compiles
        times = measure(strategy, options.questions, options.num_candidates)
        title = f"{strategy}, {options.questions} questions, N = {options.num_candidates}"
        terminal.show_table(console, run_tables.timing_table(times, title))


def measure(strategy: str, questions: int, num_candidates: int) -> WallTimes:
    """Seconds by part of one evaluation, everything written as usual."""
    recipe = parse_recipe(
        {
            "name": "overhead",
            "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
            "prms": [world.PRM_NAMES[0]],
            "strategies": [strategy],
            "num_candidates": [num_candidates],
            "questions": {"world": "validation", "count": questions},
        }
    )
    models = ModelFolders()
    with tempfile.TemporaryDirectory() as folder:
        _, times = evaluate(prepare(recipe, models), models, pathlib.Path(folder))
    return times


if __name__ == "__main__":
    main()
