"""Questions a minute against the number of questions in flight: 1, 8, 64.

Beam search on the embedded world's validation questions with the weak policy and the best PRM. Each
setting runs twice into a new folder; the first run compiles, the second is printed.

    python benchmarks/in_flight.py [--questions 64] [--num-candidates 4]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.table import Table

from cats_jax import config, terminal, world
from cats_jax.evaluate import evaluate, prepare
from cats_jax.models import HuggingFaceModels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=4)
    parser.add_argument("--in-flight", type=int, nargs="+", default=(1, 8, 64))
    options = parser.parse_args()
    table = Table(title=f"beam, N = {options.num_candidates}", title_justify="left")
    for name in ("questions in flight", "questions/min", "tokens/s", "seconds"):
        table.add_column(name, justify="right")
    for in_flight in options.in_flight:
        measure(in_flight, options.questions, options.num_candidates)  # compiles
        seconds, tokens = measure(in_flight, options.questions, options.num_candidates)
        rates = (f"{60 * options.questions / seconds:.0f}", f"{tokens / seconds:.0f}")
        table.add_row(str(in_flight), *rates, f"{seconds:.1f}")
    terminal.show_table(terminal.make_console(), table)


def measure(in_flight: int, questions: int, num_candidates: int) -> tuple[float, int]:
    """Seconds of searching, and tokens, of one evaluation."""
    recipe = config.parse_recipe(
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
    models = HuggingFaceModels()
    with tempfile.TemporaryDirectory() as folder:
        run, times = evaluate(prepare(recipe, models), models, pathlib.Path(folder))
    return times.searching + times.recording, sum(row.ledger.tokens for row in run.rows)


if __name__ == "__main__":
    main()
