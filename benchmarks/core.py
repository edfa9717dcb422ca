"""Speed of the search core: `plan` (actor, argmax) and `commit`, per valid candidate, one core.

    JAX_PLATFORMS=cpu taskset -c 0 .venv/bin/python benchmarks/core.py

64 questions in the middle of a search: every question has a full frontier of K = N / 4 paths and
spends one whole reasoning step. CATS does that in two ticks (two base children per node, then the
actor, 2x128, decides about the rest), beam in one. The time of all `plan`s and `commit`s of the
step is divided by the *valid* candidates that came of it, never by padding; asking the language
model is not part of it. In training a recorder makes transitions of CATS' decisions in the same
program as `commit`. The column "commit, record" has the time of that program, and "together" is its
sum with "plan". Beside each stands a plain-Python loop that does the same, the oracle of the tests,
with the actor in numpy. Times are CPU seconds of the process (a shared machine changes wall time,
not these), median over the repetitions.

The second table has what a first search waits for: tracing and compiling the driver's `plan` and
`commit`. The strategies take turns. Programs are compiled as the driver compiles them
(`cats_jax.live.core_program`); XLA_FLAGS may name other options.
"""

import dataclasses
import functools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

# Before jax is imported: one core means one thread.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import rich.console  # noqa: E402
import rich.table  # noqa: E402
import tyro  # noqa: E402

import learners  # noqa: E402
import search  # noqa: E402
from cats_jax.live import ticks  # noqa: E402
from cats_jax.live.core_program import compiler_options  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))
import oracle  # noqa: E402

NAMES = ("cats", "beam")
QUESTIONS = 64
MAX_DEPTH = 8
DEPTH = 3  # of the frontier when the clock starts


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured.

    Attributes:
        candidates: values of N.
        repeats: of the jitted functions; the median counts.
        compilations: of the driver's programs; the median counts.
        python_questions: how many of the 64 questions the Python loop searches.
        seed: of the scores and of the actor.
    """

    candidates: tuple[int, ...] = (256, 16)
    repeats: int = 20
    compilations: int = 3
    python_questions: int = 4
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Timing:
    """CPU seconds of one reasoning step of all questions, and what came of it.

    Attributes:
        plan: all `plan`s.
        commit: all `commit`s.
        record: all `commit`s, with the recorder in the same program.
        valid: number of valid candidates.
    """

    plan: float
    commit: float
    record: float
    valid: int

    @property
    def together(self) -> float:
        return self.plan + self.record


def main(config: Config) -> None:
    """Measure and print both tables."""
    console = rich.console.Console()
    console.print(_step_table(config, console))
    console.print(_compilation_table(config, console))


def _step_table(config: Config, console: rich.console.Console) -> rich.table.Table:
    table = rich.table.Table(
        "strategy",
        "N",
        "valid",
        "plan",
        "commit",
        "commit, record",
        "together",
        "plain Python",
        "ratio",
        title=f"µs of one core per valid candidate, {QUESTIONS} questions",
    )
    for name in NAMES:
        for num_candidates in config.candidates:
            with console.status(f"{name}, N = {num_candidates}"):
                strategy, rules, params, actor = _strategy(name, config.seed)
                ours = _time_core(strategy, params, num_candidates, config)
                python = _time_python(rules, actor, num_candidates, config)
            ours_total = 1e6 * ours.together / ours.valid
            python_total = 1e6 * python.together / python.valid
            parts = (ours.plan, ours.commit, ours.record)
            table.add_row(
                name,
                str(num_candidates),
                str(ours.valid),
                *(f"{1e6 * part / ours.valid:.2f}" for part in parts),
                f"[bold]{ours_total:.2f}[/]",
                f"{python_total:.1f}",
                f"{python_total / ours_total:.0f}x",
            )
    return table


def _compilation_table(config: Config, console: rich.console.Console) -> rich.table.Table:
    table = rich.table.Table(
        "strategy",
        "N",
        "trace",
        "compile",
        "together",
        title=f"CPU seconds for the two programs of a first search, {QUESTIONS} questions",
    )
    for num_candidates in config.candidates:
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
        for _ in range(config.compilations):
            for name in NAMES:
                with console.status(f"compile {name}, N = {num_candidates}"):
                    strategy, _, params, _ = _strategy(name, config.seed)
                    seconds[name].append(_compile(strategy, params, num_candidates, config))
        for name, found in seconds.items():
            trace, compilation = (statistics.median(part) for part in zip(*found, strict=True))
            together = statistics.median(map(sum, found))
            table.add_row(
                name,
                str(num_candidates),
                f"{trace:.2f}",
                f"{compilation:.2f}",
                f"[bold]{together:.2f}[/]",
            )
    return table


def _strategy(name: str, seed: int) -> tuple[search.Strategy, oracle.Rules, Any, Any]:
    if name == "beam":
        return search.beam(), oracle.Rules("beam"), (), None
    config = search.cats.PAPER
    network = learners.make_actor(len(config.actions))
    params = network.init(jax.random.key(seed))
    # A fresh actor's last layer is near zero; scaled up, nodes differ in what they choose.
    params = jax.tree.map(lambda leaf: leaf * (100.0 if leaf.shape[-1] == 90 else 1.0), params)
    rules = oracle.Rules(
        "cats",
        rounds=config.rounds,
        num_base=config.num_base,
        actions=config.actions.rows,
        excluded=config.excluded_features,
    )
    policy = learners.make_policy(network.apply, mode="argmax")
    layers = [
        (np.asarray(layer["kernel"]), np.asarray(layer["bias"]))
        for layer in jax.tree.leaves(params, is_leaf=lambda node: "kernel" in node)
    ]
    return search.cats.cats(policy, config), rules, params, layers


# The core


def _first_states(strategy: search.Strategy, num_candidates: int, seed: int) -> search.SearchState:
    """64 searches at depth 3 with full frontiers, between two steps."""
    width = max(1, num_candidates // 4)
    state = search.init(
        jnp.int32(0),
        strategy=strategy,
        num_candidates=num_candidates,
        width=width,
        max_depth=MAX_DEPTH,
        capacity=num_candidates,
        frontier_capacity=width,
    )
    scores = np.random.default_rng(seed).random((QUESTIONS, width, MAX_DEPTH), np.float32)
    scores[:, :, DEPTH:] = 0.0
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * QUESTIONS), state)
    frontier = states.frontier.replace(
        valid=jnp.ones((QUESTIONS, width), bool),
        depth=jnp.full((QUESTIONS, width), DEPTH, jnp.int32),
        step_scores=jnp.asarray(scores),
        weight=jnp.ones((QUESTIONS, width), jnp.float32),
    )
    spent = jnp.full((QUESTIONS,), DEPTH * num_candidates, jnp.int32)
    return states.replace(frontier=frontier, step=jnp.full_like(spent, DEPTH), spent=spent)


def _expand(num_samples: jax.Array, capacity: int, rng: np.random.Generator) -> search.Expansion:
    """What a language model and a PRM might say: nine in ten valid, one in twenty done."""
    num_samples = np.asarray(num_samples)
    shape = (QUESTIONS, capacity)
    parent, granted = np.zeros(shape, np.int32), np.zeros(shape, bool)
    for question in range(QUESTIONS):
        parents = np.repeat(np.arange(num_samples.shape[1]), num_samples[question])
        parent[question, : parents.size] = parents
        granted[question, : parents.size] = True
    done = rng.random(shape) < 0.05
    return jax.device_put(
        search.Expansion(
            valid=granted & (rng.random(shape) < 0.9),
            parent=parent,
            score=rng.random(shape, np.float32),
            done=done,
            answer=np.where(done, rng.integers(0, 4, shape), -1).astype(np.int32),
            text=rng.integers(0, 4, shape).astype(np.int32),
            log_prob=-rng.random(shape, np.float32),
            num_tokens=rng.integers(1, 40, shape).astype(np.int32),
            embedding=rng.integers(0, 2**20, shape).astype(np.int32),
        )
    )


def _time_core(
    strategy: search.Strategy, params: Any, num_candidates: int, config: Config
) -> Timing:
    def plan(params: Any, keys: Any, states: Any, base_phase: bool) -> search.Plan:
        one = functools.partial(search.plan, strategy=strategy, base_phase=base_phase)
        return jax.vmap(one, in_axes=(None, 0, 0))(params, keys, states)

    options = compiler_options(jax.default_backend())
    plan = jax.jit(plan, static_argnames="base_phase", compiler_options=options)

    def commit(states: Any, planned: Any, expansion: Any, base_phase: bool) -> Any:
        one = functools.partial(search.commit, strategy=strategy, base_phase=base_phase)
        return jax.vmap(one)(states, planned, expansion)

    def record(memory: Any, states: Any, planned: Any, expansion: Any, base_phase: bool) -> Any:
        after, output = commit(states, planned, expansion, base_phase)
        tick = search.Tick(states, planned, expansion, output, after)
        return after, jax.vmap(recorder.record)(memory, tick)

    recorder = _recorder(strategy)
    jitted = functools.partial(jax.jit, static_argnames="base_phase", compiler_options=options)
    record = jitted(record, donate_argnums=(0, 1, 2))
    commit_alone = jitted(commit, donate_argnums=(0, 1))
    states = _first_states(strategy, num_candidates, config.seed)
    keys = jax.random.split(jax.random.key(config.seed), QUESTIONS)
    rng = np.random.default_rng(config.seed)
    plan_seconds = commit_seconds = record_seconds = 0.0
    valid = 0
    memory = jax.vmap(recorder.init)(states)
    for phase in range(strategy.num_phases):
        # As the host driver does: questions in lockstep, the base phase has its own program.
        base_phase = phase == 0 and strategy.num_phases > 1
        planned, seconds = _median_time(
            functools.partial(plan, base_phase=base_phase),
            lambda state=states: (params, keys, state),
            config.repeats,
        )
        plan_seconds += seconds
        expansion = _expand(planned.request.num_samples, num_candidates, rng)
        valid += int(np.asarray(expansion.valid).sum())
        # Donated buffers are gone after a call: every repetition gets copies, off the clock.
        before = (memory, states, planned)
        _, seconds = _median_time(
            functools.partial(commit_alone, base_phase=base_phase),
            lambda before=before, new=expansion: (*jax.tree.map(jnp.copy, before[1:]), new),
            config.repeats,
        )
        commit_seconds += seconds
        (states, (memory, _)), seconds = _median_time(
            functools.partial(record, base_phase=base_phase),
            lambda before=before, new=expansion: (*jax.tree.map(jnp.copy, before), new),
            config.repeats,
        )
        record_seconds += seconds
    return Timing(plan_seconds, commit_seconds, record_seconds, valid)


def _recorder(strategy: search.Strategy) -> search.Recorder:
    """What makes transitions of the strategy's decisions, if it takes any."""
    if strategy.config is None:
        return search.loop.OUTPUTS
    return search.cats.decision_recorder(strategy.config.reward.discount)


# Compilation


def _compile(
    strategy: search.Strategy, params: Any, num_candidates: int, config: Config
) -> tuple[float, float]:
    """Seconds of tracing and of compiling what the driver runs each tick."""
    states = _first_states(strategy, num_candidates, config.seed)
    keys = jax.random.key_data(jax.random.split(jax.random.key(config.seed), QUESTIONS))
    counts = jnp.zeros((QUESTIONS,), jnp.int32)
    nothing = jnp.zeros(states.frontier.valid.shape, jnp.int32)
    expansion = _expand(nothing, num_candidates, np.random.default_rng(config.seed))
    planned = ticks.plan.jitted.eval_shape(params, keys, counts, states, strategy=strategy)
    trace_seconds = compile_seconds = 0.0
    jax.clear_caches()
    for program, arguments in (
        (ticks.plan.jitted, (params, keys, counts, states)),
        (ticks.commit.jitted, (params, states, planned, expansion)),
    ):
        start = time.process_time()
        lowered = program.lower(*arguments, strategy=strategy)
        traced = time.process_time()
        lowered.compile()
        trace_seconds += traced - start
        compile_seconds += time.process_time() - traced
    return trace_seconds, compile_seconds


def _median_time(
    function: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]], repeats: int
) -> tuple[Any, float]:
    result = jax.block_until_ready(function(*arguments()))  # compiles
    seconds = []
    for _ in range(repeats):
        prepared = jax.block_until_ready(arguments())
        start = time.process_time()
        result = jax.block_until_ready(function(*prepared))
        seconds.append(time.process_time() - start)
    return result, statistics.median(seconds)


# Plain Python


def _time_python(rules: oracle.Rules, layers: Any, num_candidates: int, config: Config) -> Timing:
    """The oracle, with the same sizes and the same kind of scores."""
    rng = np.random.default_rng(config.seed)
    seconds, valid = 0.0, 0
    for _ in range(config.python_questions):
        width = max(1, num_candidates // 4)
        world = _PythonWorld(layers, num_candidates, rng)
        state = oracle.first_state(0, num_candidates, width, MAX_DEPTH, num_candidates * MAX_DEPTH)
        template = state["frontier"][0]
        state["frontier"] = [
            {**template, "depth": DEPTH, "scores": rng.random(DEPTH).tolist()} for _ in range(width)
        ]
        state["pending"] = [None] * width
        state["step"], state["spent"] = DEPTH, DEPTH * num_candidates
        start = time.process_time()
        for tick in range(rules.num_phases):
            state = oracle.tick(rules, world.world(), tick, state).state
        seconds += time.process_time() - start
        valid += world.valid
    return Timing(seconds, 0.0, 0.0, valid)


class _PythonWorld:
    """Children drawn beforehand, and the actor in numpy, one node at a time."""

    def __init__(self, layers: Any, num_candidates: int, rng: np.random.Generator) -> None:
        self._layers = layers
        self.valid = 0
        self._children = [
            {
                "valid": bool(rng.random() < 0.9),
                "score": float(rng.random()),
                "done": bool(rng.random() < 0.05),
                "answer": int(rng.integers(0, 4)),
                "text": int(rng.integers(0, 4)),
                "log_prob": -0.5,
                "num_tokens": 9,
                "certainty": 0.5,
                "vector": [0.0],
                "embedding": 0,
            }
            for _ in range(2 * num_candidates)
        ]

    def world(self) -> oracle.World:
        """As the oracle wants it."""
        return oracle.World(
            child=self._child,
            action=self._act,
            offset=lambda tick: 0.5,
            uniforms=lambda tick, count: [0.5] * count,
            uniform=lambda tick: 0.5,
        )

    def _child(self, tick: int, row: int, parent: Any, to_end: bool) -> dict[str, Any]:
        del tick, parent, to_end
        child = self._children[row]
        self.valid += child["valid"]
        return child

    def _act(
        self, tick: int, slot: int, legal: list[bool], features: dict[str, float]
    ) -> tuple[int, float]:
        del tick, slot
        hidden = np.asarray(list(features.values()), np.float32)
        for kernel, bias in self._layers[:-1]:
            hidden = np.maximum(hidden @ kernel + bias, 0.0)
        kernel, bias = self._layers[-1]
        logits = np.where(legal, hidden @ kernel + bias, -np.inf)
        index = int(np.argmax(logits))
        return index, float(logits[index] - np.logaddexp.reduce(logits))


if __name__ == "__main__":
    main(tyro.cli(Config))
