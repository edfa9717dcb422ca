"""Cost of the search core in whole searches: every strategy compared with beam search, one core.

    JAX_PLATFORMS=cpu taskset -c 0 .venv/bin/python benchmarks/strategies.py

64 simulated questions are searched from their roots to their ends. The time of all `plan`s and
`commit`s is divided by the candidates; the simulator, which stands for the models, is not part of
it. Times are CPU seconds of the process: the smaller time of two runs, after a run that compiles.

A tick costs the same however few candidates it asks for, because the arrays are padded to N rows.
Methods that write one path after the other, or that grow one node at a time, therefore cost more
per candidate. The column "per tick" has the cost of a tick without that division.
"""

import functools
import os
import time
from typing import Any

# Before jax is imported: one core means one thread.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import rich.console  # noqa: E402
import rich.table  # noqa: E402
import tyro  # noqa: E402

import search  # noqa: E402
from cats_jax.live.core_program import compiler_options  # noqa: E402
from search import simulation  # noqa: E402

QUESTIONS = 64
MAX_DEPTH = 8
REPEATS = 2


def main(num_candidates: int = 16, only: tuple[str, ...] = ()) -> None:
    """Measure and print the table.

    Args:
        num_candidates: N.
        only: strategies beside beam search; all by default.
    """
    table = rich.table.Table(
        *("strategy", "candidates", "ticks", "µs per candidate", "of beam's", "µs per tick"),
        title=f"search core, N = {num_candidates}, {QUESTIONS} questions, one core",
    )
    names = ["beam", *(name for name in only or search.methods.DEFAULTS if name != "beam")]
    yardstick = 0.0
    for name in names:
        seconds, candidates, num_ticks = _whole_searches(
            search.methods.DEFAULTS[name], num_candidates
        )
        each = 1e6 * seconds / candidates
        yardstick = yardstick or each
        table.add_row(
            *(name, str(candidates), str(num_ticks), f"{each:.2f}", f"{each / yardstick:.1f}"),
            f"{1e6 * seconds / num_ticks:.0f}",
        )
    rich.console.Console().print(table)


def _whole_searches(strategy: search.Strategy, num_candidates: int) -> tuple[float, int, int]:
    """CPU seconds in the core, candidates of all questions, and ticks of the batch."""
    options = compiler_options(jax.default_backend())
    jitted = functools.partial(jax.jit, compiler_options=options)
    plan = jitted(jax.vmap(functools.partial(search.plan, (), strategy=strategy)))
    commit = jitted(jax.vmap(functools.partial(search.commit, strategy=strategy)))
    expand = jax.jit(jax.vmap(simulation.simulator(num_candidates)))
    split = jax.jit(jax.vmap(search.tick_keys, in_axes=(0, None)))
    params = simulation.toy_params(num_steps=(4, 6), invalid=0.05, lucky=0.2, max_depth=MAX_DEPTH)
    keys = jax.random.split(jax.random.key(0), QUESTIONS)
    tasks = jax.vmap(lambda key: simulation.question(params, key, 0, 0))(keys)
    first = jax.vmap(
        lambda root: search.init(
            root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=MAX_DEPTH,
            capacity=num_candidates,
        )
    )(tasks.root)

    def run() -> tuple[float, int, int]:
        states, seconds, num_ticks = first, 0.0, 0
        while not bool(jnp.all(jax.vmap(search.is_terminal)(states))):
            plan_keys, expand_keys = split(keys, num_ticks)
            planned, spent = _timed(plan, plan_keys, states)
            expansion = jax.block_until_ready(expand(tasks.params, expand_keys, planned.request))
            (states, _), more = _timed(commit, states, planned, expansion)
            seconds, num_ticks = seconds + spent + more, num_ticks + 1
        return seconds, int(states.spent.sum()), num_ticks

    run()
    return min(run() for _ in range(REPEATS))


def _timed(function: Any, *arguments: Any) -> tuple[Any, float]:
    start = time.process_time()
    result = jax.block_until_ready(function(*arguments))
    return result, time.process_time() - start


if __name__ == "__main__":
    tyro.cli(main)
