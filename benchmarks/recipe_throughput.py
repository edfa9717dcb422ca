"""Whole searches of a recipe on vLLM against bare `generate`, for models of real size.

    .venv-vllm/bin/python benchmarks/recipe_throughput.py recipes/real/smollm2-demo.yaml

The policy and the first PRM of the recipe run on vLLM engines, with all questions in flight. "Bare
generate" is one call of `vllm.LLM.generate` for N whole answers to each question, with the
temperature of the first strategy that names one. "Bare generate, classify" adds one call of
`vllm.LLM.classify` on the PRM's engine for the same answers. The two calls give the time that the
bare engines take for a token of the policy and for a token that the PRM computes. "Share of
generate" is a row's tokens per second over those of bare generate. "Share of both" is the time of
the bare engines for a row's tokens, those of the PRM included, over the time of the row. All rows
take turns in each round, with empty prefix caches, and the first round is left out, because it
compiles.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))  # before the import below sets it
os.environ.setdefault("TQDM_DISABLE", "1")

from engine_throughput import BARE, BARE_SCORED, Measured, by_clock, meter, rounds, spread
from rich.table import Table

from cats_jax.commands.terminal import make_console
from cats_jax.controllers.strategies import build_strategy
from cats_jax.datasets.loading import load_questions
from cats_jax.datasets.question_set import QuestionSet
from cats_jax.grading.graders import default_grader, grade_answer
from cats_jax.live.searcher import Searcher
from cats_jax.models.backend import cpu_computes_bfloat16
from cats_jax.models.source import ModelFolders
from cats_jax.reporting.printing import show_table
from cats_jax.specs.recipe import Recipe, StrategySpec, load_recipe


class Bare:
    """The engines of a recipe without a search.

    Args:
        recipe: the recipe.
        policy: its policy on vLLM, an `EngineGenerator`.
        prm: its PRM on vLLM, an `EngineScorer`.
        asked: the questions.
        num_candidates: number of answers to each question.
    """

    def __init__(
        self, recipe: Recipe, policy: Any, prm: Any, asked: QuestionSet, num_candidates: int
    ) -> None:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        self._policy, self._prm = policy, prm
        self._engine, self._classifier = policy._engine.engine, prm.engine.engine
        self._asked = [each for each in asked.questions for _ in range(num_candidates)]
        self._prompts = [
            {"prompt_token_ids": list(policy._model.prompt_ids(each))} for each in self._asked
        ]
        sampled = [each for spec in recipe.strategies for each in _temperatures(spec)]
        self._parameters = [
            SamplingParams(
                temperature=sampled[0] if sampled else 1.0,
                seed=seed,
                max_tokens=recipe.policy.max_answer_tokens,
                stop_token_ids=list(policy._text.ends),
                ignore_eos=True,  # it is among the stops
                detokenize=False,
                logprobs=0,
            )
            for seed in range(len(self._prompts))
        ]
        self._answers: list[tuple[int, ...]] = []
        self._generated: Measured | None = None

    def forget(self) -> None:
        """Empty the prefix caches."""
        assert self._engine.reset_prefix_cache()
        assert self._classifier.reset_prefix_cache()

    def generate(self) -> Measured:
        """One call for all answers."""
        with meter() as used:
            outputs = self._engine.generate(self._prompts, self._parameters, use_tqdm=False)
        self._answers = [tuple(output.outputs[0].token_ids) for output in outputs]
        self._generated = Measured(sum(map(len, self._answers)), 0, 0, *used)
        return self._generated

    def classify(self) -> Measured:
        """The last call of `generate`, and one call that scores its answers."""
        generated = self._generated
        assert generated is not None
        prompts = []
        for question, ids in zip(self._asked, self._answers, strict=True):
            answer = self._policy._answer(ids, "end", None, (), len(ids))
            steps = [each.step.text for each in answer if each.step.text.strip()] or ["0"]
            chunks = self._prm._model.encoder.chunks(question.text, steps)
            prompts.append({"prompt_token_ids": list(itertools.chain.from_iterable(chunks))})
        with meter() as used:
            outputs = self._classifier.classify(prompts, use_tqdm=False)
        computed = sum(
            len(each.prompt_token_ids) - int(each.num_cached_tokens or 0) for each in outputs
        )
        seconds, processor = generated.seconds + used[0], generated.processor + used[1]
        return Measured(generated.tokens, computed, 0, seconds, processor)


def _temperatures(spec: StrategySpec) -> list[float]:
    return [dict(value)["temperature"] for name, value in spec.options if name == "sampling"]


def whole_search(
    recipe: Recipe,
    spec: StrategySpec,
    policy: Any,
    prm: Any,
    asked: QuestionSet,
    num_candidates: int,
) -> Callable[[], Measured]:
    """The row of a strategy."""
    strategy, params, price, *_ = build_strategy(spec)
    search = Searcher(
        policy=policy,
        scorer=prm if strategy.uses_scores else None,
        strategy=strategy,
        params=params,
        price=price,
        calibration=dict(recipe.calibration)[recipe.prms[0].label],
        num_candidates=num_candidates,
        max_depth=recipe.max_depth,
        in_flight=len(asked.questions),
    )
    grader = default_grader(recipe.questions)

    def measure() -> Measured:
        with meter() as used:
            results = search.run(asked.questions)
        ledgers = [result.ledger for result in results]
        right = [
            grade_answer(grader, each.answer, asked.answers[each.question.id], None).correct
            for each in results
        ]
        generated = sum(ledger.generated for ledger in ledgers)
        return Measured(generated, sum(each.prm_computed for each in ledgers), sum(right), *used)

    return measure


def share_of_both(measured: Measured, generated: Measured, classified: Measured) -> float:
    """Time of the bare engines for the tokens of a row, over the time of the row."""
    policy = measured.tokens * generated.seconds / generated.tokens
    classifying = classified.seconds - generated.seconds
    return (policy + measured.prm_tokens * classifying / classified.prm_tokens) / measured.seconds


def table(found: dict[str, list[Measured]], title: str) -> Table:
    """Medians over the rounds, with ranges in brackets."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("")
    for name in ("tokens/s", "PRM tokens/token", "share of generate", "share of both", "right"):
        shown.add_column(name, justify="right")
    generated, classified = found[BARE], found[BARE_SCORED]
    for name, measured in found.items():
        prm_tokens = sum(each.prm_tokens for each in measured)
        cells = [
            f"{statistics.median(map(by_clock, measured)):.0f}",
            f"{prm_tokens / sum(each.tokens for each in measured):.2f}",
        ]
        if name not in (BARE, BARE_SCORED):
            shares = [by_clock(a) / by_clock(b) for a, b in zip(measured, generated, strict=True)]
            both = list(map(share_of_both, measured, generated, classified))
            cells += [spread(shares, ".2f"), spread(both, ".2f")]
            cells.append(f"{statistics.mean(each.right for each in measured):.1f}")
        shown.add_row(name, *cells)
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--num-candidates", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--strategies",
        nargs="+",
        help="labels, but for greedy decoding, which is left out; default: all",
    )
    options = parser.parse_args(arguments)
    recipe = load_recipe(options.recipe)
    asked = load_questions(recipe.questions).select(shuffle=None, start=0, count=options.questions)
    dtype = "bfloat16" if cpu_computes_bfloat16() else "float32"
    on_vllm: dict[str, Any] = {"backend": "vllm", "dtype": dtype}
    models = ModelFolders()
    policy: Any = models.policy(dataclasses.replace(recipe.policy, **on_vllm))
    prm: Any = models.prm(dataclasses.replace(recipe.prms[0], **on_vllm))
    bare = Bare(recipe, policy, prm, asked, options.num_candidates)
    rows: dict[str, Callable[[], Measured]] = {BARE: bare.generate, BARE_SCORED: bare.classify}
    for spec in recipe.strategies:
        if spec.label in (options.strategies or (spec.label,)) and spec.name != "greedy":
            rows[spec.label] = whole_search(
                recipe, spec, policy, prm, asked, options.num_candidates
            )
    found = rounds(rows, bare.forget, options.repeats)
    title = (
        f"{len(asked.questions)} questions, N = {options.num_candidates}, policy "
        f"{recipe.policy.name}, PRM {recipe.prms[0].label}"
    )
    show_table(make_console(), table(found, title))


if __name__ == "__main__":
    main()
