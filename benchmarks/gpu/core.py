"""Part `core`: a tick of the search core on the GPU and on the CPU of the same process."""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax
import numpy as np

import learners
import search
from cats_jax.live import ticks
from search import simulation

from .report import NoGPUError, Report, Values

STRATEGIES = ("cats", "beam")
QUESTIONS, NUM_CANDIDATES = (64, 256, 1024), 256
REHEARSED_QUESTIONS, REHEARSED_NUM_CANDIDATES = (2,), 4
STEPS, REPEATS = 3, 5
REPEAT_SECONDS = 2.0
"""Time after which a device repeats its ticks no more; one repetition is always measured."""


def run(report: Report) -> None:
    """Rows by strategy and number of questions; the crossover is a note."""
    gpu, cpu = devices(report)
    sizes = REHEARSED_QUESTIONS if report.rehearse else QUESTIONS
    capacity = REHEARSED_NUM_CANDIDATES if report.rehearse else NUM_CANDIDATES
    for size in sizes:  # small ones first
        for name in STRATEGIES:
            report.row(
                f"{name}, {size} questions x {capacity}",
                lambda name=name, size=size: compare(
                    name, size, capacity, gpu, cpu, 1 if report.rehearse else REPEATS
                ),
            )
    for name in STRATEGIES:
        report.note(crossover(report, name))


def devices(report: Report) -> tuple[jax.Device, jax.Device]:
    """The GPU and the CPU, as JAX sees them; both are the CPU in a rehearsal."""
    cpu = jax.devices("cpu")[0]
    return (cpu if report.rehearse else gpu_device()), cpu


def gpu_device() -> jax.Device:
    """The first GPU.

    Raises:
        NoGPUError: JAX sees none.
    """
    try:
        return jax.devices("cuda")[0]
    except RuntimeError as error:
        raise NoGPUError(
            f"JAX {jax.__version__} can't use the GPU: {str(error).splitlines()[0]}: install the "
            "JAX build for CUDA"
        ) from error


def crossover(report: Report, name: str) -> str:
    """At which numbers of questions the GPU is faster, as a sentence."""
    ratios = {
        row["questions"]: row["CPU / GPU"]
        for key, row in report.rows.items()
        if key.startswith(f"{name},") and "error" not in row
    }
    faster = [str(questions) for questions, ratio in ratios.items() if ratio > 1.0]
    return (
        f"{name}: a tick is faster on the GPU at {', '.join(faster) or 'none'} of the measured "
        f"numbers of questions ({', '.join(map(str, ratios)) or 'none'})."
    )


def compare(
    name: str, questions: int, capacity: int, gpu: jax.Device, cpu: jax.Device, repeats: int
) -> Values:
    """Milliseconds per tick (plan, commit and transfers, as in the driver), and equal results."""
    strategy, params = _strategy(name)
    recorded = _record(strategy, params, questions, capacity, cpu)
    on_gpu = _replay(strategy, params, recorded, gpu, repeats)
    on_cpu = _replay(strategy, params, recorded, cpu, repeats)
    return {
        "questions": questions,
        "ticks": len(recorded.expansions),
        "GPU ms": 1e3 * on_gpu.seconds,
        "CPU ms": 1e3 * on_cpu.seconds,
        "CPU / GPU": on_cpu.seconds / on_gpu.seconds,
        "GPU first pass s (compiles)": on_gpu.first_seconds,
        "questions with other integers": num_different(on_gpu.seen, on_cpu.seen),
    }


def num_different(ours: Any, theirs: Any) -> int:
    """Number of questions, the leading axis of all arrays, in which integers or flags differ."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    differ = [
        (one != other).reshape(len(one), -1).any(axis=1)
        for one, other in pairs
        if not np.issubdtype(one.dtype, np.floating)
    ]
    return int(np.any(differ, axis=0).sum())


def _strategy(name: str) -> tuple[search.Strategy, Any]:
    if name == "beam":
        return search.beam(), ()
    network = learners.make_actor(len(search.cats.PAPER.actions))
    policy = learners.make_policy(network.apply, mode="argmax")
    params = jax.tree.map(np.asarray, network.init(jax.random.key(0)))
    return search.cats.cats(policy, search.cats.PAPER), params


class _Recorded:
    """First states, data of the keys and the expansions of each tick, on the host.

    Both devices get the same ones, so that only the core's own work can make results differ.
    """

    def __init__(self, states: Any, keys: Any):
        self.states, self.keys = states, keys
        self.expansions: list[Any] = []


def _record(
    strategy: search.Strategy, params: Any, questions: int, capacity: int, cpu: jax.Device
) -> _Recorded:
    """Plays some steps around the toy simulator on the CPU."""
    with jax.default_device(cpu):
        keys = jax.random.split(jax.random.key(0), questions)
        # Jitted, as is `first`: op by op, hundreds of small programs would be compiled.
        task = jax.jit(simulation.ENVIRONMENT.reset_many)(
            simulation.toy_params(num_steps=(8, 9)), keys
        )
        width = strategy.width(capacity)

        def first(root: Any, max_depth: Any, context: Any) -> search.SearchState:
            return search.init(
                root,
                strategy=strategy,
                num_candidates=capacity,
                width=width,
                max_depth=max_depth,
                context=context,
                capacity=capacity,
                frontier_capacity=width,
                depth_capacity=12,
            )

        states = jax.jit(jax.vmap(first))(task.root, task.max_depth, task.context)
        # On the device for good, as in `_replay`: programs are compiled for where arrays are.
        params, keys, states = jax.device_put((params, keys, states), cpu)
        data = np.asarray(jax.random.key_data(keys))
        recorded = _Recorded(jax.device_get(states), data)
        expand = simulation.simulator(capacity)
        sample = jax.jit(jax.vmap(expand, in_axes=(simulation.ENVIRONMENT.axes, 0, 0)))
        for tick in range(STEPS * strategy.num_phases):
            counts = np.full(questions, tick, np.int32)
            planned = ticks.plan(params, data, counts, states, strategy)
            tick_keys = jax.vmap(lambda key, tick=tick: search.tick_keys(key, tick)[1])(keys)
            expansion = jax.device_get(sample(task.params, tick_keys, planned.request))
            recorded.expansions.append(expansion)
            states, _ = ticks.commit(params, states, planned, expansion, strategy)
    return recorded


class _Replayed:
    """Median seconds of a tick, seconds of the first pass, and all that the host has seen."""

    def __init__(self) -> None:
        self.seconds = self.first_seconds = 0.0
        self.seen: list[Any] = []


def _replay(
    strategy: search.Strategy, params: Any, recorded: _Recorded, device: jax.Device, repeats: int
) -> _Replayed:
    found = _Replayed()
    params, keys, first = jax.device_put((params, recorded.keys, recorded.states), device)
    questions = keys.shape[0]
    means: list[float] = []
    end = float("inf")
    for turn in range(1 + repeats):  # the first one compiles
        found.seen, states, seconds = [], first, 0.0
        for tick, expansion in enumerate(recorded.expansions):
            counts = np.full(questions, tick, np.int32)
            jax.block_until_ready(states)
            start = time.perf_counter()
            with jax.default_device(device):
                planned = ticks.plan(params, keys, counts, states, strategy)
                request = jax.device_get(planned.request)
                states, seen = ticks.commit(params, states, planned, expansion, strategy)
                seen = jax.device_get(seen)
            seconds += time.perf_counter() - start
            found.seen += [request, seen]
        if turn == 0:
            found.first_seconds = seconds
            end = time.perf_counter() + REPEAT_SECONDS
        else:
            means.append(seconds / len(recorded.expansions))
            if time.perf_counter() > end:
                break
    found.seen.append(jax.device_get(states))
    found.seconds = statistics.median(means)
    return found
