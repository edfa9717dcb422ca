"""The run of a plan: its folder, its curves, its searches."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack

from ..evaluation.evaluate import finished, search_cells
from ..evaluation.recording import Observer
from ..evaluation.runners import CellRunner
from ..evaluation.tracking import TensorBoard, Tracker, WeightsAndBiases
from ..evaluation.until_certified import UntilCertified
from ..evaluation.wall_times import WallTimes
from ..runs.folder import RunFolder, RunWriter
from .planning import RunPlan


def run_plan(
    plan: RunPlan,
    *,
    progress: AbstractContextManager[Observer] | None = None,
    wandb: str | None = None,
    keep_going: bool = False,
) -> tuple[RunFolder, WallTimes]:
    """Search what is left of a plan, and write rows, trees and curves to its folder.

    Args:
        plan: the plan.
        progress: an observer that is entered once the folder is open.
        wandb: also log to this Weights & Biases project.
        keep_going: whether a run continues in which every search failed, 20 for one reason.

    Returns:
        The run as read from its folder, and the times.

    Raises:
        BadInputError, RunStoppedError: see `cats_jax.evaluation.evaluate.evaluate`.
    """
    # The folder is checked, made and marked as this run's before anything else writes to it.
    with RunWriter(plan.folder, plan.evaluation.manifest) as writer, ExitStack() as stack:
        sinks: list[TensorBoard | WeightsAndBiases] = [TensorBoard(plan.folder)]
        if wandb is not None:
            sinks.append(WeightsAndBiases(wandb, plan.folder.name, plan.evaluation.manifest))
        observers: list[Observer] = [stack.enter_context(Tracker(sinks))]
        runner = stack.enter_context(_workers(plan)) if plan.runner is None else plan.runner
        if progress is not None:
            observers.insert(0, stack.enter_context(progress))
        started = time.perf_counter()
        search_cells(
            plan.evaluation,
            writer,
            runner,
            plan.times,
            grader=plan.grader,
            observers=observers,
            keep_going=keep_going,
            until=_until_certified(plan),
        )
    return finished(writer, plan.times, started)


def _until_certified(plan: RunPlan) -> UntilCertified | None:
    if plan.claim is None:
        return None
    return UntilCertified(plan.claim, plan.evaluation.cells[0].seed)


def _workers(plan: RunPlan) -> AbstractContextManager[CellRunner]:
    from ..evaluation import cluster

    where = plan.searching
    assert where.ray is not None  # otherwise the plan has a runner
    return cluster.RayRunner(
        plan.evaluation.recipe,
        plan.evaluation.cells,
        plan.models,
        plan.grader,
        address=where.ray,
        workers=where.ray_workers,
    )
