"""What a training is made from: the options of `cats-jax train`."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class TrainingOptions:
    """What is trained, on what, and what it is compared with.

    Attributes:
        output: folder to make; one checkpoint per seed in it. It must not hold a training already.
        config: "cats"; "calibrated": that, ranking by calibrated scores; "paper": the paper's
            state, reward and one-step A2C, with an action table of ours, as it prints none;
            "paper-bank": that with the actions that the shipped bank recipes record; or "offline".
        actions: action table, in place of the configuration's: "temperature", "top-p" or "top-k",
            named by the last sampling parameter that varies in it.
        bank: step bank to train on; default: the simulator of the embedded world.
        validation: bank to compare on; default: one question in five of the first one.
        calibration: of the bank's PRMs: a file of `cats-jax calibrate`, or "weak".
        trajectories: learn from decisions of `cats-jax collect`; needs --config offline or paper.
            The simulator or the bank then only compare.
        prms: train and compare on these only, for example to test on the others.
        num_candidates: values of N, in place of the configuration's.
        num_iterations: of search and update, in place of the configuration's.
        settings: other values of the configuration, such as learner.learning_rate=1e-3
            reward=paper cats.reward.discount=0.5 (see docs/train/controllers.md).
        seed: of everything.
        num_seeds: controllers trained, each from another seed.
        rivals: also play every constant action, threshold rules and the random policy.
    """

    output: pathlib.Path
    config: str = "cats"
    actions: str | None = None
    bank: pathlib.Path | None = None
    validation: pathlib.Path | None = None
    calibration: str | None = None
    trajectories: pathlib.Path | None = None
    prms: tuple[str, ...] | None = None
    num_candidates: tuple[int, ...] | None = None
    num_iterations: int | None = None
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    seed: int = 0
    num_seeds: int = 3
    rivals: bool = True
