"""Simulates a GPU that serves searches: what does it cost that each tick waits for all questions?

    python benchmarks/barrier.py [--solutions SOLUTIONS.jsonl --tokenizer FOLDER] [--in-flight 64]

A tick of the driver calls the policy for all questions in flight and goes on when the longest
sample has ended. Here whole runs are simulated three ways: `one batch`; `two halves`, of which one
is sampled while the other is scored; and `no barrier`, where a question goes on as soon as its own
samples are back and scored, and the PRM scores in one pass whatever waits for it.

Lengths are those of recorded solutions: a line of `SOLUTIONS.jsonl` has a list `responses`, whose
steps are split at blank lines and counted in tokens of a Hugging Face folder. Without the two
options, lengths are drawn from a log-normal distribution fitted to 800 solutions of Qwen2.5-Math.
What a search asks for is drawn beforehand, so that the ways differ in time alone.

The policy and the PRM have 7.6e9 parameters in bfloat16 and a GPU each, with the data sheet of an
H100 (SXM): 3.35 TB/s and 989 TFLOP/s. The time of a pass is the larger of

- memory: 15.2 GB of weights / 3.35 TB/s = 4.5 ms, and the keys and values of each running sequence
  (28 layers * 4 heads * 128 * 2 * 2 bytes = 57 kB per token, 600 tokens) = 10 us;
- arithmetic: 15.2 GFLOP per token at half of the peak = 31 us per token.

The driver and the search core take no time.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import pathlib
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import rich.console
import rich.table

SECONDS_WEIGHTS = 15.2e9 / 3.35e12
SECONDS_CACHE = 57_344 * 600 / 3.35e12
SECONDS_TOKEN = 15.2e9 / (0.5 * 989e12)
MAX_RUNNING = 1024
PROMPT_TOKENS = 150
"""Tokens of a question with its chat template."""
BLOCK_TOKENS = 8
"""Tokens of a prefix that are computed again: half a block of 16."""

NUM_CANDIDATES = 16
FACTOR = 4
CATS_ROUNDS = ((0.16, 8), (0.4, 4), (0.85, 1))
"""Share of steps (then of steps that got there) in which a further round samples, and how many.

Of the shipped controller at N = 16: 64 questions of the embedded world, policy `weak`.
"""

Phase = list[int]
"""The lengths of the samples that a search asks for at once."""
Solutions = list[list[int]]
"""Step lengths of each recorded solution of a question."""


@dataclass(slots=True)
class Group:
    """Questions that advance together."""

    questions: list[Iterator[Phase]]
    running: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Engine:
    """A policy that batches continuously: a new sample starts as soon as there is room for it."""

    now: float = 0.0
    passes: int = 0
    generated: int = 0
    running: list[tuple[int, int, int]] = field(default_factory=list)  # pass it ends at, -, group
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # length, group
    _number: Iterator[int] = field(default_factory=itertools.count)

    def admit(self) -> None:
        """Start waiting samples while there is room."""
        while self.waiting and len(self.running) < MAX_RUNNING:
            length, group = self.waiting.popleft()
            heapq.heappush(self.running, (self.passes + length, next(self._number), group))

    def prefill(self, tokens: int) -> None:
        """Compute tokens of prompts; the running samples wait."""
        self.now += tokens * SECONDS_TOKEN

    def advance(self, until: float) -> list[int]:
        """Decode to the next end of a sample, or about `until`; groups of the ended samples."""
        each = pass_seconds(len(self.running))
        passes = self.running[0][0] - self.passes
        if until < self.now + passes * each:
            passes = max(1, math.ceil((until - self.now) / each))
        self.passes += passes
        self.generated += passes * len(self.running)
        self.now += passes * each
        ended = []
        while self.running and self.running[0][0] == self.passes:
            ended.append(heapq.heappop(self.running)[2])
        return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solutions", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--in-flight", type=int, nargs="+", default=(16, 64, 256))
    parser.add_argument("--questions-each", type=int, default=6)
    options = parser.parse_args()
    if (options.solutions is None) != (options.tokenizer is None):
        parser.error("--solutions and --tokenizer go together: give both, or neither")
    if options.solutions is None:
        recorded = drawn_lengths()
    else:
        recorded = step_lengths(options.solutions, options.tokenizer)
    every = [length for solutions in recorded for steps in solutions for length in steps]
    counts = [len(steps) for solutions in recorded for steps in solutions]
    quantiles = ", ".join(f"{q:.0f}" for q in np.quantile(every, (0.5, 0.9, 0.99)))
    title = (
        "tokens/s of the policy (share of an engine that is always full); steps of "
        f"{statistics.mean(every):.0f} tokens (quantiles .5, .9, "
        f".99: {quantiles}), {statistics.mean(counts):.1f} steps a solution"
    )
    full = MAX_RUNNING / pass_seconds(MAX_RUNNING)
    table = rich.table.Table("search", "in flight", title=title, title_justify="left")
    for name in ("one batch", "two halves", "no barrier", "halves / one", "no barrier / one"):
        table.add_column(name, justify="right")
    for name, script in SEARCHES.items():
        for in_flight in options.in_flight:
            searches = [
                script(recorded[i % len(recorded)], np.random.default_rng(i))
                for i in range(in_flight * options.questions_each)
            ]
            rates = [simulate(searches, in_flight, groups) for groups in (1, 2)]
            rates.append(simulate(searches, in_flight, in_flight, exclusive=False))
            shown = [f"{rate:.0f} ({rate / full:.0%})" for rate in rates]
            one, halves, free = rates
            ratios = f"{halves / one:.2f}", f"{free / one:.2f}"
            table.add_row(name, str(in_flight), *shown, *ratios)
    rich.console.Console().print(table)


def drawn_lengths() -> list[Solutions]:
    """Step lengths of eight solutions to each of 100 questions."""
    rng = np.random.default_rng(0)

    def solution() -> list[int]:
        lengths = rng.lognormal(math.log(39), 0.78, size=1 + rng.poisson(6.4))
        return np.maximum(lengths, 1).astype(int).tolist()

    return [[solution() for _ in range(8)] for _ in range(100)]


def step_lengths(solutions: pathlib.Path, folder: pathlib.Path) -> list[Solutions]:
    """Tokens of the steps of all recorded solutions, by question."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    separator = "\n\n"
    found = []
    for line in solutions.read_text().splitlines():
        of_question = []
        for response in json.loads(line)["responses"]:
            *parts, last = response.strip().split(separator)
            steps = [*(part + separator for part in parts if part.strip()), last]
            of_question.append([len(ids) for ids in tokenizer(steps)["input_ids"]])
        found.append(of_question)
    return found


def whole_answers(solutions: Solutions, rng: np.random.Generator) -> list[Phase]:
    """Best-of-N: N whole answers in one request."""
    return [[sum(solutions[rng.integers(len(solutions))]) for _ in range(NUM_CANDIDATES)]]


def beam(solutions: Solutions, rng: np.random.Generator) -> list[Phase]:
    """Beam search: each of N / M paths gets M children, and as many are kept at random."""
    return _steps(solutions, rng, lambda paths: [paths * FACTOR], NUM_CANDIDATES // FACTOR)


def cats_like(solutions: Solutions, rng: np.random.Generator) -> list[Phase]:
    """One path with one base child, and rounds that sample more as often as `CATS_ROUNDS` says."""

    def rounds(paths: int) -> list[int]:
        counts = [paths]
        for share, count in CATS_ROUNDS:
            if rng.random() >= share:
                break
            counts.append(count)
        return counts

    return _steps(solutions, rng, rounds, 1)


def _steps(
    solutions: Solutions, rng: np.random.Generator, counts: Callable[[int], list[int]], width: int
) -> list[Phase]:
    """The phases of all steps; each sample is the next step of some recorded solution."""
    phases: list[Phase] = []
    paths, depth = 1, 0
    while paths > 0:
        longer = [steps for steps in solutions if len(steps) > depth]
        step = []
        for count in counts(NUM_CANDIDATES // FACTOR if depth == 0 and width > 1 else paths):
            drawn = [longer[rng.integers(len(longer))] for _ in range(count)]
            phases.append([steps[depth] for steps in drawn])
            step += drawn
        kept = rng.choice(len(step), size=min(width, len(step)), replace=False)
        done = sum(len(step[i]) == depth + 1 for i in kept)
        width -= done
        paths, depth = len(kept) - done, depth + 1
    return phases


SEARCHES = {"best-of-N, whole answers": whole_answers, "beam": beam, "CATS-like": cats_like}


def simulate(
    searches: list[list[Phase]], in_flight: int, num_groups: int, *, exclusive: bool = True
) -> float:
    """Tokens per second of the policy.

    Args:
        searches: phases of each search.
        in_flight: number of searches at once.
        num_groups: number of groups into which these are divided; a group waits for all of its
            samples. As many as there are searches in flight: no barrier.
        exclusive: whether a call of the policy serves one group, as the driver's lock has it.
    """
    waiting = iter([iter(search) for search in searches])
    per_group = in_flight // num_groups
    groups = [Group(list(itertools.islice(waiting, per_group))) for _ in range(num_groups)]
    engine, scorer_free = Engine(), 0.0
    due = [(0.0, index) for index in range(num_groups)]  # when a group may ask the policy
    to_score: list[int] = []
    while due or engine.running or to_score:
        while due and due[0][0] <= engine.now and not (exclusive and engine.running):
            _ask(engine, groups, heapq.heappop(due)[1], waiting)
        until = due[0][0] if due and not (exclusive and engine.running) else math.inf
        if to_score:
            if scorer_free <= engine.now:
                tokens = sum(groups[index].tokens for index in to_score)
                scorer_free = engine.now + pass_seconds(tokens)
                for index in to_score:
                    heapq.heappush(due, (scorer_free, index))
                to_score = []
                continue
            until = min(until, scorer_free)
        if engine.running:
            for index in engine.advance(until):
                groups[index].running -= 1
                if groups[index].running == 0:
                    to_score.append(index)
            engine.admit()
        elif until < math.inf:
            engine.now = max(engine.now, until)
    return engine.generated / engine.now


def pass_seconds(tokens: int) -> float:
    """Seconds of a pass of so many tokens, each of a sequence of its own."""
    return max(SECONDS_WEIGHTS + tokens * SECONDS_CACHE, tokens * SECONDS_TOKEN)


def _ask(
    engine: Engine, groups: list[Group], index: int, waiting: Iterator[Iterator[Phase]]
) -> None:
    """Send the next phases of a group's questions; waiting questions replace those that ended."""
    group = groups[index]
    still, group.tokens, prompt = [], 0, 0
    for question in group.questions:
        phase, first = next(question, None), False
        while phase is None and (new := next(waiting, None)) is not None:
            question, phase, first = new, next(new, None), True
        if phase is None:
            continue
        still.append(question)
        group.running += len(phase)
        group.tokens += sum(phase)
        prompt += PROMPT_TOKENS if first or engine.passes == 0 else BLOCK_TOKENS * len(phase)
        engine.waiting.extend((length, index) for length in phase)
    group.questions = still
    if still:
        engine.prefill(prompt)
        engine.admit()


if __name__ == "__main__":
    main()
