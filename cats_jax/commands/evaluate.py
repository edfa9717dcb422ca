"""`cats-jax evaluate`: a grid of searches from a recipe, resumable."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import tyro

from ..batch.ray_options import IN_THIS_PROCESS, RayOptions
from ..errors import BadInputError

if TYPE_CHECKING:
    from rich.console import Console

    from ..batch.planning import RunPlan
    from ..batch.recipes import Changes
    from ..runs.folder import RunFolder
    from ..specs.recipe import Recipe


def evaluate(
    recipe: tyro.conf.Positional[pathlib.Path],
    *,
    output: pathlib.Path | None = None,
    strategies: tuple[str, ...] | None = None,
    num_candidates: tuple[int, ...] | None = None,
    prms: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
    questions: int | None = None,
    in_flight: int | None = None,
    dry_run: bool = False,
    measure: bool = False,
    keep_going: bool = False,
    timings: bool = False,
    wandb: str | None = None,
    searching: tyro.conf.OmitArgPrefixes[RayOptions] = IN_THIS_PROCESS,
    bank: pathlib.Path | None = None,
    held_out: pathlib.Path | None = None,
    quantile: float = 0.5,
    resume: bool = True,
    functions: bool = True,
    until_certified: float | None = None,
    against: str | None = None,
    delta: float | None = None,
) -> int:
    """Search every question with every strategy, N, PRM and seed of a recipe.

    Repeat the command to resume a run that was killed.

    Args:
        recipe: YAML file, such as recipes/world.yaml.
        output: run folder; default: runs/ and the recipe's name.
        strategies: labels of the recipe's strategies to run; default: all.
        num_candidates: values of N, in place of the recipe's.
        prms: labels of the recipe's PRMs to use; default: all.
        seeds: run seeds, in place of the recipe's.
        questions: number of questions, in place of the recipe's count.
        in_flight: number of questions searched at once, which does not affect results.
        dry_run: print rows, candidates, bounds on sampled tokens and PRM tokens, and whether the
            models fit into memory, and stop; models, controllers and hub data may be missing.
        measure: with --dry-run, also load the models, search for about a minute, and print how
            long every cell would take; nothing is written.
        keep_going: continue where a run would stop, because every search so far has failed, and 20
            of them for the same reason.
        timings: print where the wall time went.
        wandb: also log to this Weights & Biases project.
        searching: where questions are searched.
        bank: replay a step bank of these questions in the graph, in place of calling the models.
        held_out: run on other questions, which gives epsilon: on the share --quantile of them no
            score deviates from the truth by more. An answer is certified if it leads every other
            answer by more than 2 epsilon.
        quantile: share of held-out questions on which that epsilon holds, in (0, 1].
        resume: continue a run folder that has rows; --no-resume refuses it.
        functions: run the code of functions that the recipe names as module:function.
        until_certified: stop as soon as it is settled whether the accuracy of the recipe's one
            configuration is above this number, and write certificate.json to the run folder. With
            several seeds, the value of a question is the mean over its seeds.
        against: with --until-certified, the claim is that the accuracy is at most this number below
            that of the strategy of this label, at its largest N.
        delta: largest probability that the decision of --until-certified is false; default: 0.05.
    """
    from ..batch.claims import accuracy_claim
    from ..batch.planning import plan_run
    from ..batch.recipes import Changes
    from ..batch.running import run_plan
    from ..models.source import ModelFolders
    from ..reporting.certificates import check_certifiable, check_held_out, held_out_run
    from ..reporting.printing import show_table
    from ..reporting.run_report import has_failed_group
    from ..reporting.run_tables import timing_table
    from ..specs.functions import function_lines
    from .progress import ProgressBars
    from .terminal import make_console, say

    if measure and not dry_run:
        raise BadInputError("--measure estimates what a run would take: give it with --dry-run")
    searching.check()
    claim = accuracy_claim(until_certified, delta, against, searching)
    changes = Changes(strategies, num_candidates, prms, seeds, questions, in_flight)
    loaded, missing = _read(recipe, changes, dry_run=dry_run)
    console = make_console()
    for line in function_lines(loaded.strategies, loaded.policy, loaded.prms, allowed=functions):
        console.print(line, markup=False, soft_wrap=True)
    models = ModelFolders()
    reference = held_out_run(held_out, quantile)
    if dry_run:
        from .dry_run import show_bounds, show_times

        show_bounds(console, loaded, models, missing)
        if measure:
            show_times(console, loaded, models)
        return 0
    plan = plan_run(
        loaded, models, output, searching=searching, bank=bank, claim=claim, resume=resume
    )
    if reference is not None:
        asked = (item.id for item in plan.evaluation.questions.questions)
        check_held_out(asked, plan.evaluation.manifest, plan.folder, reference)
        writes_trees = plan.evaluation.recipe.writes_trees
        check_certifiable(
            (
                (cell.spec.label, cell.num_candidates, cell.prm and cell.prm.label)
                for cell in plan.evaluation.cells
                if writes_trees(cell.num_candidates)
            ),
            reference,
        )
    for note in plan.evaluation.notes:
        say(console, f"warning: {note}")
    for line in plan.evaluation.guarantees:
        say(console, line)
    progress = ProgressBars.of(console, plan.evaluation)
    run, times = run_plan(plan, progress=progress, wandb=wandb, keep_going=keep_going)
    certified = _show(console, plan, run, reference, quantile)
    if timings and times.searching > 0:
        show_table(console, timing_table(times))
    console.print(f"run folder: {plan.folder}", markup=False, soft_wrap=True)
    return int(has_failed_group(run) or not certified)


def _read(recipe: pathlib.Path, changes: Changes, *, dry_run: bool) -> tuple[Recipe, list[str]]:
    """The recipe, and for a dry run the calibrations that are missing."""
    from ..batch.recipes import read_recipe
    from ..specs.calibrations import MissingCalibrationError

    try:
        return read_recipe(recipe, changes), []
    except MissingCalibrationError as error:
        if not dry_run:
            raise
        return read_recipe(recipe, changes, calibrated=False), [str(error)]


def _show(
    console: Console, plan: RunPlan, run: RunFolder, reference: RunFolder | None, quantile: float
) -> bool:
    """Print the tables of a run that has ended; False if the claim to certify does not hold."""
    from ..batch.claims import write_certificate
    from ..reporting.anytime_certificates import anytime_sheet
    from ..reporting.certificates import certified_answers
    from ..reporting.printing import show_sheet
    from ..reporting.run_report import show_run

    show_run(console, run)
    certified = True
    if plan.claim is not None:
        certificate = write_certificate(run, plan.evaluation, plan.claim)
        show_sheet(console, anytime_sheet(certificate))
        certified = certificate.certified
    if reference is not None:
        show_sheet(console, certified_answers(run, reference, quantile))
    return certified
