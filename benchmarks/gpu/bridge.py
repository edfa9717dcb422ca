"""Parts `bridge-...`: policy and PRM on transformers, bf16: tokens per second and memory.

Every question grows like a beam of width 4: N samples of a step, of which the first 4 that ended
are sampled on from, for 2 steps. The PRM scores made paths of the same sizes, step by step.
"""

from __future__ import annotations

import inspect
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
from cats_jax.models.prm.format import QWEN_MATH_PRM
from cats_jax.protocols import Path, Question, StepRequest

from .made_models import SHAPES, TINY, Shape, made_path, made_questions, make_policy, make_prm
from .report import Report, Values

logging.set_verbosity_error()  # it would tell of the head that `AutoModel` leaves to the bridge

SIZES = ((4, 16), (16, 16), (64, 64))
REHEARSED_SIZES = ((2, 4),)
STEPS, WIDTH = 2, 4
BOUND_GIB = {"0.5b": 2.0, "1.5b": 4.0, "7b": 16.0}
"""Bound of the cached keys and values of each model."""


def run(report: Report, size: str) -> None:
    """Rows of the PRM, which are quick, then of the policy, by questions x N."""
    shape = TINY if report.rehearse else SHAPES[size]
    device = "cpu" if report.rehearse else "cuda"
    bound = 0.01 if report.rehearse else BOUND_GIB[size]
    with tempfile.TemporaryDirectory() as folder:
        made = MadeModels(pathlib.Path(folder), shape, device)
        for kind, load, measure in (
            ("PRM", made.prm, _measure_prm),
            ("policy", made.policy, _measure_policy),
        ):
            model = Once(lambda load=load: load(**bounded(bound)))
            _rows(report, kind, model, measure)
            del model
            empty_cache()


def _rows(
    report: Report, kind: str, model: Once, measure: Callable[[Any, int, int], Values]
) -> None:
    for questions, num_candidates in REHEARSED_SIZES if report.rehearse else SIZES:
        report.row(
            f"{kind}, {questions} questions x {num_candidates}",
            lambda q=questions, n=num_candidates: _with_memory(
                model(), lambda: measure(model(), q, n), on_gpu=not report.rehearse
            ),
            prepare=model,
        )


def bounded(gib: float) -> dict[str, Any]:
    """The bridges' setting that bounds their cache of keys and values, if they have one."""
    known = inspect.signature(HuggingFaceGenerator).parameters
    return {"kv_cache_gib": gib} if "kv_cache_gib" in known else {}


class Once:
    """Calls a function when its result is first asked for, and keeps the result."""

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self._made: list[Any] = []

    def __call__(self) -> Any:
        if not self._made:
            self._made.append(self._make())
        return self._made[0]


class MadeModels:
    """Folders of a made policy and its PRM, written when they are first loaded.

    Args:
        folder: an empty folder.
        shape: sizes of the models.
        device: where the random numbers are drawn, and where models are loaded unless told.
    """

    def __init__(self, folder: pathlib.Path, shape: Shape, device: str):
        self._device = device
        self.policy_folder = Once(lambda: make_policy(shape, folder / "policy", device=device))
        self.prm_folder = Once(lambda: make_prm(shape, self.policy_folder(), folder / "prm"))

    def policy(self, **settings: Any) -> HuggingFaceGenerator:
        """The policy, in bf16 unless told otherwise."""
        settings = {"device": self._device, "dtype": "bfloat16", **settings}
        return HuggingFaceGenerator(self.policy_folder(), max_step_tokens=256, **settings)

    def prm(self, **settings: Any) -> HuggingFaceScorer:
        """The PRM, in bf16 unless told otherwise."""
        settings = {"device": self._device, "dtype": "bfloat16", **settings}
        return HuggingFaceScorer(self.prm_folder(), QWEN_MATH_PRM, **settings)


def empty_cache() -> None:
    """Gives memory that torch keeps for later back to the GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _with_memory(model: Any, measure: Callable[[], Values], *, on_gpu: bool) -> Values:
    """The values of `measure` with the model's size and the peak of the GPU's memory."""
    weights = 2 * model.num_parameters / 2**30
    if on_gpu:
        empty_cache()
        torch.cuda.reset_peak_memory_stats()
    values = measure()
    peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None
    bound = model._model._kv_cache_gib if hasattr(model._model, "_kv_cache_gib") else None
    return {
        **values,
        "parameters": model.num_parameters,
        "weights GiB": weights,
        "bound GiB": bound,
        "peak GiB": peak,
        "peak less weights and bound GiB": None if peak is None else peak - weights - (bound or 0),
        "micro-batch tokens at the end": model._budget.tokens,
        "computed again": getattr(model, "recomputed", None),
    }


def _measure_policy(policy: HuggingFaceGenerator, questions: int, num_candidates: int) -> Values:
    asked = made_questions(1 + questions)
    _grow(policy, asked[:1], num_candidates, steps=1)  # loads kernels
    synchronize()
    start = time.perf_counter()
    values = _grow(policy, asked[1:], num_candidates, steps=STEPS)
    synchronize()
    seconds = time.perf_counter() - start
    for question in asked:
        policy.keep_only(question, [])
    return {
        "sampled tokens/s": values["sampled"] / seconds,
        "computed tokens/s": values["computed"] / seconds,
        "seconds": seconds,
        **values,
    }


def _grow(
    policy: HuggingFaceGenerator, questions: list[Question], num_candidates: int, steps: int
) -> Values:
    paths: dict[Question, list[Path]] = {question: [()] for question in questions}
    sampled = computed = count = ended = 0
    for step in range(steps):
        requests = [
            StepRequest(
                question=question,
                path=path,
                seeds=tuple(
                    1_000_003 * step + 1009 * slot + seed
                    for seed in range(num_candidates // len(paths[question]))
                ),
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                to_end=False,
            )
            for question in questions
            for slot, path in enumerate(paths[question])
        ]
        generation = policy.generate(requests)
        found: dict[Question, list[Path]] = {question: [] for question in questions}
        for request, samples in zip(requests, generation.samples, strict=True):
            count += len(samples)
            closed = [each.step for each in samples if each.finish == "step" and each.step.text]
            ended += len(closed)
            found[request.question] += [(*request.path, each) for each in closed]
        for question, grown in found.items():
            # A question without a step that ended goes on from where it is.
            paths[question] = grown[:WIDTH] or paths[question]
            policy.keep_only(question, paths[question])
        sampled += sum(usage.generated for usage in generation.usage)
        computed += sum(usage.computed for usage in generation.usage)
    return {
        "sampled": sampled,
        "computed": computed,
        "tokens per sample": sampled / count,
        "samples that end a step": ended / count,
    }


def _measure_prm(prm: HuggingFaceScorer, questions: int, num_candidates: int) -> Values:
    asked = made_questions(1 + questions)
    rng = np.random.default_rng(0)
    prm.score(asked[:1], [made_path(1, rng)])  # loads kernels
    pairs = [
        (question, made_path(STEPS, rng)) for question in asked[1:] for _ in range(num_candidates)
    ]
    synchronize()
    start = time.perf_counter()
    computed, scores = 0, []
    for length in range(1, STEPS + 1):
        scoring = prm.score([q for q, _ in pairs], [path[:length] for _, path in pairs])
        computed += sum(usage.computed for usage in scoring.usage)
        scores += scoring.all_scores()
    synchronize()
    seconds = time.perf_counter() - start
    for question in asked:
        prm.keep_only(question, [])
    return {
        "computed tokens/s": computed / seconds,
        "seconds": seconds,
        "computed": computed,
        "scores": len(scores),
        "spread of the scores": float(np.std(scores)),
    }


def synchronize() -> None:
    """Waits until the GPU has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
