"""`cats-jax evaluate --dry-run`: what a run costs, whether it fits, and how long it takes."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

from ..bank import build
from ..bank.cost import bank_cost
from ..bank.recipe import BankRecipe
from ..datasets import load_questions, survey
from ..errors import RunStoppedError
from ..evaluation.cells import Cell, check_outcome_models, grid
from ..evaluation.evaluate import cost_bounds, with_stand_ins
from ..evaluation.measure import measure
from ..evaluation.runners import largest_work
from ..models import footprint, threads
from ..models.backend import choose_backend, gpu_numbers
from ..models.folders import MissingModelError
from ..models.footprint import PROMPT_TOKENS, Footprint, Memory, Work, gib, misfit
from ..models.readable import check_readable
from ..models.resolve import choose_threads, example_tokens, prm_context
from ..models.source import (
    ModelSource,
    check_examples,
    check_format_name,
    check_scores_steps,
    described_format,
    is_judge,
)
from ..reporting.printing import show_sheet
from ..reporting.sheets import Column, Sheet, plain
from ..specs.functions import is_function_name
from ..specs.models import PolicySpec, PrmSpec
from ..specs.recipe import QuestionSpec, Recipe
from .terminal import say
from .time_left import duration

_hours = functools.partial(duration, hours=True)

_ENDPOINT_PATIENCE = 10.0
"""Seconds of tries after which a dry run reports an endpoint as missing."""


def show_bounds(
    console: Console, recipe: Recipe, models: ModelSource, missing: Sequence[str] = ()
) -> None:
    """Print the largest cost of a run; models, controllers and hub data may be missing.

    `missing` are parts that are known to be missing, one line each.
    """
    recipe, controllers = with_stand_ins(recipe)
    specs = (recipe.policy, *recipe.prms)
    cells = grid(recipe)
    found, absent, formats = _footprints(specs, models, largest_work(recipe, cells))
    formats += _endpoint(recipe.policy)
    count, notes, here = survey(recipe.questions)
    check_readable(models, recipe.policy, recipe.questions, here)

    rows = []
    totals = [0, 0, 0, 0]
    check_outcome_models(cells)
    for cell, *bounds in cost_bounds(recipe, cells, count):
        rows.append([cell.title, *(f"{bound:,}" for bound in bounds)])
        totals = [total + bound for total, bound in zip(totals, bounds, strict=True)]
    rows.append(["all", *(f"{total:,}" for total in totals)])
    columns = {"cell": 0, "rows": 3, "candidates": 4, "sampled tokens": 1, "PRM tokens": 2}
    _show(console, "at most", columns, rows)
    policy, *prms = found
    _show_memory(console, [[policy, prm] for prm in prms] or [[policy]])
    absent += [*_absent_files(recipe.questions), *missing, *controllers]
    notes = [*notes, *_judges(recipe.prms), *_ranked(cells)]
    _show_remarks(console, [*_threads(specs), *formats], notes, absent)


def show_bank(console: Console, recipe: BankRecipe, models: ModelSource) -> None:
    """Print approximate bounds on what a step bank samples and costs; models may be missing."""
    check_scores_steps(recipe.prms, "a step bank")
    count, notes, here = survey(recipe.questions)
    check_readable(models, recipe.policy, recipe.questions, here)
    work = build.largest_work(recipe, min(count, build.BLOCK_SIZE))
    specs = (recipe.policy, *recipe.prms)
    found, absent, formats = _footprints(specs, models, work)
    formats += _endpoint(recipe.policy)
    cost = bank_cost(recipe, count)
    rows = [["policy", f"{count:,}", str(cost.paths), f"{cost.samples:,}", f"{cost.sampled:,}"]]
    for spec in recipe.prms:
        scored = 0 if spec.is_confidence else cost.scored
        rows.append([f"PRM {spec.label}", f"{count:,}", "", "", f"{scored:,}"])
    columns = {"model": 0, "questions": 3, "paths each": 4, "steps": 2, "tokens": 1}
    _show(console, "about at most", columns, rows)
    together = recipe.allocation.reads_scores
    _show_memory(console, [found] if together else [[model] for model in found])
    absent += _absent_files(recipe.questions)
    notes = [*notes, *_judges(recipe.prms)]
    _show_remarks(console, [*_threads(specs), *formats], notes, absent)


def _judges(prms: Sequence[PrmSpec]) -> list[str]:
    """A note for each PRM whose tokens the table does not bound."""
    return [
        f"PRM {spec.label!r} is a judge: for each step it reads its prompt and the path, and "
        "writes its critiques. The table does not count these tokens"
        for spec in prms
        if is_judge(spec)
    ]


def _ranked(cells: Sequence[Cell]) -> list[str]:
    """A note for each strategy whose scores are comparisons, which the table does not bound."""
    ranked = [
        cell.spec.label
        for cell in cells
        if cell.strategy.comparison is not None and cell.strategy.comparison.scores
    ]
    return [
        f"strategy {label!r} compares each answer with all others. The table does not count the "
        "tokens that the comparisons read"
        for label in dict.fromkeys(ranked)
    ]


def _absent_files(questions: Sequence[QuestionSpec]) -> list[str]:
    return [
        f"question file {spec.file!r}"
        for spec in questions
        if spec.file is not None and not pathlib.Path(spec.file).exists()
    ]


def _show_remarks(
    console: Console, settings: Sequence[str], notes: Sequence[str], absent: Sequence[str]
) -> None:
    for line in settings:
        console.print(line, markup=False, soft_wrap=True)
    for line in (*(f"note: {note}" for note in notes), *(f"not there yet: {x}" for x in absent)):
        say(console, line)


def _footprints(
    specs: Sequence[PolicySpec | PrmSpec], models: ModelSource, work: Work
) -> tuple[list[Footprint | None], list[str], list[str]]:
    """Memory of the policy and of each PRM, the missing models, and the formats of the others.

    Raises:
        BadInputError: a name or format is unknown, or a model does not fit its format.
    """
    found: list[Footprint | None] = []
    absent: list[str] = []
    formats: list[str] = []
    for spec in specs:
        try:
            if is_function_name(spec.path):  # only a run calls it
                check_examples(spec)
                found.append(None)
                continue
            check_format_name(spec)
            models.check(spec)
            found.append(models.footprint(_as_resolved(spec, work), work))
            kind = "policy" if spec.where == "policy" else "PRM"
            formats.append(f"format of the {kind} {spec.name!r}: {described_format(spec)}")
        except MissingModelError as error:
            found.append(None)
            absent.append(str(error))
    return found, absent, formats


def _endpoint(policy: PolicySpec) -> list[str]:
    """A line on what a chat endpoint can do, found by short requests; empty for other models."""
    if not policy.chat:
        return []
    from ..models.serving.chat import chat_policy  # of the extra 'http'

    try:
        return [chat_policy(policy, patience=_ENDPOINT_PATIENCE).found]
    except RunStoppedError as error:
        return [f"not there yet: {error}"]


def _threads(specs: Sequence[PolicySpec | PrmSpec]) -> list[str]:
    """The threads of the models on the CPU in one line; no line if there is no such model."""
    parts = []
    for spec in specs:
        spec = choose_threads(choose_backend(spec))
        if spec.num_threads and not gpu_numbers(spec) and not is_function_name(spec.path):
            kind = "policy" if spec.where == "policy" else "PRM"
            parts.append(f"{kind} {spec.name!r} {spec.num_threads}")
    line = f"threads (num_threads), of {threads.available_cpus()} CPUs: {', '.join(parts)}"
    return [line] if parts else []


def _show_memory(console: Console, groups: Sequence[Sequence[Footprint | None]]) -> None:
    """Print what each model needs on its device, and whether each group, if complete, fits."""
    known = list({id(m): m for group in groups for m in group if m is not None}.values())
    memory = {model.device: footprint.device_memory(model.device) for model in known}
    if known:
        columns = {"model": 0, "device": 5, "weights": 3, "KV per token": 6, "cache at most": 4,
                   "activations": 4, "sum": 1, "free": 2}  # fmt: skip
        title = f"memory, with prompts of {PROMPT_TOKENS} tokens"
        _show(console, title, columns, [_memory_row(m, memory[m.device]) for m in known])
    for group in groups:
        present = [model for model in group if model is not None]
        for line in _verdicts(present, memory) if len(present) == len(group) else ():
            say(console, line)


def _as_resolved(spec: PolicySpec | PrmSpec, work: Work) -> PolicySpec | PrmSpec:
    """The model with about the context that its engine gets; questions are not read."""
    spec = choose_threads(choose_backend(spec))
    if spec.backend != "vllm" or spec.max_model_len is not None or is_function_name(spec.path):
        return spec
    tokens = work.path_tokens(sys.maxsize)
    if isinstance(spec, PrmSpec):
        path = dataclasses.replace(work, prompts=()).path_tokens(sys.maxsize)
        compared = max((each.tokens for each in work.prm_prompts), default=0)
        tokens = prm_context(spec, path, work.steps, compared)
    else:
        tokens += example_tokens(spec)
    return dataclasses.replace(spec, max_model_len=tokens)


def show_times(console: Console, recipe: Recipe, models: ModelSource) -> None:
    """Load the models, search for about a minute, and print how long the recipe would take."""

    def report(title: str) -> None:
        console.print(f"measuring {title}", markup=False)

    questions = load_questions(recipe.questions).questions
    found = measure(recipe, grid(recipe), questions, models, report=report)
    rows = [
        [time.cell.title, f"{time.rows:,}", _hours(time.low), _hours(time.high), time.basis]
        for time in found.cells
    ]
    rows.append(["loading models", "", _hours(found.loading), _hours(found.loading), ""])
    low = found.loading + sum(time.low for time in found.cells)
    high = found.loading + sum(time.high for time in found.cells)
    count = sum(time.rows for time in found.cells)
    rows.append(["all", f"{count:,}", _hours(low), _hours(high), ""])
    columns = {"cell": 0, "rows": 3, "from": 1, "to": 1, "measured on": 5}
    _show(console, "estimated time, hours:minutes:seconds", columns, rows)


def _show(
    console: Console, title: str, ranks: Mapping[str, int], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table of texts; a narrow terminal hides columns of higher rank first."""
    left = ("cell", "model", "device", "measured on")
    columns = tuple(
        Column(name, (name,), plain, rank, left=name in left) for name, rank in ranks.items()
    )
    records = tuple(dict(zip(ranks, row, strict=True)) for row in rows)
    show_sheet(console, Sheet("dry-run", title, columns, records))


def _memory_row(model: Footprint, memory: Memory | None) -> list[str]:
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
