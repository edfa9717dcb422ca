"""All parts of `evaluate`'s time on the embedded world: what is outside policy and PRM?

64 questions, N = 64, the weak policy and the best PRM: with models this small everything else
weighs most. Each strategy runs twice, into new run folders; the first run compiles, the second,
which is printed, does not.

    python benchmarks/overhead.py [--questions 64] [--num-candidates 64] [--widths 1 4 16 64]

A width above 1 gives the hidden layers of both models as many times their units. The new units are
zeros, so that the models write and score what they did and only cost more: the same searches, with
models of more parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from safetensors.numpy import load_file, save_file

from cats_jax import world
from cats_jax.commands.terminal import make_console
from cats_jax.evaluation.evaluate import evaluate, prepare
from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.models.source import ModelFolders
from cats_jax.reporting import run_tables
from cats_jax.reporting.printing import show_table
from cats_jax.specs.recipe import parse_recipe

_STRATEGIES = ("best_of_n", "beam", "cats_random")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=64)
    parser.add_argument("--strategies", nargs="+", default=_STRATEGIES)
    parser.add_argument("--widths", type=int, nargs="+", default=(1,))
    options = parser.parse_args()
    console = make_console()
    for width in options.widths:
        with tempfile.TemporaryDirectory() as folder:
            policy = pathlib.Path(folder, "policy")
            prm = pathlib.Path(folder, "prm")
            size = widen(world.policy_path("weak"), policy, width)
            prm_size = widen(world.prm_path(world.PRM_NAMES[0]), prm, width)
            for strategy in options.strategies:
                for _ in range(2):  # the first one compiles
                    times = measure(
                        strategy, policy, prm, options.questions, options.num_candidates
                    )
                title = (
                    f"{strategy}, {options.questions} questions, N = {options.num_candidates}, "
                    f"{size / 1e6:.1f} and {prm_size / 1e6:.1f} million parameters"
                )
                show_table(console, run_tables.timing_table(times, title))


def widen(source: pathlib.Path, folder: pathlib.Path, width: int) -> int:
    """Copy a model with `width` times its hidden units; return its number of parameters."""
    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    for name, values in weights.items():
        projection = re.search(r"mlp\.(gate|up|down)_proj", name)
        if projection is not None:
            axis = 1 if projection[1] == "down" else 0
            more = [(0, 0), (0, 0)]
            more[axis] = (0, (width - 1) * values.shape[axis])
            weights[name] = np.pad(values, more)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] *= width
    (folder / "config.json").write_text(json.dumps(config))
    return sum(values.size for values in weights.values())


def measure(
    strategy: str, policy: pathlib.Path, prm: pathlib.Path, questions: int, num_candidates: int
) -> WallTimes:
    """Seconds by part of one evaluation, everything written as usual."""
    recipe = parse_recipe(
        {
            "name": "overhead",
            "policy": {"path": str(policy), "max_step_tokens": 32, "max_answer_tokens": 64},
            "prms": [{"path": str(prm)}],
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
