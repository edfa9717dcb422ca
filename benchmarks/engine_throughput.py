"""Whole searches on vLLM against the bare engine: tokens per second by the clock and of processors.

The weak policy of the embedded world, all questions in flight at once. "Bare generate" is one call
of `vllm.LLM.generate` for N whole answers to each question, with the settings of the searches.
"Bare generate, classify" adds the seconds of one call of `vllm.LLM.classify` on the PRM's engine
for the same answers; best-of-N with its PRM on that engine is compared with this, the other rows
with bare generate. CATS is the controller `cats`. "Requests alone" sends the policy's requests of
the search in the row above again, in the same calls, without PRM and driver.

All rows take turns in each round, with the prefix caches of the engines emptied before each but
"bare generate, classify", which scores the answers of the row before. The
first round, which compiles, is left out. "hf" and "vllm" say where the PRM runs. Processor time is
that of this process and of the engines' processes. PRM tokens are those that the ledgers call
computed, per token that the policy sampled; a PRM on transformers computes each new token once.

    .venv-vllm/bin/python benchmarks/engine_throughput.py [--questions 64] [--num-candidates 16]

`--search-and-learn FOLDER` adds the beam search of a checkout of search-and-learn, on the same
engine and with the same PRM on transformers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("TQDM_DISABLE", "1")  # search-and-learn has a bar for every question

import psutil
from engines.requests_alone import Recorder, recorded_policy
from peers.search_and_learn import BeamSearch
from peers.text_scorer import SEPARATOR, TextScorer
from rich.table import Table
from transformers import PreTrainedTokenizerFast

from cats_jax import datasets, world
from cats_jax.commands.terminal import make_console
from cats_jax.controllers.strategies import build_strategy
from cats_jax.datasets.question_set import QuestionSet
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.searcher import Searcher
from cats_jax.models.prm.encoder import StepEncoder
from cats_jax.models.prm.family import choose_format
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.vllm_engine import VLLMSampler
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, StepScorer
from cats_jax.reporting.printing import show_table
from cats_jax.specs.calibrations import load_calibrations
from cats_jax.specs.recipe import PrmSpec, StrategySpec

POLICY, PRM = "weak", world.PRM_NAMES[0]
MAX_DEPTH, MAX_STEP_TOKENS, MAX_ANSWER_TOKENS = 10, 32, 64
EXPANSION = 4  # M of beam search

BARE, BARE_SCORED = "bare generate", "bare generate, classify"

SEARCHES = {
    "majority": ("majority", "hf", BARE),
    "best_of_n, hf": ("best_of_n", "hf", BARE),
    "best_of_n, vllm": ("best_of_n", "vllm", BARE_SCORED),
    "beam, hf": ("beam", "hf", BARE),
    "beam, vllm": ("beam", "vllm", BARE),
    "cats, hf": ("cats", "hf", BARE),
}
"""Rows of the table: strategy, back end of its PRM, and the row that it is compared with."""

REPEATED = ("beam, hf", "cats, hf")
"""Searches whose requests are sent again alone."""

ALONE = "requests alone"
PEER = "search-and-learn, hf"


@dataclass(frozen=True)
class Measured:
    """One row of one round: tokens sampled, PRM tokens computed, right answers, seconds."""

    tokens: int
    prm_tokens: int
    right: int
    seconds: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--strategies", nargs="+", default=("majority", "best_of_n", "beam", "cats")
    )
    parser.add_argument("--search-and-learn", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    asked = datasets.world_questions("validation", options.questions)
    policy, recorder = recorded_policy(
        world.policy_path(POLICY),
        lambda context: VLLMSampler(world.policy_path(POLICY), context=context),
        max_step_tokens=MAX_STEP_TOKENS,
        max_answer_tokens=MAX_ANSWER_TOKENS,
    )
    scorer: Any = ModelFolders().prm(PrmSpec(PRM, backend="vllm"))
    scorers: dict[str, StepScorer] = {"hf": ModelFolders().prm(PrmSpec(PRM)), "vllm": scorer}
    bare = Bare(recorder.sampler.engine, scorer.engine.engine, asked, options.num_candidates)
    rows: dict[str, Callable[[], Measured]] = {BARE: bare.generate, BARE_SCORED: bare.classify}
    for label, (name, backend, _) in SEARCHES.items():
        if name in options.strategies:
            search = searcher(
                name, policy, scorers[backend], options.num_candidates, options.questions
            )
            rows[label] = whole_search(search, asked, recorder)
            if label in REPEATED:
                rows[f"{label}: {ALONE}"] = alone(recorder)
    if options.search_and_learn is None:
        print("no row for search-and-learn: --search-and-learn FOLDER names a checkout of it")
    else:
        rows[PEER] = published(
            options.search_and_learn, bare, scorers["hf"], options.num_candidates
        )
    found = rounds(rows, bare.forget, options.repeats)
    show_table(make_console(), table(found, len(asked.questions), options.num_candidates))


def rounds(
    rows: dict[str, Callable[[], Measured]], forget: Callable[[], None], repeats: int
) -> dict[str, list[Measured]]:
    """What each row measured in each round after the first."""
    found: dict[str, list[Measured]] = {name: [] for name in rows}
    for repeat in range(-1, repeats):
        for name, row in rows.items():
            if repeat < 0 and name == PEER:
                continue  # nothing of it is compiled
            if name != BARE_SCORED:  # it scores the answers of the row before
                forget()
            measured = row()
            if repeat >= 0:
                found[name].append(measured)
                print(f"round {repeat + 1}: {name} {by_clock(measured):.0f} tokens/s", flush=True)
    return found


class Bare:
    """The engines without a search.

    Args:
        policy: the policy's `vllm.LLM`.
        prm: the PRM's `vllm.LLM`.
        asked: the questions.
        num_candidates: number of answers to each question.
    """

    def __init__(self, policy: Any, prm: Any, asked: QuestionSet, num_candidates: int):
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        self.policy, self._prm, self.asked = policy, prm, asked
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(world.policy_path(POLICY))
        folder = world.prm_path(PRM)
        self._encoder = StepEncoder(
            choose_format("auto", folder), PreTrainedTokenizerFast.from_pretrained(folder)
        )
        self._asked = [each for each in asked.questions for _ in range(num_candidates)]
        self._prompts = [{"prompt_token_ids": self._prompt(each)} for each in self._asked]
        self._parameters = [
            SamplingParams(
                temperature=1.0,
                seed=seed,
                max_tokens=MAX_ANSWER_TOKENS,
                stop_token_ids=[self.tokenizer.eos_token_id],
                ignore_eos=True,  # it is among the stops
                detokenize=False,
                logprobs=0,
                skip_clone=True,
            )
            for seed in range(len(self._prompts))
        ]
        self._generated: Measured | None = None
        self._texts: list[str] = []

    def forget(self) -> None:
        """Empty the prefix caches."""
        assert self.policy.reset_prefix_cache()
        assert self._prm.reset_prefix_cache()

    def generate(self) -> Measured:
        """One call for all answers."""
        with meter() as used:
            outputs = self.policy.generate(self._prompts, self._parameters, use_tqdm=False)
        ids = [output.outputs[0].token_ids for output in outputs]
        self._texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        self._generated = Measured(sum(map(len, ids)), 0, 0, *used)
        return self._generated

    def classify(self) -> Measured:
        """The last call of `generate`, and one call that scores its answers."""
        generated = self._generated
        assert generated is not None
        paths = [
            [step for step in text.split(SEPARATOR) if step.strip()] or ["0"]
            for text in self._texts
        ]
        chunks = [
            self._encoder.chunks(each.text, path)
            for each, path in zip(self._asked, paths, strict=True)
        ]
        prompts = [{"prompt_token_ids": [t for chunk in c for t in chunk]} for c in chunks]
        with meter() as used:
            outputs = self._prm.classify(prompts, use_tqdm=False)
        computed = sum(
            len(output.prompt_token_ids) - int(output.num_cached_tokens or 0) for output in outputs
        )
        return Measured(
            generated.tokens,
            computed,
            0,
            generated.seconds + used[0],
            generated.processor + used[1],
        )

    def _prompt(self, question: Question) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": question.text}], add_generation_prompt=True, tokenize=False
        )
        return self.tokenizer.encode(text, add_special_tokens=False)


def searcher(
    name: str, policy: EngineGenerator, scorer: StepScorer, num_candidates: int, in_flight: int
) -> Searcher:
    options = (("expansion", EXPANSION),) if name == "beam" else ()
    strategy, params, price, *_ = build_strategy(StrategySpec(name, options=options))
    return Searcher(
        policy=policy,
        scorer=scorer if strategy.uses_scores else None,
        strategy=strategy,
        params=params,
        price=price,
        calibration=dict(load_calibrations(POLICY))[PRM],
        num_candidates=num_candidates,
        max_depth=MAX_DEPTH,
        in_flight=in_flight,
    )


def whole_search(
    search: Searcher, asked: QuestionSet, recorder: Recorder
) -> Callable[[], Measured]:
    """The row of a strategy; the recorder then has its requests and no others."""

    def measure() -> Measured:
        recorder.forget()
        with meter() as used:
            results = search.run(asked.questions)
        ledgers = [result.ledger for result in results]
        return Measured(
            sum(ledger.generated for ledger in ledgers),
            sum(ledger.prm_computed for ledger in ledgers),
            sum(result.answer == asked.answers[result.question.id] for result in results),
            *used,
        )

    return measure


def alone(recorder: Recorder) -> Callable[[], Measured]:
    """The row of the requests that the recorder has."""

    def measure() -> Measured:
        with meter() as used:
            tokens = recorder.send_again()
        return Measured(tokens, 0, 0, *used)

    return measure


def published(
    folder: pathlib.Path, bare: Bare, scorer: StepScorer, num_candidates: int
) -> Callable[[], Measured]:
    """The row of search-and-learn's beam search."""
    texts = TextScorer(scorer)
    search = BeamSearch(
        folder,
        bare.policy,
        bare.tokenizer,
        texts,
        num_candidates=num_candidates,
        expansion=EXPANSION,
        max_depth=MAX_DEPTH,
        max_step_tokens=MAX_STEP_TOKENS,
    )
    grader = BoxedIntegerGrader()

    def measure() -> Measured:
        texts.computed = search.engine.generated = 0
        with meter() as used:
            answers = [search.answer(question.text) for question in bare.asked.questions]
        found = [grader.extract([answer]) for answer in answers]
        gold = [bare.asked.answers[question.id] for question in bare.asked.questions]
        right = sum(one == other for one, other in zip(found, gold, strict=True))
        return Measured(search.engine.generated, texts.computed, right, *used)

    return measure


@contextlib.contextmanager
def meter() -> Iterator[list[float]]:
    """A list that in the end holds the seconds by the clock and those of processors."""
    used: list[float] = []
    processor, clock = processor_seconds(), time.perf_counter()
    yield used
    used += [time.perf_counter() - clock, processor_seconds() - processor]


def processor_seconds() -> float:
    """Processor time of this process and of all that it has started and that still run."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def table(found: dict[str, list[Measured]], num_questions: int, num_candidates: int) -> Table:
    """Medians over the rounds, with ranges in brackets."""
    title = f"{num_questions} questions, N = {num_candidates}, policy {POLICY}, PRM {PRM}"
    shown = Table(title=title, title_justify="left")
    shown.add_column("")
    for name in (
        "tokens/s",
        "share of bare",
        "tokens/processor s",
        "share of bare",
        "questions/min",
        "PRM tokens/token",
        "right",
    ):
        shown.add_column(name, justify="right")
    references = {label: reference for label, (_, _, reference) in SEARCHES.items()}
    for name, measured in found.items():
        is_bare = name in (BARE, BARE_SCORED)
        answers = not is_bare and not name.endswith(ALONE)
        reference = found[name if is_bare else references.get(name, BARE)]
        pairs = list(zip(measured, reference, strict=True))
        shares = [
            spread([rate(one) / rate(other) for one, other in pairs], ".2f")
            for rate in (by_clock, by_processor)
        ]
        shown.add_row(
            name,
            f"{statistics.median(map(by_clock, measured)):.0f}",
            "" if is_bare else shares[0],
            f"{statistics.median(map(by_processor, measured)):.0f}",
            "" if is_bare else shares[1],
            spread([60 * num_questions / each.seconds for each in measured], ".0f"),
            f"{sum(m.prm_tokens for m in measured) / sum(m.tokens for m in measured):.2f}",
            f"{statistics.mean(m.right for m in measured):.1f}" if answers else "",
        )
    return shown


def by_clock(measured: Measured) -> float:
    return measured.tokens / measured.seconds


def by_processor(measured: Measured) -> float:
    return measured.tokens / measured.processor


def spread(values: Sequence[float], digits: str) -> str:
    middle = statistics.median(values)
    return f"{middle:{digits}} ({min(values):{digits}}-{max(values):{digits}})"


if __name__ == "__main__":
    main()
