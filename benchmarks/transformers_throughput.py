"""Votes and greedy decoding on transformers against `transformers.generate`.

    .venv/bin/python benchmarks/transformers_throughput.py recipes/real/smollm2-demo.yaml

`generate` is one call of the model's own `generate` for N answers to each question: the prompts
padded to one length, the same dtype, temperature, end tokens, limit of tokens and number of
threads, on the CPU. The tokens of an answer are those up to its end token, which counts, as in a
search. A search also ends a path whose step is too long; `generate` has no such limit. It reads the
weights that a search reads, in a second copy. All rows take turns in each round. The first round is
left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))  # before the import below sets it

import torch
from engine_throughput import Measured, by_clock, meter, rounds, spread
from rich.table import Table
from transformers import AutoModelForCausalLM, GenerationConfig

import search
from cats_jax.commands.terminal import make_console
from cats_jax.datasets.loading import load_questions
from cats_jax.live.searcher import Searcher
from cats_jax.models.merged_folder import merged_folder
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question
from cats_jax.reporting.printing import show_table
from cats_jax.specs.recipe import load_recipe

ALONE, ALONE_GREEDY = "generate", "generate, greedy"
SEARCHES = {"majority": ALONE, "greedy": ALONE_GREEDY}
"""Strategies, and the row that each is compared with."""


def generate(
    model: Any, prompts: Sequence[Sequence[int]], ends: Sequence[int], limit: int, **sampling: Any
) -> int:
    """Sample an answer to each prompt; the number of tokens up to the end of each."""
    width = max(map(len, prompts))
    ids = torch.tensor([[ends[0]] * (width - len(each)) + list(each) for each in prompts])
    mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in prompts])
    settings = GenerationConfig(  # not the folder's own, which may have penalties
        max_new_tokens=limit, eos_token_id=list(ends), pad_token_id=ends[0], **sampling
    )
    with torch.inference_mode():
        written = model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=settings,
        )[:, width:]
    ended = torch.isin(written, torch.tensor(list(ends)))
    return int((ended.cumsum(1) == 0).sum() + ended.any(1).sum())  # an end is a sampled token


def whole_search(
    policy: Any, name: str, asked: Sequence[Question], num_candidates: int, max_depth: int
) -> Callable[[], Measured]:
    """The row of a strategy."""
    search_ = Searcher(
        policy=policy,
        strategy=search.methods.DEFAULTS[name],
        num_candidates=num_candidates,
        max_depth=max_depth,
        in_flight=len(asked),
    )

    def measure() -> Measured:
        with meter() as used:
            results = search_.run(asked)
        return Measured(sum(each.ledger.generated for each in results), 0, 0, *used)

    return measure


def table(found: dict[str, list[Measured]], title: str) -> Table:
    """Medians over the rounds, with ranges in brackets."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("")
    for name in ("tokens/s", "share of generate"):
        shown.add_column(name, justify="right")
    for name, measured in found.items():
        cells = [f"{statistics.median(map(by_clock, measured)):.0f}"]
        if name in SEARCHES:
            alone = found[SEARCHES[name]]
            shares = [by_clock(a) / by_clock(b) for a, b in zip(measured, alone, strict=True)]
            cells.append(spread(shares, ".2f"))
        shown.add_row(name, *cells)
    return shown


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--num-candidates", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    options = parser.parse_args()
    recipe = load_recipe(options.recipe)
    spec = dataclasses.replace(recipe.policy, backend="hf", device="cpu", dtype=options.dtype)
    folder = pathlib.Path(spec.path)
    if spec.adapter is not None:
        folder = merged_folder(folder, spec.adapter, options.dtype)
    policy: Any = ModelFolders().policy(spec)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, options.dtype)).eval()
    asked = load_questions(recipe.questions).select(shuffle=None, start=0, count=options.questions)
    prompts = [policy._model.prompt_ids(each) for each in asked.questions]
    ends, limit = sorted(policy._text.ends), spec.max_answer_tokens
    samples = [each for each in prompts for _ in range(options.num_candidates)]

    def alone(prompts: Sequence[Sequence[int]], **sampling: Any) -> Callable[[], Measured]:
        def measure() -> Measured:
            with meter() as used:
                tokens = generate(model, prompts, ends, limit, **sampling)
            return Measured(tokens, 0, 0, *used)

        return measure

    def forget() -> None:
        for question in asked.questions:
            policy.keep_only(question, [])

    rows = {
        ALONE: alone(samples, do_sample=True, temperature=1.0, top_k=0, top_p=1.0),
        ALONE_GREEDY: alone(prompts, do_sample=False),
    }
    for name in SEARCHES:
        rows[name] = whole_search(
            policy, name, asked.questions, options.num_candidates, recipe.max_depth
        )
    title = (
        f"{len(asked.questions)} questions, N = {options.num_candidates}, policy "
        f"{recipe.policy.name}, {options.dtype}"
    )
    found = rounds(rows, forget, options.repeats)
    show_table(make_console(), table(found, title))


if __name__ == "__main__":
    main()
