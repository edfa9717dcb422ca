"""The options of `cats-jax train`."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class TrainingOptions:
    """Configuration, questions and rivals of a training.

    Attributes:
        output: folder to create, with one checkpoint per seed. It must not hold a training already,
            except for one with --online, which resumes.
        config: "cats"; "calibrated": "cats", ranking by calibrated scores; "paper": the paper's
            state, reward and one-step A2C, with an action table of ours, as the paper prints none;
            "paper-bank": "paper" with the actions that the shipped bank recipes record;
            "offline"; "tokens"; "selective"; "clone": "tokens", imitating trajectories; or
            "stopping" and "stopping-scores": a stopper of whole paths (docs/train/stoppers.md).
            Default: "cats", or the configuration of --start.
        start: controller whose networks the training starts with, a shipped one or a folder of an
            earlier training; the optimisers are new.
        actions: action table, in place of the configuration's: "temperature", "top-p", "top-k",
            "narrow" or "ask" (see docs/methods/cats.md).
        bank: step bank to train on; default: the simulator of the embedded world.
        validation: step bank to compare on; default: a random fifth of the questions of --bank.
        calibration: calibration of the bank's PRMs: a file of `cats-jax calibrate`, a shipped name
            such as "weak", or "none".
        online: recipe of `cats-jax evaluate` to train on by real searches, with its policy, PRMs,
            calibration and questions, in place of the simulator. One controller is trained and none
            is compared; the same command resumes a training that was killed.
        trajectories: folder of `cats-jax collect` to learn from; needs --config offline, clone or
            paper. The simulator or the bank is then used for the comparison only.
        prms: PRMs to train and compare on; default: all.
        num_candidates: values of N, in place of the configuration's.
        num_iterations: iterations of search and update, in place of the configuration's.
        settings: other values of the configuration, such as learner.learning_rate=1e-3
            reward=paper cats.reward.discount=0.5 (see docs/train/controllers.md).
        seed: random seed of training and comparison.
        num_seeds: number of controllers, each with another seed; default 3. --online trains one.
        functions: with --online, run the code of functions that the recipe names as
            module:function.
        rivals: also evaluate every constant action, threshold rules and the random policy.
    """

    output: pathlib.Path
    config: str | None = None
    start: str | None = None
    actions: str | None = None
    bank: pathlib.Path | None = None
    validation: pathlib.Path | None = None
    calibration: str | None = None
    online: pathlib.Path | None = None
    trajectories: pathlib.Path | None = None
    prms: tuple[str, ...] | None = None
    num_candidates: tuple[int, ...] | None = None
    num_iterations: int | None = None
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    seed: int = 0
    num_seeds: int | None = None
    functions: bool = True
    rivals: bool = True
