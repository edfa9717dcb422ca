"""`cats-jax train`: controllers, from the simulator, a step bank, trajectories or real searches."""

from __future__ import annotations

import tyro

from ..training.options import TrainingOptions


def train(training: tyro.conf.OmitArgPrefixes[TrainingOptions]) -> int:
    """Train controllers and write them as checkpoints, with learning curves and rivals.

    Args:
        training: configuration, questions and rivals of the training.
    """
    from ..training.train import run
    from .terminal import make_console

    console = make_console()
    run(training, report=lambda line: console.print(line, markup=False, soft_wrap=True))
    return 0
