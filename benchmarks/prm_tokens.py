"""Tokens that a PRM computes for one path of T steps, as a search scores it: step by step.

Scoring only the newest step on top of its cached prefix costs each token once, about s·T for steps
of s tokens; scoring the whole path again at every step, as other systems do, costs s·T(T+1)/2. The
scorer counts both, on tiny models with random weights in the layouts of two published families
(Qwen2.5-Math-PRM and RLHFlow). For the column "whole path" the cache is emptied before each call.
vLLM caches blocks of 32 tokens, so that a step also costs what it shares a block with.

    python benchmarks/prm_tokens.py [--steps 5 10 20 40]
    .venv-vllm/bin/python benchmarks/prm_tokens.py --backend vllm
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))

import prm_families
from rich.table import Table

from cats_jax.commands.terminal import make_console
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.serving.scorer import EngineScorer
from cats_jax.models.serving.vllm_engine import VLLMClassifier
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step
from cats_jax.reporting.printing import show_table
from cats_jax.specs.recipe import PrmSpec

_QUESTION = Question("q", "What is 1+2+3? Add the numbers one by one.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=(5, 10, 20, 40))
    parser.add_argument("--backend", choices=("hf", "vllm"), default="hf")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root)
        for path in (
            prm_families.qwen_math_prm(folder / "qwen2.5-math-prm"),
            prm_families.rlhflow(folder / "rlhflow", dated=False),
        ):
            scorer = ModelFolders().prm(PrmSpec(str(path), backend=options.backend))
            show_table(make_console(), table(scorer, options.steps))


def table(scorer: EngineScorer | HuggingFaceScorer, lengths: list[int]) -> Table:
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


def computed(
    scorer: EngineScorer | HuggingFaceScorer, path: tuple[Step, ...], *, keep: bool
) -> tuple[int, float]:
    """Tokens and seconds to score a path as it grows, with the cache kept or dropped."""
    forget(scorer)
    tokens, start = 0, time.perf_counter()
    for end in range(1, len(path) + 1):
        tokens += scorer.score([_QUESTION], [path[:end]]).usage[0].computed
        if not keep:
            forget(scorer)
    return tokens, time.perf_counter() - start


def forget(scorer: EngineScorer | HuggingFaceScorer) -> None:
    """Empty the cache; an engine's is its own."""
    scorer.keep_only(_QUESTION, [])
    if isinstance(scorer, EngineScorer):
        assert isinstance(scorer.engine, VLLMClassifier)
        assert scorer.engine.engine.reset_prefix_cache()


if __name__ == "__main__":
    main()
