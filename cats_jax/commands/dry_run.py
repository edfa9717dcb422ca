"""`cats-jax evaluate --dry-run`: what a run costs, whether it fits, and how long it takes."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ..models.footprint import Footprint, Memory, Work
    from ..models.source import ModelSource
    from ..specs.models import PolicySpec, PrmSpec
    from ..specs.recipe import Recipe


def show_bounds(
    console: Console, recipe: Recipe, models: ModelSource, missing: Sequence[str] = ()
) -> None:
    """Print what a run would cost at most; models, controllers and hub data need not be there.

    Args:
        console: console to print on.
        recipe: recipe of the run.
        models: source of the recipe's models.
        missing: what is known to be missing, one line each.
    """
    from ..datasets import count_questions
    from ..evaluation.cells import grid
    from ..evaluation.evaluate import cost_bounds, with_stand_ins
    from ..reporting.tables import new_table
    from .terminal import show_table

    found, absent, formats = _footprints(recipe, models)
    count = sum(map(count_questions, recipe.questions))
    recipe, controllers = with_stand_ins(recipe)

    table = new_table("at most", "<cell", "rows", "candidates", "sampled tokens", "PRM tokens")
    totals = [0, 0, 0, 0]
    for cell, *bounds in cost_bounds(recipe, grid(recipe), count):
        table.add_row(cell.title, *(f"{bound:,}" for bound in bounds))
        totals = [total + bound for total, bound in zip(totals, bounds, strict=True)]
    table.add_section()
    table.add_row("all", *(f"{total:,}" for total in totals))
    show_table(console, table)
    _show_memory(console, found)
    for line in formats:
        console.print(line, markup=False, soft_wrap=True)
    files = [
        f"question file {spec.file!r}"
        for spec in recipe.questions
        if spec.file is not None and not pathlib.Path(spec.file).exists()
    ]
    for line in (*absent, *files, *missing, *controllers):
        console.print(f"not there yet: {line}", markup=False, soft_wrap=True)


def _footprints(
    recipe: Recipe, models: ModelSource
) -> tuple[list[Footprint | None], list[str], list[str]]:
    """Memory of the policy and of each PRM, and two kinds of lines.

    The first are on models that are not there yet, the second say in which format each other model
    is asked.

    Raises:
        BadInputError: a name or format is unknown, or a model does not fit its format.
    """
    from ..evaluation.runners import largest_work
    from ..models.folders import MissingModelError
    from ..models.source import check_format_name, described_format
    from ..specs.functions import is_function_name

    work = largest_work(recipe)
    found: list[Footprint | None] = []
    absent: list[str] = []
    formats: list[str] = []
    for spec in (recipe.policy, *recipe.prms):
        if not is_function_name(spec.path):
            check_format_name(spec)
        try:
            models.check(spec)
            found.append(models.footprint(_as_settled(spec, work), work))
            if not is_function_name(spec.path):
                kind = "policy" if spec is recipe.policy else "PRM"
                name = pathlib.Path(spec.path).name
                formats.append(f"format of the {kind} {name!r}: {described_format(spec)}")
        except MissingModelError as error:
            found.append(None)
            absent.append(str(error))
    return found, absent, formats


def _show_memory(console: Console, found: Sequence[Footprint | None]) -> None:
    """Print what each model needs on its device, and whether the policy fits beside each PRM."""
    from ..models.footprint import PROMPT_TOKENS, device_memory
    from ..reporting.tables import new_table
    from .terminal import show_table

    known = [model for model in found if model is not None]
    memory = {model.device: device_memory(model.device) for model in known}
    if known:
        title = f"memory, with prompts of {PROMPT_TOKENS} tokens"
        table = new_table(
            title, "<model", "<device", "weights", "KV per token", "cache at most", "activations",
            "sum", "free",
        )  # fmt: skip
        for model in known:
            table.add_row(*_memory_row(model, memory[model.device]))
        show_table(console, table)
    lines: list[str] = []
    policy, *prms = found
    groups = [[policy, prm] for prm in prms] or [[policy]]
    for group in groups:
        present = [model for model in group if model is not None]
        if len(present) == len(group):
            lines += _verdicts(present, memory)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _as_settled(spec: PolicySpec | PrmSpec, work: Work) -> PolicySpec | PrmSpec:
    """The model with about the context that `settle` gives its engine; questions are not read."""
    from ..models.backend import choose_backend
    from ..models.settle import prm_context
    from ..specs.functions import is_function_name
    from ..specs.models import PrmSpec

    spec = choose_backend(spec)
    if spec.backend != "vllm" or spec.max_model_len is not None or is_function_name(spec.path):
        return spec
    tokens = work.path_tokens(sys.maxsize)
    if isinstance(spec, PrmSpec):
        tokens = prm_context(tokens, work.steps)
    return dataclasses.replace(spec, max_model_len=tokens)


def show_times(console: Console, recipe: Recipe, models: ModelSource) -> None:
    """Load the models, search for about a minute, and print how long the recipe would take."""
    from ..datasets import load_questions
    from ..evaluation.cells import grid
    from ..evaluation.measure import measure
    from ..reporting.tables import new_table
    from .terminal import show_table

    questions = load_questions(recipe.questions).questions
    found = measure(
        recipe,
        grid(recipe),
        questions,
        models,
        report=lambda title: console.print(f"measuring {title}", markup=False),
    )
    title = "estimated time, hours:minutes:seconds"
    table = new_table(title, "<cell", "rows", "from", "to", "<measured on")
    for time in found.cells:
        table.add_row(
            time.cell.title, f"{time.rows:,}", _hours(time.low), _hours(time.high), time.basis
        )
    table.add_section()
    table.add_row("loading models", "", _hours(found.loading), _hours(found.loading))
    table.add_row(
        "all",
        f"{sum(time.rows for time in found.cells):,}",
        _hours(found.loading + sum(time.low for time in found.cells)),
        _hours(found.loading + sum(time.high for time in found.cells)),
    )
    show_table(console, table)


def _memory_row(model: Footprint, memory: Memory | None) -> list[str]:
    from ..models.footprint import gib

    total = None if model.cache is None else model.weights + model.cache + model.activations
    free = None if memory is None else memory.free
    if model.gpu_share is not None and memory is not None:
        total = int(model.gpu_share * memory.total)
    return [
        model.title,
        model.device,
        gib(model.weights),
        f"{model.kv_per_token:,} B",
        "the rest of its share" if model.cache is None else gib(model.cache),
        gib(model.activations),
        *("?" if size is None else gib(size) for size in (total, free)),
    ]


def _verdicts(models: list[Footprint], memory: dict[str, Memory | None]) -> list[str]:
    """One line for each device of models that are loaded together."""
    from ..models.footprint import gib, misfit

    lines = []
    for device in dict.fromkeys(model.device for model in models):
        here = [model for model in models if model.device == device]
        names, has = " and ".join(model.title for model in here), memory[device]
        if has is None:
            lines.append(f"{names}: how much memory {device} has is not known here")
            continue
        reason = misfit(here, has)
        if reason is not None:
            lines.append(f"does not fit: {reason}")
            continue
        most = sum(
            model.weights + model.cache + model.activations
            for model in here
            if model.cache is not None
        )
        shares = sum(model.gpu_share or 0.0 for model in here)
        if most <= has.free - int(shares * has.total):
            lines.append(f"fits: {names} on {device}")
        else:
            least = sum(model.least for model in here)
            lines.append(
                f"tight: {names} on {device} have the {gib(least)} that they can't do without; "
                "with less than the sums above, cached prefixes are computed again and "
                "micro-batches shrink"
            )
    return lines


def _hours(seconds: float) -> str:
    """Seconds as hours:minutes:seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
