"""`cats-jax evaluate`: a grid of searches from a recipe, resumable."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..errors import BadInputError
from .ray_options import IN_THIS_PROCESS, RayOptions

if TYPE_CHECKING:
    from rich.console import Console

    from ..evaluation.evaluate import Evaluation
    from ..evaluation.runners import CellRunner
    from ..evaluation.until_certified import AccuracyClaim
    from ..evaluation.wall_times import WallTimes
    from ..models.source import ModelSource
    from ..reporting.groups import Group
    from ..reporting.run_tables import Cost
    from ..reporting.sheets import Sheet
    from ..runs.folder import Run
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
    level: float = 0.5,
    fresh: Annotated[bool, tyro.conf.arg(name="new-only")] = False,
    functions: bool = True,
    until_certified: float | None = None,
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
        keep_going: continue a run whose first 20 searches all failed for one reason.
        timings: print where the wall time went.
        wandb: also log to this Weights & Biases project.
        searching: where questions are searched.
        bank: replay a step bank of these questions in the graph, in place of calling the models.
        held_out: run on other questions, which gives epsilon, the largest deviation of the scores.
            An answer is certified if it leads every other answer by more than 2 epsilon.
        level: share of held-out questions on which that epsilon holds, in (0, 1].
        fresh: refuse a folder that has rows already.
        functions: run the code of functions that the recipe names as module:function.
        until_certified: stop as soon as it is settled whether the accuracy of the recipe's one
            configuration is above this number, and write certificate.json to the run folder.
        delta: largest probability that the decision of --until-certified is false; default: 0.05.
    """
    from ..evaluation.evaluate import prepare
    from ..evaluation.runners import largest_work
    from ..models.hub import fetch_models
    from ..models.source import check_models
    from ..specs.calibrations import MissingCalibrationError
    from ..specs.functions import function_lines
    from ..specs.recipe import load_recipe
    from .dry_run import show_bounds, show_times
    from .terminal import make_console, say

    if measure and not dry_run:
        raise BadInputError("--measure estimates what a run would take: give it with --dry-run")

    searching.check()
    claim = accuracy_claim(until_certified, delta, searching)
    given = {"num_candidates": num_candidates, "seeds": seeds, "in_flight": in_flight}
    overrides = {name: value for name, value in given.items() if value is not None}
    missing: list[str] = []
    try:
        loaded: Recipe = load_recipe(recipe, overrides)
    except MissingCalibrationError as error:
        if not dry_run:
            raise
        missing = [str(error)]
        loaded = load_recipe(recipe, {**overrides, "calibration": "none"})
    changes: dict[str, Any] = {}
    if strategies is not None:
        changes["strategies"] = _chosen(loaded.strategies, strategies, "strategies")
    if prms is not None:
        changes["prms"] = _chosen(loaded.prms, prms, "prms")
    if questions is not None:
        changes["questions"] = tuple(
            dataclasses.replace(spec, count=questions) for spec in loaded.questions
        )
    loaded = dataclasses.replace(loaded, **changes)
    console = make_console()
    for line in function_lines(loaded.strategies, loaded.policy, loaded.prms, allowed=functions):
        console.print(line, markup=False, soft_wrap=True)
    models = model_source()
    if dry_run:
        show_bounds(console, loaded, models, missing)
        if measure:
            show_times(console, loaded, models)
        return 0
    reference = None if held_out is None else held_out_run(held_out, level)
    folder = pathlib.Path("runs") / loaded.name if output is None else output
    if fresh and (folder / "results.jsonl").exists():
        raise BadInputError(f"{str(folder)!r} has results already: choose another --output")
    if bank is None:
        fetch_models((loaded.policy, *loaded.prms))
    evaluation = prepare(loaded, models)
    for note in evaluation.notes:
        say(console, f"warning: {note}")
    for line in evaluation.guarantees:
        say(console, line)
    if claim is not None:
        evaluation = ended_by(claim, evaluation, folder)
    settled = evaluation.recipe
    if not folder.exists() and bank is None and searching.ray is None:
        # Before the folder is made: with other settings it would belong to another run.
        check_models(models, settled.policy, settled.prms, largest_work(settled))
    runner = None
    if bank is not None:
        if searching.ray is not None:
            raise BadInputError("--bank asks no model: give it without --ray")
        evaluation, runner = replayed(evaluation, bank)
    run, times = run_evaluation(
        console,
        evaluation,
        models,
        folder,
        wandb=wandb,
        searching=searching,
        runner=runner,
        keep_going=keep_going,
        claim=claim,
    )
    show_run(console, run)
    certified = claim is None or show_settled(console, run, evaluation, claim)
    if reference is not None:
        show_certificates(console, run, reference, level)
    if timings and times.searching > 0:
        show_timings(console, times)
    console.print(f"run folder: {folder}", markup=False, soft_wrap=True)
    return exit_code(run) if certified else 1


def accuracy_claim(
    target: float | None, delta: float | None, searching: RayOptions
) -> AccuracyClaim | None:
    """The claim of --until-certified; None without one.

    Raises:
        BadInputError: a number is not between 0 and 1, or the options do not go together.
    """
    from ..evaluation.until_certified import AccuracyClaim

    if target is None:
        if delta is not None:
            raise BadInputError(
                f"--delta={delta:g} is that of --until-certified: give both, or none"
            )
        return None
    if searching.ray is not None:
        raise BadInputError(
            "--until-certified looks at each question in order, which workers do not keep: give it "
            "without --ray"
        )
    return AccuracyClaim(target, 0.05 if delta is None else delta)


def ended_by(claim: AccuracyClaim, evaluation: Evaluation, folder: pathlib.Path) -> Evaluation:
    """The evaluation, to be stopped as soon as a claim is settled.

    Raises:
        BadInputError: no answers to its questions could certify the claim.
    """
    from ..reporting.certified_configurations import check_premises

    check_premises(repr(str(folder)), evaluation.manifest)
    claim.check(evaluation.cells, len(evaluation.questions.questions))
    if len(evaluation.recipe.questions) > 1:
        raise BadInputError(
            "--until-certified: the recipe has several data sets, and a certificate is about one: "
            "leave one in it"
        )
    return dataclasses.replace(evaluation, manifest=claim.of(evaluation.manifest))


def show_settled(console: Console, run: Run, evaluation: Evaluation, claim: AccuracyClaim) -> bool:
    """Print and write what a run settled; returns whether its claim is certified."""
    import json

    from ..reporting.anytime_certificates import anytime_sheet, certify_anytime
    from ..storage.durable import whole_text
    from .terminal import show_sheet

    questions, seed = evaluation.questions.questions, evaluation.cells[0].seed
    certificate = certify_anytime(run, claim, questions, seed)
    show_sheet(console, anytime_sheet(certificate))
    with whole_text(run.folder / "certificate.json") as file:
        file.write(json.dumps(certificate.as_json(), indent=1) + "\n")
    return certificate.certified


def model_source() -> ModelSource:
    """The source of the commands' models: local folders."""
    from ..models.source import ModelFolders

    return ModelFolders()


def run_evaluation(
    console: Console,
    evaluation: Evaluation,
    models: ModelSource,
    folder: pathlib.Path,
    *,
    wandb: str | None = None,
    searching: RayOptions = IN_THIS_PROCESS,
    runner: CellRunner | None = None,
    keep_going: bool = False,
    claim: AccuracyClaim | None = None,
) -> tuple[Run, WallTimes]:
    """Run with progress bars and curves: locally, on a cluster, or by the given runner."""
    from ..evaluation.cluster import RayRunner
    from ..evaluation.evaluate import evaluate as evaluate_cells
    from ..evaluation.tracking import Sink, TensorBoard, Tracker, WeightsAndBiases
    from ..evaluation.until_certified import UntilCertified
    from ..grading.verdict import default_judge
    from ..runs.folder import RunWriter
    from .progress import ProgressBars

    # The folder is checked, made and marked as this run's before anything else writes to it.
    RunWriter(folder, evaluation.manifest).close()
    sinks: list[Sink] = [TensorBoard(folder)]
    if wandb is not None:
        sinks.append(WeightsAndBiases(wandb, folder.name, evaluation.manifest))
    recipe = evaluation.recipe
    judge = default_judge(recipe.questions)
    with contextlib.ExitStack() as stack:
        tracker = stack.enter_context(Tracker(sinks))
        if searching.ray is not None:
            runner = stack.enter_context(
                RayRunner(
                    recipe,
                    models,
                    judge,
                    address=searching.ray,
                    workers=searching.ray_workers,
                )
            )
        count = len(evaluation.questions.questions)
        bars = stack.enter_context(ProgressBars(console, evaluation.cells, count, recipe.in_flight))
        return evaluate_cells(
            evaluation,
            models,
            folder,
            observers=(bars, tracker),
            judge=judge,
            runner=runner,
            keep_going=keep_going,
            until=None if claim is None else UntilCertified(claim, evaluation.cells[0].seed),
        )


def replayed(evaluation: Evaluation, folder: pathlib.Path) -> tuple[Evaluation, CellRunner]:
    """An evaluation on a step bank of its models, and the runner that replays it."""
    from ..bank.layout import load_bank
    from ..evaluation.replay import ReplayRunner

    recipe, models = evaluation.recipe, evaluation.manifest["models"]
    recorded = {name: models[name] for name in models if not name.startswith("controller ")}
    prms = [spec.label for spec in recipe.prms] or None
    bank = load_bank(folder, prms=prms, calibrations=recipe.calibration, expected=recorded)
    for name in ("budget", "max_tokens", "max_seconds"):
        if getattr(recipe, name) is not None:
            raise BadInputError(f"{name} has no meaning with --bank: leave it out of the recipe")
    depth = bank.manifest["config"]["max_depth"]
    if recipe.max_depth != depth:
        raise BadInputError(
            f"max_depth={recipe.max_depth}: step bank {str(folder)!r} was collected with {depth}, "
            "which is what a replay has"
        )
    models = {**models, "bank": {name: bank.manifest[name] for name in ("config", "world")}}
    evaluation = dataclasses.replace(evaluation, manifest={**evaluation.manifest, "models": models})
    return evaluation, ReplayRunner(bank)


def held_out_run(folder: pathlib.Path, level: float) -> Run:
    """The run that a certificate's epsilon comes from."""
    from ..runs.folder import read_run

    if not 0.0 < level <= 1.0:
        raise BadInputError(f"--level {level:g}: must be in (0, 1], such as 0.5")
    return read_run(folder)


def show_certificates(console: Console, run: Run, reference: Run, level: float) -> Sheet:
    """Print which share of the answers is certified, and how often those are right."""
    from ..reporting.certificates import certificate_sheet, certify
    from .terminal import show_sheet

    title = f"certified answers: they lead by more than 2 epsilon, level {level:g}"
    sheet = certificate_sheet(certify(run, reference, level=level), title)
    show_sheet(console, sheet)
    return sheet


def show_run(console: Console, run: Run) -> None:
    """Print the tables of a run and write its summary and figures."""
    show_tables(console, run)
    write_overview(console, run)


def write_overview(console: Console, run: Run) -> None:
    """Write the summary and the figures of a run to its folder."""
    from ..reporting.figures import write_figures
    from ..reporting.groups import summarize
    from ..runs.folder import write_summary

    for _, title, part in run_parts(run):
        for path in write_figures(part, run.folder, title, run=run):
            console.print(f"figure: {path}", markup=False, soft_wrap=True)
    write_summary(run.folder, summarize(run))


def show_tables(console: Console, run: Run, cost: Cost = "tokens") -> list[Sheet]:
    """Print the tables of a run, and return them."""
    from ..reporting.run_tables import run_sheets
    from ..reporting.sheets import named_after
    from ..reporting.step_boundaries import without_boundaries
    from .terminal import show_sheet

    sheets = [
        named_after(sheet, label)
        for label, title, part in run_parts(run)
        for sheet in run_sheets(part, title, cost)
    ]
    sheets[0] = dataclasses.replace(sheets[0], notes=(*sheets[0].notes, *run.notes))
    for sheet in sheets:
        show_sheet(console, sheet)
    warning = without_boundaries(run)
    if warning is not None:
        console.print(warning, markup=False, soft_wrap=True)
    return sheets


def run_parts(run: Run) -> list[tuple[str, str, list[Group]]]:
    """(label, title, groups) of each data set of a run.

    Raises:
        BadInputError: the run has no rows.
    """
    from ..reporting.groups import by_dataset, groups

    if not run.rows:
        raise BadInputError(f"{str(run.folder)!r} has no rows yet: run `cats-jax evaluate` first")
    name = str(run.manifest["config"]["name"])
    source = run.manifest["questions"]["source"]
    parts = []
    for label, part in by_dataset(groups(run.rows)).items():
        count = len({row.question for group in part for row in group.rows})
        seeds = sorted({row.seed for group in part for row in group.rows})
        runs = f"; run seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else ""
        parts.append((label, f"{name}: {count} questions of {label or source}{runs}", part))
    return parts


def show_timings(console: Console, times: WallTimes) -> None:
    """Print all parts of an evaluation's wall time."""
    from ..reporting.run_tables import timing_table
    from .terminal import show_table

    show_table(console, timing_table(times))


def exit_code(run: Run) -> int:
    """1 if every question of some cell failed, else 0: single failures are rows."""
    from ..reporting.groups import groups

    return int(any(all(row.status == "failed" for row in g.rows) for g in groups(run.rows)))


def _chosen(specs: tuple[Any, ...], labels: tuple[str, ...], name: str) -> tuple[Any, ...]:
    known = {spec.label: spec for spec in specs}
    for label in labels:
        if label not in known:
            raise BadInputError(
                f"--{name}: {label!r} is not in the recipe: it has {', '.join(known) or 'none'}"
            )
    return tuple(known[label] for label in labels)
