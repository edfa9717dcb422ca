"""Fits the in-graph simulator to the embedded world and compares the two.

    python -m studies.world.models.fit_simulator --policy weak --questions 300

Samples questions of the `controller` set through the bridges, fits (`simulator_estimators`), writes
``assets/simulator.json``. Then solves questions of the `validation` set with best-of-N and beam, in
the world by `cats_jax.Searcher` and in the simulator by `search.rollout`, and writes the table of
``docs/results/simulator.md`` and its plot. Test questions are not used.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp
import numpy as np

import search
from cats_jax import world
from cats_jax.live.proxies import GeneratorProxy
from cats_jax.protocols import Generation, Question, StepGenerator, StepRequest
from cats_jax.reporting import statistics
from cats_jax.reporting.figure_setup import drawing, save_figure
from cats_jax.world import simulator, task
from search import simulation

from ..results.simulator_figure import draw_simulator
from . import simulator_estimators, simulator_samples

COMPARED_N = (4, 16, 64)
STRATEGIES = ("best_of_n", "beam")

_SIMULATED_QUESTIONS = 4096
_SIMULATED_AT_ONCE = 256
_DIGITS = 5  # significant digits of parameters, far more than the samples determine
_BEGIN = "<!-- table: begin (written by studies.world.models.fit_simulator) -->"
_END = "<!-- table: end -->"


@dataclass(frozen=True)
class Cell:
    """One strategy at one N with one PRM, in the world and in the simulator; accuracies."""

    prm: str
    strategy: str
    num_candidates: int
    world: float
    world_low: float
    world_high: float
    simulator: float
    simulator_low: float
    simulator_high: float


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    options = _parser().parse_args(arguments)
    started = time.perf_counter()

    def log(line: str) -> None:
        print(f"[{time.perf_counter() - started:6.1f} s] {line}", flush=True)

    policy, prms = _load(options.policy)
    if options.compare_only:
        params = simulator.load_simulator(options.output)
    else:
        children = _samples(options, policy, prms)
        log(f"{children.node.size} samples at {np.unique(children.node).size} nodes")
        sparsities = [(prm.sparsity_total, prm.sparsity_last_layer) for prm in prms.values()]
        params = simulator_estimators.fit(children, sparsities, log)
        save_simulator(
            options.output,
            params,
            {"prms": list(prms), "levels": list(task.LEVELS)},
            {
                "command": "python -m studies.world.models.fit_simulator",
                "policy": options.policy,
                "questions": options.questions,
                "seed": options.seed,
                "samples": int(children.node.size),
            },
        )
        log(f"wrote {options.output}")
    if options.compare_questions:
        cells = compare(policy, prms, params, options.compare_prms, options.compare_questions, log)
        write_report(cells, options.compare_questions, options.docs)
        log(f"wrote {options.docs / 'results' / 'simulator.md'} and its figure")


def save_simulator(
    path: pathlib.Path, params: simulation.SimulatorParams, axes: dict[str, list], source: dict
) -> None:
    """Write rounded parameters of the simulator, overwriting an old file.

    `axes` names the axes, see `simulator.simulator_names`; `source`, JSON values, is the origin.
    """
    content = {
        "format": 2,
        "source": source,
        "axes": axes,
        "parameters": _rounded(simulation.to_dict(params)),
    }
    # One line per parameter, so that a diff between two fits is readable.
    lines = [f'"{name}": {json.dumps(content[name])}' for name in ("format", "source", "axes")]
    rows = [f'"{name}": {json.dumps(v)}' for name, v in content["parameters"].items()]
    lines.append('"parameters": {\n' + ",\n".join(rows) + "\n}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _rounded(value):
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    root = pathlib.Path(__file__).resolve().parents[3]
    parser.add_argument("--policy", choices=world.POLICY_NAMES, default="weak")
    parser.add_argument("--questions", type=int, default=300, help="to fit to (controller set)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--samples", type=pathlib.Path, help="file (.npz) to keep samples in, or to take them from"
    )
    parser.add_argument("--output", type=pathlib.Path, default=simulator.SIMULATOR_FILE)
    parser.add_argument("--docs", type=pathlib.Path, default=root / "docs")
    parser.add_argument(
        "--compare-questions", type=int, default=200, help="validation questions; 0: no comparison"
    )
    parser.add_argument(
        "--compare-prms",
        nargs="+",
        default=["exact", "monte-carlo", "labels-only"],
        choices=world.PRM_FAMILY,
    )
    parser.add_argument("--compare-only", action="store_true", help="do not fit, read --output")
    return parser


def _samples(
    options: argparse.Namespace, policy: StepGenerator, prms: dict
) -> simulator_samples.Children:
    if options.samples and options.samples.is_file():
        with np.load(options.samples) as columns:
            return simulator_samples.Children(**columns)
    problems = task.problems("controller", options.questions, seed=options.seed)
    children = simulator_samples.sample_children(problems, policy, prms, options.seed)
    if options.samples:
        np.savez(options.samples, **asdict(children))
    return children


def _load(policy_name: str) -> tuple[StepGenerator, dict]:
    """The policy and all PRMs, by name."""
    from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
    from cats_jax.models.prm.format import WORLD

    policy = HuggingFaceGenerator(
        world.policy_path(policy_name), max_step_tokens=32, max_answer_tokens=128
    )
    prms = {name: HuggingFaceScorer(world.prm_path(name), WORLD) for name in world.PRM_FAMILY}
    return policy, prms


# --- Simulator against world --------------------------------------------------------------------


def compare(
    policy: StepGenerator,
    prms: dict,
    params: simulation.SimulatorParams,
    prm_names: Sequence[str],
    num_questions: int,
    log=print,
) -> list[Cell]:
    """Accuracies in world and simulator on validation questions, levels equally often."""
    from cats_jax.live.searcher import Searcher

    problems = task.problems("validation", num_questions)
    questions = [Question(problem.id, problem.text) for problem in problems]
    cells = []
    for num_candidates in COMPARED_N:
        for name in STRATEGIES:
            remembering = _Remembering(policy)
            strategy = search.methods.DEFAULTS[name]
            for prm in prm_names:
                results = Searcher(
                    policy=remembering,
                    scorer=prms[prm],
                    strategy=strategy,
                    num_candidates=num_candidates,
                    max_depth=simulator_samples.MAX_DEPTH,
                ).run(questions)
                right = [
                    result.answer == problem.answer
                    for result, problem in zip(results, problems, strict=True)
                ]
                real = statistics.wilson(sum(right), len(right))
                found = simulate(params, world.PRM_FAMILY.index(prm), strategy, num_candidates)
                model = statistics.wilson(int(found.sum()), found.size)
                cells.append(Cell(prm, name, num_candidates, *real, *model))
                log(f"{prm} {name} N={num_candidates}: {real.value:.3f} / {model.value:.3f}")
    return cells


class _Remembering(GeneratorProxy[StepGenerator]):
    """A generator that caches the samples of an inner generator.

    A sample follows from path, parameters and seed, which do not depend on the PRM: best-of-N has
    the same requests for every PRM, and so do the first steps of beams.
    """

    def __init__(self, inner: StepGenerator):
        super().__init__(inner)
        self._known: dict = {}

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        known = [self._known.get(request) for request in requests]
        new = [request for request, found in zip(requests, known, strict=True) if found is None]
        fresh = self._model.generate(new)
        self._known.update(zip(new, zip(fresh.samples, fresh.usage, strict=True), strict=True))
        answers = [self._known[request] for request in requests]
        samples, usage = [list(a[0]) for a in answers], [a[1] for a in answers]
        return Generation(samples=samples, usage=usage, inside_seconds=fresh.inside_seconds)


def simulate(
    params: simulation.SimulatorParams,
    prm: int,
    strategy: search.Strategy,
    num_candidates: int,
    num_questions: int = _SIMULATED_QUESTIONS,
    seed: int = 0,
) -> np.ndarray:
    """b[questions]: whether each simulated search found the answer; levels take turns."""
    batches = -(-num_questions // _SIMULATED_AT_ONCE)
    keys = jax.random.split(jax.random.key(seed), (batches, _SIMULATED_AT_ONCE))
    found = [
        _solve(params, batch, jnp.int32(prm), strategy=strategy, num_candidates=num_candidates)
        for batch in keys
    ]
    return np.concatenate(found)[:num_questions]


@functools.partial(jax.jit, static_argnames=("strategy", "num_candidates"))
def _solve(
    params: simulation.SimulatorParams,
    keys: jax.Array,
    prm: jax.Array,
    *,
    strategy: search.Strategy,
    num_candidates: int,
) -> jax.Array:
    num_levels = params.margin.shape[0]

    def one(key: jax.Array, index: jax.Array) -> jax.Array:
        question_key, search_key = jax.random.split(key)
        task = simulation.question(params, question_key, index % num_levels, prm)
        state = search.init(
            task.root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=task.max_depth,
            context=task.context,
            capacity=num_candidates,
            frontier_capacity=strategy.width(num_candidates),
            depth_capacity=simulator_samples.MAX_DEPTH,
        )
        final, _ = search.rollout(
            (),
            task.params,
            search_key,
            state,
            strategy=strategy,
            expand_fn=simulation.simulator(num_candidates),
        )
        row = search.answer((), final, strategy=strategy)
        return (row >= 0) & (final.finished.answer[row] == task.right_answer)

    return jax.vmap(one)(keys, jnp.arange(keys.shape[0], dtype=jnp.int32))


# --- The report ---------------------------------------------------------------------------------


def write_report(cells: Sequence[Cell], num_questions: int, docs: pathlib.Path) -> None:
    """The figure, the numbers behind it, and the table inside ``simulator.md``."""
    figures = docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    rows = [asdict(cell) for cell in cells]
    with drawing():
        save_figure(draw_simulator(rows), figures / "simulator_vs_world.png")
    (figures / "simulator_vs_world.json").write_text(json.dumps(rows, indent=1) + "\n")
    page = docs / "results" / "simulator.md"
    if page.is_file() and _BEGIN in (text := page.read_text()):
        head, _, rest = text.partition(_BEGIN)
        tail = rest.partition(_END)[2]
        page.write_text(f"{head}{_BEGIN}\n\n{_table(cells, num_questions)}\n{_END}{tail}")


def _table(cells: Sequence[Cell], num_questions: int) -> str:
    lines = [
        f"World: {num_questions} validation questions; simulator: {_SIMULATED_QUESTIONS} drawn "
        "ones. In brackets 95 % Wilson intervals.",
        "",
        "| PRM | strategy | N | world | simulator | difference |",
        "|---|---|---|---|---|---|",
    ]
    for c in cells:
        lines.append(
            f"| {c.prm} | {c.strategy} | {c.num_candidates} "
            f"| {c.world:.3f} [{c.world_low:.3f}, {c.world_high:.3f}] "
            f"| {c.simulator:.3f} [{c.simulator_low:.3f}, {c.simulator_high:.3f}] "
            f"| {c.simulator - c.world:+.3f} |"
        )
    gaps = np.array([abs(c.simulator - c.world) for c in cells])
    inside = sum(c.world_low <= c.simulator <= c.world_high for c in cells)
    lines += [
        "",
        f"Mean absolute difference {gaps.mean():.3f}, largest {gaps.max():.3f}; the simulator is "
        f"inside the world's interval in {inside} of {len(cells)} cells.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
