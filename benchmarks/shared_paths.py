"""Votes and best-of-N at several N and with several PRMs, with shared paths and without.

The embedded world's validation questions, the weak policy. The two kinds take turns, after a run
with one PRM that compiles.

    python benchmarks/shared_paths.py [--questions 50] [--num-candidates 4 16 64 256] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from cats_jax import world
from cats_jax.evaluation.evaluate import evaluate, prepare
from cats_jax.evaluation.runners import LocalRunner
from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.grading.graders import default_grader
from cats_jax.models.source import ModelFolders
from cats_jax.specs.recipe import parse_recipe


class _OneByOne(LocalRunner):
    """A runner that searches every row by itself."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self._shares = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--num-candidates", type=int, nargs="+", default=(4, 16, 64, 256))
    parser.add_argument("--prms", nargs="+", default=world.PRM_NAMES)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    measure(options, options.prms[:1], LocalRunner)  # compiles
    walls, processors = [], []
    for _ in range(options.repeats):
        shared = measure(options, options.prms, LocalRunner)
        alone = measure(options, options.prms, _OneByOne)
        walls.append(alone[0] / shared[0])
        processors.append(alone[1] / shared[1])
        for name, (wall, processor, inside) in (("shared", shared), ("one by one", alone)):
            print(f"{name}: {wall:.1f} s, CPU {processor:.1f} s, models {inside:.1f} s", flush=True)
        print(f"ratio: {walls[-1]:.2f}, of CPU seconds {processors[-1]:.2f}", flush=True)
    print(
        f"median ratio: {statistics.median(walls):.2f}, "
        f"of CPU seconds {statistics.median(processors):.2f}"
    )


def measure(
    options: argparse.Namespace, prms: Sequence[str], kind: type[LocalRunner]
) -> tuple[float, float, float]:
    """Wall and CPU seconds of one evaluation, and wall seconds inside policy and PRMs."""
    recipe = parse_recipe(
        {
            "name": "shared-paths",
            "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
            "prms": list(prms),
            "strategies": ["majority", "best_of_n", "best_of_n_weighted"],
            "num_candidates": list(options.num_candidates),
            "questions": {"world": "validation", "count": options.questions},
        }
    )
    models, grader = ModelFolders(), default_grader(recipe.questions)
    times = WallTimes()
    evaluation = prepare(recipe, models)
    runner = kind(evaluation.recipe, evaluation.cells, models, grader, times)
    started, processor = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        evaluate(evaluation, models, pathlib.Path(folder), grader=grader, runner=runner)
    inside = times.parts["policy inside"] + times.parts["prm inside"]
    return time.perf_counter() - started, time.process_time() - processor, inside


if __name__ == "__main__":
    main()
