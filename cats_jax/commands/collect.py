"""`cats-jax collect`: decisions of searches over the real models, for off-line training."""

from __future__ import annotations

import dataclasses
import pathlib

import tyro


def collect(
    recipe: tyro.conf.Positional[pathlib.Path],
    *,
    output: pathlib.Path,
    questions: int | None = None,
    functions: bool = True,
) -> int:
    """Search every cell of a recipe and keep each decision of its controllers, with the outcome.

    Repeat the command to resume a collection that was killed.

    Args:
        recipe: YAML file as for `cats-jax evaluate`; its strategies decide node by node: cats (with
            mode: sample to explore), cats_random, cats_constant, cats_rule.
        output: folder of the trajectories.
        questions: number of questions, in place of the recipe's count.
        functions: run the code of functions that the recipe names as module:function.
    """
    from ..models.hub import fetch_models
    from ..models.source import ModelFolders
    from ..specs.functions import function_lines
    from ..specs.recipe import load_recipe
    from ..training.collect import collect_decisions
    from .progress import ProgressBar
    from .terminal import make_console

    loaded = load_recipe(recipe)
    console = make_console(stderr=True)
    for line in function_lines(loaded.strategies, loaded.policy, loaded.prms, allowed=functions):
        console.print(line, markup=False, soft_wrap=True)
    if questions is not None:
        chosen = tuple(dataclasses.replace(spec, count=questions) for spec in loaded.questions)
        loaded = dataclasses.replace(loaded, questions=chosen)
    fetch_models((loaded.policy, *loaded.prms))
    with ProgressBar(console, f"collecting {output}", 1.0) as bar:
        collect_decisions(
            loaded, ModelFolders(), output, report=lambda done, total: bar.show(done / total)
        )
    make_console().print(f"trajectories: {output}", markup=False, soft_wrap=True)
    return 0
