"""Part `training`: a training run in the graph on the GPU and on the CPU."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax

import learners
from search import simulation

from .core import devices
from .report import Report, Values

EPISODES, ITERATIONS = (32, 256, 1024), 5
NUM_CANDIDATES = 64


def run(report: Report) -> None:
    """Rows by the number of searches of an iteration."""
    gpu, cpu = devices(report)
    for episodes in (2,) if report.rehearse else EPISODES:
        config = dataclasses.replace(
            learners.PAPER,
            num_candidates=(4 if report.rehearse else NUM_CANDIDATES,),
            num_episodes=episodes,
            num_iterations=2 if report.rehearse else ITERATIONS,
        )
        report.row(
            f"{episodes} searches x {config.num_candidates[0]}",
            lambda config=config: _compare(config, gpu, cpu),
        )


def _compare(config: learners.TrainConfig, gpu: jax.Device, cpu: jax.Device) -> Values:
    train = jax.jit(learners.make_train(config, simulation.ENVIRONMENT))
    gpu_rate, gpu_first, gpu_decisions = _rate(train, config, gpu)
    cpu_rate, cpu_first, cpu_decisions = _rate(train, config, cpu)
    return {
        "GPU iterations/s": gpu_rate,
        "CPU iterations/s": cpu_rate,
        "GPU / CPU": gpu_rate / cpu_rate,
        "GPU decisions/s": gpu_decisions,
        "CPU decisions/s": cpu_decisions,
        "GPU first run s": gpu_first,
        "CPU first run s": cpu_first,
    }


def _rate(
    train: Any, config: learners.TrainConfig, device: jax.Device
) -> tuple[float, float, float]:
    """Iterations per second, seconds of the first run (it compiles), decisions per second."""
    with jax.default_device(device):
        tables, *keys = jax.device_put(
            (simulation.toy_params(), jax.random.key(0), jax.random.key(1)), device
        )
        start = time.perf_counter()
        jax.block_until_ready(train(tables, keys[0]))
        middle = time.perf_counter()
        result = jax.block_until_ready(train(tables, keys[1]))
        seconds = time.perf_counter() - middle
    decisions = float(result.curves.decisions.sum())
    return config.num_iterations / seconds, middle - start, decisions / seconds
