"""`cats-jax bank`: record trees of scored steps, for training and replays in the graph."""

from __future__ import annotations

import pathlib

import tyro

from ..errors import BadInputError


def bank(
    recipe: tyro.conf.Positional[pathlib.Path],
    *,
    output: pathlib.Path | None = None,
    dry_run: bool = False,
    functions: bool = True,
) -> int:
    """Record a step bank: many scored children of every node, question by question.

    Repeat the command to resume a collection that was killed. With `revisits_per_prm: 0` in the
    recipe, the policy samples first and the PRMs score after it; one model is loaded at a time. A
    PRM that is added to the end of the recipe later adds its scores.

    Args:
        recipe: YAML file, such as recipes/bank/weak-controller.yaml.
        output: folder of the bank.
        dry_run: print an approximate upper bound on what is sampled and scored, and whether the
            models fit into memory, and stop; models and hub data may be missing.
        functions: run the code of functions that the recipe names as module:function.
    """
    from ..bank.build import collect_bank
    from ..bank.recipe import load_bank_recipe
    from ..datasets import count_questions
    from ..models.hub import fetch_models
    from ..models.source import ModelFolders
    from ..specs.functions import function_lines
    from .dry_run import show_bank
    from .progress import ProgressBar
    from .terminal import make_console, say

    loaded = load_bank_recipe(recipe)
    console = make_console(stderr=True)
    for line in function_lines((), loaded.policy, loaded.prms, allowed=functions):
        console.print(line, markup=False, soft_wrap=True)
    if dry_run:
        show_bank(make_console(), loaded, ModelFolders())
        return 0
    if output is None:
        raise BadInputError("bank: give --output, the folder of the bank, or --dry-run")
    for note in [note for spec in loaded.questions for note in count_questions(spec)[1]]:
        say(console, f"note: {note}")
    fetch_models((loaded.policy, *loaded.prms))
    with ProgressBar(console, f"recording {output}", 1.0) as bar:
        collect_bank(
            loaded, ModelFolders(), output, report=lambda done, total: bar.show(done / total)
        )
    make_console().print(f"step bank: {output}", markup=False, soft_wrap=True)
    return 0
