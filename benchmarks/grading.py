"""Agreement of the grader with labelled pairs, beside plain math-verify, and its speed.

    python benchmarks/grading.py [--data FOLDER] [--pairs 3000] [--workers 2]

FOLDER holds five data sets in their published layouts: math500.jsonl, aime24.jsonl, amc23.jsonl,
gsm8k_test.jsonl and olympiadbench_oe_to_maths_en_comp.jsonl. Without it the hand-written pairs
alone are graded. The labels of the renderings and near misses follow from how they are made
(`answer_renderings`).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import random
import resource
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

import answer_renderings
from rich.console import Console
from rich.table import Table

from cats_jax.commands.terminal import make_console
from cats_jax.datasets import read_questions
from cats_jax.grading import MathGrader, given_answer
from cats_jax.grading.canonical import canonical
from cats_jax.grading.plain_numbers import plain_number
from cats_jax.reporting.printing import show_table

_FILES = {
    "math500.jsonl": "math500",
    "aime24.jsonl": "aime24",
    "amc23.jsonl": "amc23",
    "gsm8k_test.jsonl": "gsm8k",
    "olympiadbench_oe_to_maths_en_comp.jsonl": "olympiadbench",
}


@dataclass(frozen=True)
class Pair:
    """A prediction and a gold answer, and whether they are the same by construction."""

    source: str
    kind: str
    prediction: str
    gold: str
    same: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=3000, help="of which the speed is measured")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print every pair graded wrongly")
    options = parser.parse_args()
    console = make_console()
    pairs = [*written_pairs(), *(made_pairs(options.data) if options.data else ())]
    with MathGrader(workers=options.workers) as grader:
        graded = grade(grader, pairs)
        for name in dict.fromkeys(pair.source for pair in pairs):
            chosen = [(p, v) for p, v in zip(pairs, graded, strict=True) if p.source == name]
            plain = [math_verify(pair) for pair, _ in chosen]
            show_table(console, _table(name, chosen, plain))
        if options.list:
            for pair, found in zip(pairs, graded, strict=True):
                if found != pair.same:
                    console.print(pair, markup=False)
    measure_speed(console, options.workers, pairs, options.pairs)


def written_pairs() -> Iterable[Pair]:
    """The hand-written ones, in both orders."""
    with pathlib.Path(__file__).with_name("labelled_answers.jsonl").open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            for prediction, gold in ((row["first"], row["second"]), (row["second"], row["first"])):
                yield Pair("written", "written", prediction, gold, row["same"])


def made_pairs(folder: pathlib.Path) -> Iterable[Pair]:
    """Every distinct gold answer against itself, its renderings and its near misses."""
    for file, layout in _FILES.items():
        golds = dict.fromkeys(read_questions(folder / file, layout=layout).answers.values())
        for gold in golds:
            yield Pair(layout, "itself", gold, gold, True)
            for kind, text in answer_renderings.renderings(gold):
                yield Pair(layout, kind, text, gold, True)
            for kind, text in answer_renderings.near_misses(gold):
                yield Pair(layout, kind, text, gold, False)


def grade(grader: MathGrader, pairs: list[Pair]) -> list[bool]:
    """Grades in order, as many at a time as there are workers."""
    with ThreadPoolExecutor(grader.workers) as pool:
        return list(pool.map(lambda pair: grader.grade(pair.prediction, pair.gold).correct, pairs))


def math_verify(pair: Pair) -> bool:
    """The same by math-verify's own parsing and its own limits, as its documentation shows it."""
    from math_verify import parse, verify

    logging.disable(logging.WARNING)
    return verify(parse(f"${pair.gold}$"), parse(_as_formula(pair.prediction)))


def measure_speed(console: Console, workers: int, pairs: list[Pair], count: int) -> None:
    """Pairs a minute with nothing remembered: of all pairs, and of those that need a worker."""
    parsed = [pair for pair in pairs if _needs_parsing(pair)]
    for name, group in (("all pairs", pairs), ("pairs that math-verify must compare", parsed)):
        sample = random.Random(0).sample(group, min(count, len(group)))
        started = time.perf_counter()
        with MathGrader(workers=workers) as grader:
            grade(grader, sample)
        seconds = time.perf_counter() - started
        console.print(
            f"{name}: {len(sample)} in {seconds:.1f} s with {workers} workers; at this rate "
            f"100,000 take {seconds / len(sample) * 100_000 / 60:.1f} min (extrapolated)",
            soft_wrap=True,
        )
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    console.print(f"most memory of this process: {used} MiB")


def _needs_parsing(pair: Pair) -> bool:
    texts = canonical(given_answer(pair.prediction) or ""), canonical(pair.gold)
    return texts[0] != texts[1] and None in map(plain_number, texts)


def _as_formula(text: str) -> str:
    return text if "$" in text or "\\(" in text or "\\[" in text or "boxed" in text else f"${text}$"


def _table(name: str, graded: list[tuple[Pair, bool]], plain: list[bool]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("pairs", no_wrap=True)
    for column in ("number", "cats-jax agrees", "math-verify agrees"):
        table.add_column(column, justify="right", no_wrap=True)
    for label, same in (("the same", True), ("another answer", False)):
        counts: Counter[str] = Counter()
        for (pair, grade), other in zip(graded, plain, strict=True):
            if pair.same == same:
                counts.update(["all", *["ours"] * (grade == same), *["plain"] * (other == same)])
        table.add_row(label, str(counts["all"]), _share(counts, "ours"), _share(counts, "plain"))
    return table


def _share(counts: Counter[str], name: str) -> str:
    return f"{counts[name]} ({counts[name] / max(1, counts['all']):.4f})"


if __name__ == "__main__":
    main()
