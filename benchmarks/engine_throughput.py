"""Generated tokens per second: whole searches against the same engine's bare `generate`.

The weak policy of the embedded world on vLLM, its questions all in flight at once. Bare: one call
of `vllm.LLM.generate` with all prompts, N samples of each to the end of the answer; a search asks
step by step, with the same seeds and settings. The PRM runs on transformers in this process. Both
take turns, with the engine's prefix cache emptied before each; the first round, which compiles, is
left out.

    .venv-vllm/bin/python benchmarks/engine_throughput.py [--questions 64] [--num-candidates 64]

`--cpu-seconds` puts the engine into this process and counts tokens per second of its CPU time: what
else runs on the machine then matters little.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

from rich.table import Table

from cats_jax import datasets, world
from cats_jax.commands import terminal
from cats_jax.controllers.strategies import build_strategy
from cats_jax.live.searcher import Searcher
from cats_jax.live.seeds import stable_seed
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.token_engine import Sampled, SampleRequest
from cats_jax.models.serving.vllm_engine import VLLMSampler, sampling_inputs
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, StepRequest
from cats_jax.specs.recipe import PrmSpec, StrategySpec


class Recorder:
    """The engine, and what it was last asked for."""

    def __init__(self, context: int):
        self.engine = VLLMSampler(world.policy_path("weak"), context=context)
        self.asked: Sequence[SampleRequest] = ()

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sampled]]:
        self.asked = requests
        return self.engine.sample(requests)

    def forget(self) -> None:
        assert self.engine.engine.reset_prefix_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--strategies", nargs="+", default=("majority", "best_of_n", "beam"))
    parser.add_argument("--cpu-seconds", action="store_true")
    options = parser.parse_args()
    clock = time.perf_counter
    if options.cpu_seconds:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        clock = time.process_time
    questions = datasets.world_questions("validation", options.questions).questions
    recorders: list[Recorder] = []

    def start(context: int) -> Recorder:
        recorders.append(Recorder(context))
        return recorders[0]

    policy = EngineGenerator(
        world.policy_path("weak"), start, max_step_tokens=32, max_answer_tokens=64
    )
    (recorder,) = recorders
    policy.generate([root(question, options.num_candidates) for question in questions])
    bare_requests = recorder.asked
    searches = {
        name: searcher(name, policy, options.num_candidates, len(questions))
        for name in options.strategies
    }
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in searches}
    for repeat in range(-1, options.repeats):
        recorder.forget()
        reference = bare(recorder, bare_requests, clock)
        for name, search in searches.items():
            recorder.forget()
            rate = whole(search, questions, clock)
            print(f"round {repeat + 1}: bare {reference:.0f}, {name} {rate:.0f}", flush=True)
            if repeat >= 0:
                rates[name].append((rate, reference))
    unit = "CPU second" if options.cpu_seconds else "second"
    title = f"{len(questions)} questions, N = {options.num_candidates}: generated tokens per {unit}"
    table = Table("", "search", "bare", "ratio, median", "range", title=title)
    for name, pairs in rates.items():
        search, reference = (statistics.median(rate) for rate in zip(*pairs, strict=True))
        ratios = [one / other for one, other in pairs]
        middle = f"{statistics.median(ratios):.2f}"
        span = f"{min(ratios):.2f} to {max(ratios):.2f}"
        table.add_row(name, f"{search:.0f}", f"{reference:.0f}", middle, span)
    terminal.show_table(terminal.make_console(), table)


def root(question: Question, num_samples: int) -> StepRequest:
    """Whole answers, with the seeds that a search's first step has."""
    seeds = tuple(stable_seed(0, question.id, 0, 0, row) for row in range(num_samples))
    return StepRequest(question, (), seeds, 1.0, 1.0, 0, to_end=True)


def searcher(name: str, policy: EngineGenerator, num_candidates: int, in_flight: int) -> Searcher:
    strategy, params, _ = build_strategy(StrategySpec(name))
    return Searcher(
        policy=policy,
        scorer=ModelFolders().prm(PrmSpec(world.PRM_NAMES[0])) if strategy.uses_scores else None,
        strategy=strategy,
        params=params,
        num_candidates=num_candidates,
        in_flight=in_flight,
    )


def bare(
    recorder: Recorder, requests: Sequence[SampleRequest], clock: Callable[[], float]
) -> float:
    """Generated tokens per second of one call."""
    prompts, parameters = sampling_inputs(requests)
    begun = clock()
    outputs = recorder.engine.engine.generate(prompts, parameters, use_tqdm=False)
    seconds = clock() - begun
    return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds


def whole(search: Searcher, questions: Sequence[Question], clock: Callable[[], float]) -> float:
    """Generated tokens per second of a search."""
    begun = clock()
    results = search.run(questions)
    seconds = clock() - begun
    return sum(result.ledger.generated for result in results) / seconds


if __name__ == "__main__":
    main()
