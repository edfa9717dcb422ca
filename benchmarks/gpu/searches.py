"""Part `search`: whole searches with the 0.5B shape, and who gets which memory of one GPU.

Each row is a process of its own, because JAX reads its settings once: the core on the CPU, as the
command line has it, and on the GPU with and without JAX's reserve (XLA_PYTHON_CLIENT_PREALLOCATE).
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .bridge import MadeModels, empty_cache
from .made_models import MEAN_ANSWER, SHAPES, TINY, made_questions
from .report import Report, Values

VARIANTS = {
    "core on the CPU": {"JAX_PLATFORMS": "cpu"},
    "core on the GPU, PREALLOCATE=false": {
        "JAX_PLATFORMS": "cuda,cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    },
    "core on the GPU, PREALLOCATE=true": {
        "JAX_PLATFORMS": "cuda,cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
    },
}
REHEARSED_VARIANTS = ("core on the CPU",)  # the settings of the others are those of a GPU
STRATEGIES = ("beam", "cats")
QUESTIONS, NUM_CANDIDATES, MAX_DEPTH = 16, 16, 6


def run(report: Report) -> None:
    """One row per variant."""
    shape = TINY if report.rehearse else SHAPES["0.5b"]
    device = "cpu" if report.rehearse else "cuda"
    sizes = (2, 4, 2) if report.rehearse else (QUESTIONS, NUM_CANDIDATES, MAX_DEPTH)
    with tempfile.TemporaryDirectory() as folder:
        made = MadeModels(pathlib.Path(folder), shape, device)
        for name in REHEARSED_VARIANTS if report.rehearse else VARIANTS:
            with _Apart({**VARIANTS[name], "JAX_COMPILATION_CACHE_DIR": f"{folder}/xla"}) as apart:
                report.row(
                    name,
                    lambda apart=apart: apart.call(_search),
                    prepare=lambda apart=apart: apart.call(
                        _load, str(made.policy_folder()), str(made.prm_folder()), device, sizes
                    ),
                )


class _Apart:
    """A process with these environment variables, which is started by the first call."""

    def __init__(self, environment: dict[str, str]):
        self._environment = environment
        self._pool: Any = None

    def __enter__(self) -> _Apart:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.terminate()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of the function in the process."""
        if self._pool is None:
            empty_cache()  # this process has made the models on the GPU
            before = dict(os.environ)
            os.environ.update(self._environment)
            try:
                self._pool = multiprocessing.get_context("spawn").Pool(1)
            finally:
                os.environ.clear()
                os.environ.update(before)
        return self._pool.apply(function, arguments)


_LOADED: dict[str, Any] = {}
"""What `_load` leaves for `_search`, in the process of both."""


def _load(policy: str, prm: str, device: str, sizes: tuple[int, int, int]) -> None:
    """Loads the models, starts JAX, and compiles the programs by a first search."""
    # Imported here: the parent must not start JAX or a CUDA context of its own for it.
    import jax

    import learners
    import search
    from cats_jax import Searcher
    from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
    from cats_jax.models.prm.format import QWEN_MATH_PRM

    from .core import gpu_device

    questions, num_candidates, max_depth = sizes
    settings: dict[str, Any] = {"device": device, "dtype": "bfloat16"}
    network = learners.make_actor(len(search.cats.PAPER.actions))
    actor = learners.make_policy(network.apply, mode="sample")
    free = [_free_gib(device)]
    params = network.init(jax.random.key(0))  # starts JAX
    free.append(_free_gib(device))
    if device != "cpu" and "cuda" in os.environ["JAX_PLATFORMS"]:
        gpu_device()  # a JAX without CUDA would go on with the CPU and say nothing
    generator = HuggingFaceGenerator(
        policy, max_step_tokens=256, max_answer_tokens=2 * MEAN_ANSWER, **settings
    )
    scorer = HuggingFaceScorer(prm, QWEN_MATH_PRM, **settings)
    searchers = {}
    for name in STRATEGIES:
        strategy = search.beam() if name == "beam" else search.cats.cats(actor, search.cats.PAPER)
        searchers[name] = Searcher(
            policy=generator,
            scorer=scorer,
            strategy=strategy,
            params=params if name == "cats" else (),
            num_candidates=num_candidates,
            max_depth=max_depth,
        )
        searchers[name].run(made_questions(questions, seed=1))
    _LOADED.update(searchers=searchers, free=free, device=device, questions=questions)


def _search() -> Values:
    """Seconds of searches with programs that are compiled."""
    import jax

    values: Values = {"JAX on": jax.default_backend()}
    for name, searcher in _LOADED["searchers"].items():
        before = searcher.timings.as_dict()
        start = time.perf_counter()
        results = searcher.run(made_questions(_LOADED["questions"], seed=2))
        total = time.perf_counter() - start
        spent = {key: end - before.get(key, 0) for key, end in searcher.timings.as_dict().items()}
        policy_seconds = spent["policy inside"] + spent["policy outside"]
        prm_seconds = spent["prm inside"] + spent["prm outside"]
        rest = total - policy_seconds - prm_seconds - spent["core"]
        values |= {
            f"{name} s": total,
            f"{name} policy s": policy_seconds,
            f"{name} PRM s": prm_seconds,
            f"{name} core s": spent["core"],
            f"{name} rest s": rest,
            f"{name} failed": sum(result.status == "failed" for result in results),
        }
    device = _LOADED["device"]
    if device != "cpu":
        start_free, with_jax = _LOADED["free"]
        values |= {
            "free at the start GiB": start_free,
            "taken when JAX starts GiB": start_free - with_jax,
            "free at the end GiB": _free_gib(device),
        }
    return values


def _free_gib(device: str) -> float:
    """GiB of the GPU that no process has taken; 0 for the CPU."""
    if device == "cpu":
        return 0.0
    import torch

    return torch.cuda.mem_get_info()[0] / 2**30
