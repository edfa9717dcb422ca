"""Tokens that a PRM computes for one path of T steps, as a search scores it: step by step.

Scoring only the newest step on top of its cached prefix costs each token once, about s·T for steps
of s tokens; scoring the whole path again at every step, as other systems do, costs s·T(T+1)/2.
Both are counted by the scorer, on tiny models with random weights in the layouts of the published
families; the whole-path column forgets what is cached before each call.

    python benchmarks/prm_tokens.py [--steps 5 10 20 40]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

import prm_families
from rich.table import Table

from cats_jax import terminal
from cats_jax.bridges.hf_scorer import HuggingFaceScorer
from cats_jax.models import silence_transformers
from cats_jax.prms.family import choose_format
from cats_jax.protocols import Question, Step

_QUESTION = Question("q", "What is 1+2+3? Add the numbers one by one.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=(5, 10, 20, 40))
    options = parser.parse_args()
    silence_transformers()
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        for path in (
            prm_families.qwen_math_prm(folder / "qwen2.5-math-prm"),
            prm_families.rlhflow(folder / "rlhflow", dated=False),
        ):
            scorer = HuggingFaceScorer(path, choose_format("auto", path))
            terminal.show_table(terminal.make_console(), table(scorer, options.steps))


def table(scorer: HuggingFaceScorer, lengths: list[int]) -> Table:
    """Tokens and seconds of both ways, for paths of these lengths."""
    columns = ("T", "tokens of the path", "newest step", "whole path", "ratio", "s", "s, whole")
    found = Table(*columns, title=f"PRM tokens computed per path, {scorer.name}")
    for length in lengths:
        path = tuple(Step(f"Step {i}: {i} + {i} = {2 * i}.", ()) for i in range(1, length + 1))
        newest, seconds = computed(scorer, path, keep=True)
        whole, slow = computed(scorer, path, keep=False)
        total = scorer.count_tokens(_QUESTION, path)
        figures = (length, total, newest, whole, f"{whole / newest:.1f}")
        found.add_row(*map(str, figures), f"{seconds:.3f}", f"{slow:.3f}")
    return found


def computed(scorer: HuggingFaceScorer, path: tuple[Step, ...], *, keep: bool) -> tuple[int, float]:
    """Tokens and seconds to score a path as it grows, with the cache kept or dropped."""
    scorer.keep_only(_QUESTION, [])
    tokens, start = 0, time.perf_counter()
    for end in range(1, len(path) + 1):
        tokens += scorer.score([_QUESTION], [path[:end]]).usage[0].computed
        if not keep:
            scorer.keep_only(_QUESTION, [])
    return tokens, time.perf_counter() - start


if __name__ == "__main__":
    main()
