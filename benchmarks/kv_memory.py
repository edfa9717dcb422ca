"""The transformers bridge within bounds on its cached keys and values: memory, time, results.

The same search runs several times, each time in a process of its own. The first one has the default
bound. In the others the caches of policy and PRM are bounded by shares of their peak sizes in the
first. The results must be equal.

    python benchmarks/kv_memory.py [--strategy majority] [--questions 64] [--num-candidates 256]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import multiprocessing
import os
import resource
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import search
from cats_jax import Question, Searcher, world
from cats_jax.world import task


@dataclasses.dataclass(frozen=True)
class Measured:
    """What one search took.

    Attributes:
        peaks: most bytes of keys and values in the policy's and in the PRM's cache.
        resident: most bytes that the process held, less what it held before the search.
        recomputed: tokens computed again by the policy and by the PRM.
        computed: tokens charged, of policy and PRM.
        seconds, processor: by the clock and of the processor.
        digest: hash of all results without times.
    """

    peaks: tuple[int, int]
    resident: int
    recomputed: tuple[int, int]
    computed: int
    seconds: float
    processor: float
    digest: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", default="majority")
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=256)
    parser.add_argument("--shares", type=int, nargs="+", default=(2, 4, 16), help="1 / shares")
    options = parser.parse_args()
    settings = (options.strategy, options.questions, options.num_candidates)
    free = apart(*settings, (None, None))
    show("none", free, free)
    for share in options.shares:
        bounds = [max(1e-4, peak / share / 2**30) for peak in free.peaks]
        got = apart(*settings, bounds)
        for peak, bound in zip(got.peaks, bounds, strict=True):
            assert peak <= bound * 2**30, f"{peak} bytes in a cache of {bound} GiB"
        show(f"1/{share}", got, free)


def show(bound: str, got: Measured, free: Measured) -> None:
    """Prints a row of the table as soon as it is measured."""
    policy, prm, process = (f"{size / 1e6:.1f} MB" for size in (*got.peaks, got.resident))
    again = sum(got.recomputed) / got.computed
    equal = "equal" if got.digest == free.digest else "NOT EQUAL"
    print(
        f"bound {bound}: policy's cache {policy}, PRM's cache {prm}, process {process}, "
        f"{got.seconds:.0f} s ({got.seconds / free.seconds:.2f}), CPU {got.processor:.0f} s "
        f"({got.processor / free.processor:.2f}), computed again {again:.0%}, results {equal}",
        flush=True,
    )


def apart(*arguments: Any) -> Measured:
    """`measure` in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, *arguments).result()


def measure(
    strategy: str, num_questions: int, num_candidates: int, bounds: Sequence[float | None]
) -> Measured:
    """One search with both models in memory and their caches within `bounds` GiB."""
    from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
    from cats_jax.models.prm.format import WORLD

    policy = HuggingFaceGenerator(
        world.policy_path("weak"),
        max_step_tokens=32,
        max_answer_tokens=64,
        kv_cache_gib=bounds[0],
    )
    scorer = HuggingFaceScorer(world.prm_path("exact"), WORLD, kv_cache_gib=bounds[1])
    problems = task.problems("validation", num_questions)
    questions = [Question(problem.id, problem.text) for problem in problems]
    searcher = Searcher(
        policy=policy,
        scorer=scorer,
        strategy=getattr(search, strategy)(),
        num_candidates=num_candidates,
        in_flight=num_questions,
    )
    searcher.run(questions[:1])  # compiles
    policy.recomputed = scorer.recomputed = 0
    peaks = [watch(policy), watch(scorer)]
    before = resident()
    started, used = time.perf_counter(), time.process_time()
    results = searcher.run(questions)
    seconds, processor = time.perf_counter() - started, time.process_time() - used
    ledgers = [result.ledger for result in results]
    told = [
        (result.answer, result.paths, result.candidates, ledger.tokens, ledger.flops)
        for result, ledger in zip(results, ledgers, strict=True)
    ]
    return Measured(
        peaks=(peaks[0][0], peaks[1][0]),
        resident=resident() - before,
        recomputed=(policy.recomputed, scorer.recomputed),
        computed=sum(ledger.prompt_computed + ledger.prm_computed for ledger in ledgers),
        seconds=seconds,
        processor=processor,
        digest=hashlib.sha256(repr(told).encode()).hexdigest(),
    )


def watch(bridge: Any) -> list[int]:
    """A list whose one entry is the most bytes that the bridge's cache has held so far."""
    cache, peak = bridge._cache, [0]
    store, size = cache.store, bridge._model.kv_bytes_per_token

    def watched(*arguments: Any) -> None:
        store(*arguments)
        peak[0] = max(peak[0], len(cache) * size)

    cache.store = watched
    return peak


def resident() -> int:
    """The most bytes that this process has held."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
