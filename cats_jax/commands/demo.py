"""`cats-jax demo`: seven strategies on the embedded world, in minutes. It cannot be resumed."""

from __future__ import annotations

import pathlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

import tyro

from .. import world
from ..batch.ray_options import IN_THIS_PROCESS, RayOptions
from ..errors import BadInputError, known_names

if TYPE_CHECKING:
    from rich.console import Console

    from ..runs.folder import Row, RunFolder
    from ..specs.recipe import Recipe

_CONSTANT_ACTION = {"num_extra": 4, "num_retain": 2, "temperature": 0.6, "top_p": 1.0}
"""The most accurate of eight constant actions on the validation set at N = 16
(`recipes/choose.yaml`)."""

_MAX_STEP_TOKENS, _MAX_ANSWER_TOKENS = 32, 64
"""Limits in tokens. The longest steps of the task have about half as many tokens."""

_BATCH_TOKENS = 1 << 17
"""Tokens in a micro-batch of the policy; at N = 64, it halves the default's number of passes."""


def demo(
    *,
    seed: int = 0,
    questions: int = 100,
    num_candidates: tuple[int, ...] = (4, 16, 64),
    prms: tuple[str, ...] = ("exact",),
    searching: tyro.conf.OmitArgPrefixes[RayOptions] = IN_THIS_PROCESS,
    output: pathlib.Path | None = None,
) -> int:
    """Search the embedded world with seven strategies; print accuracy, compute and one tree.

    Args:
        seed: random seed of the questions and of the searches.
        questions: number of questions from the test set, with equal shares of the levels.
        num_candidates: values of N.
        prms: process reward models of the embedded world.
        searching: where questions are searched.
        output: run folder; default: a new one under runs/.
    """
    from ..batch.planning import plan_run
    from ..batch.running import run_plan
    from ..models.source import ModelFolders
    from ..reporting.printing import show_table
    from ..reporting.run_report import has_failed_group, show_run
    from ..reporting.run_tables import timing_table
    from .progress import ProgressBars
    from .terminal import make_console, say

    for prm in prms:
        if prm not in world.PRM_NAMES:
            raise BadInputError(
                f"PRM {prm!r} is not of the embedded world: {known_names(prm, world.PRM_NAMES)}"
            )
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = pathlib.Path("runs") / f"demo-{seed}-{stamp}" if output is None else output
    if (folder / "results.jsonl").exists():
        raise BadInputError(
            f"{str(folder)!r} has results already, and a demo does not resume: choose another "
            "--output"
        )
    console = make_console()
    recipe = demo_recipe(seed, questions, num_candidates, prms)
    plan = plan_run(recipe, ModelFolders(), folder, searching=searching)
    say(
        console,
        f"Searching {questions} questions of the embedded world (test set, seed {seed}) with the "
        f"policy 'weak', PRM {', '.join(prms)}.",
    )
    run, times = run_plan(plan, progress=ProgressBars.of(console, plan.evaluation))
    show_run(console, run)
    show_table(console, timing_table(times))
    _show_tree(console, run)
    console.print(f"run folder: {folder}", markup=False, soft_wrap=True)
    return int(has_failed_group(run))


def demo_recipe(
    seed: int, questions: int, num_candidates: tuple[int, ...], prms: tuple[str, ...]
) -> Recipe:
    """The recipe of the demo. CATS is the shipped controller."""
    from ..specs.recipe import parse_recipe

    strategies: list[Any] = ["greedy", "majority", "best_of_n", "beam", "cats"]
    strategies += [{"name": "cats_constant", "action": _CONSTANT_ACTION}, "cats_random"]
    return parse_recipe(
        {
            "name": f"demo-{seed}",
            "policy": {
                "path": "weak",
                "max_step_tokens": _MAX_STEP_TOKENS,
                "max_answer_tokens": _MAX_ANSWER_TOKENS,
                "batch_tokens": _BATCH_TOKENS,
            },
            "prms": list(prms),
            "calibration": "weak",
            "strategies": strategies,
            "num_candidates": list(num_candidates),
            "seeds": [seed],
            "questions": {"world": "test", "count": questions, "seed": seed},
        }
    )


def _show_tree(console: Console, run: RunFolder) -> None:
    """Draw one search, preferably one of CATS with a right answer at the smallest N."""
    from ..reporting.draw import LEGEND, describe_result, draw_search
    from .terminal import say

    def worth(row: Row) -> tuple[bool, bool, bool, int]:
        return (row.strategy != "cats", not row.actions, not row.correct, row.num_candidates)

    rows = sorted((row for row in run.rows if row.tree is not None), key=worth)
    if not rows:
        return
    row = rows[0]
    prm = "" if row.prm is None else f", PRM {row.prm}"
    say(console, f"\nOne search: {row.strategy}, N = {row.num_candidates}{prm}")
    result = run.tree(row)
    console.print(draw_search(result))
    console.print(LEGEND)
    grade = "right" if row.correct else f"wrong, {row.gold} is right"
    say(console, f"{describe_result(result)}   ({grade})")
