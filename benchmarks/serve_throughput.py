"""Answers a minute of `cats-jax serve` against the number of clients: 1, 8, 32.

Beam search on the embedded world's test questions with the weak policy and the best PRM, asked by
OpenAI's client. The server is a process of its own. A first round compiles; then the settings take
turns, and each round gives their ratios to the first.

    python benchmarks/serve_throughput.py [--questions 64] [--num-candidates 16] [--repeats 3]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import openai
from rich.table import Table

from cats_jax import datasets
from cats_jax.commands.terminal import make_console
from cats_jax.reporting.printing import show_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--num-candidates", type=int, default=16)
    parser.add_argument("--clients", type=int, nargs="+", default=(1, 8, 32))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    questions = datasets.world_questions("test", options.questions).questions
    texts = [question.text for question in questions]
    with serving() as client:
        rounds = [
            [measure(client, texts, n, options.num_candidates) for n in options.clients]
            for _ in range(options.repeats + 1)
        ][1:]
    title = f"beam, N = {options.num_candidates}, {options.questions} questions"
    table = Table(title=title, title_justify="left")
    for name in ("clients", "answers/min", "ratio", "seconds to an answer (median)"):
        table.add_column(name, justify="right")
    for i, clients in enumerate(options.clients):
        rate = statistics.median(60 * options.questions / each[i][0] for each in rounds)
        ratios = sorted(each[0][0] / each[i][0] for each in rounds)
        shown = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f})"
        waited = statistics.median(each[i][1] for each in rounds)
        table.add_row(str(clients), f"{rate:.0f}", shown, f"{waited:.2f}")
    show_table(make_console(), table)


@contextlib.contextmanager
def serving() -> Iterator[openai.OpenAI]:
    """A client of a server in a process of its own."""
    command = [sys.executable, "-m", "cats_jax.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = re.search(r"http://\S+/v1", process.stderr.readline())
        assert address is not None
        try:
            with openai.OpenAI(base_url=address[0], api_key="none", max_retries=20) as client:
                yield client
        finally:
            process.terminate()


def measure(
    client: openai.OpenAI, texts: Sequence[str], clients: int, num_candidates: int
) -> tuple[float, float]:
    """Wall seconds of all answers, and the median of the seconds to one."""

    def ask(text: str) -> float:
        began = time.perf_counter()
        client.chat.completions.create(
            model="weak",
            messages=[{"role": "user", "content": text}],
            extra_body={"num_candidates": num_candidates},
        )
        return time.perf_counter() - began

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        waited = list(pool.map(ask, texts))
    return time.perf_counter() - began, statistics.median(waited)


if __name__ == "__main__":
    main()
