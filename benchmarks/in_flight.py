"""Questions a minute against the number of questions in flight: 1, 8, 64.

Beam search on the embedded world's validation questions with the weak policy and the best PRM. A
first round compiles; then the settings take turns, and each round gives their ratios to the first.

    python benchmarks/in_flight.py [--questions 64] [--num-candidates 4] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.table import Table

from cats_jax import world
from cats_jax.commands.terminal import make_console
from cats_jax.evaluation.evaluate import evaluate, prepare
from cats_jax.evaluation.runners import LocalRunner
from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.grading.graders import default_grader
from cats_jax.models.source import ModelFolders
from cats_jax.reporting.printing import show_table
from cats_jax.specs.recipe import parse_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=4)
    parser.add_argument("--in-flight", type=int, nargs="+", default=(1, 8, 64))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rounds = [
        [measure(n, options.questions, options.num_candidates) for n in options.in_flight]
        for _ in range(options.repeats + 1)
    ][1:]
    title = f"beam, N = {options.num_candidates}, {options.questions} questions"
    table = Table(title=title, title_justify="left")
    for name in ("questions in flight", "questions/min", "ratio by the clock", "by CPU seconds"):
        table.add_column(name, justify="right")
    for i, in_flight in enumerate(options.in_flight):
        rate = statistics.median(60 * options.questions / each[i][0] for each in rounds)
        ratios = [sorted(each[0][column] / each[i][column] for each in rounds) for column in (0, 1)]
        shown = [f"{statistics.median(r):.1f} ({r[0]:.1f}-{r[-1]:.1f})" for r in ratios]
        table.add_row(str(in_flight), f"{rate:.0f}", *shown)
    show_table(make_console(), table)


def measure(in_flight: int, questions: int, num_candidates: int) -> tuple[float, float]:
    """Wall seconds of searching, and CPU seconds with loading, of one evaluation."""
    recipe = parse_recipe(
        {
            "name": "in-flight",
            "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
            "prms": [world.PRM_NAMES[0]],
            "strategies": ["beam"],
            "num_candidates": [num_candidates],
            "questions": {"world": "validation", "count": questions},
            "in_flight": in_flight,
        }
    )
    models = ModelFolders()
    with tempfile.TemporaryDirectory() as folder:
        evaluation = prepare(recipe, models)
        times = WallTimes()
        grader = default_grader(recipe.questions)
        runner = LocalRunner(evaluation.recipe, evaluation.cells, models, grader, times)
        processor = time.process_time()
        evaluate(evaluation, models, pathlib.Path(folder), runner=runner)
    return times.searching, time.process_time() - processor


if __name__ == "__main__":
    main()
