"""`cats-jax train`: train controllers in the graph, on the simulator of the embedded world."""

from __future__ import annotations

import pathlib


def train(
    *,
    output: pathlib.Path,
    config: str = "cats",
    seed: int = 0,
    num_seeds: int = 3,
    num_iterations: int | None = None,
) -> int:
    """Train controllers on the simulator and write them as checkpoints, with learning curves.

    Args:
        output: folder to make; one checkpoint per seed in it.
        config: "cats", or "paper": the paper's features, reward and one-step A2C.
        seed: of everything.
        num_seeds: controllers trained, each from another seed.
        num_iterations: of search and update; default: the configuration's.
    """
    from ..terminal import make_console
    from ..train import run

    console = make_console()
    run(
        output=output,
        config=config,
        seed=seed,
        num_seeds=num_seeds,
        num_iterations=num_iterations,
        report=lambda line: console.print(line, markup=False, soft_wrap=True),
    )
    return 0
