"""The plan of a run: everything that is checked before its folder is made."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from ..errors import BadInputError
from ..evaluation.cluster import check_cluster
from ..evaluation.evaluate import Evaluation, prepare
from ..evaluation.replay import replayed
from ..evaluation.runners import CellRunner, LocalRunner
from ..evaluation.until_certified import AccuracyClaim
from ..evaluation.wall_times import WallTimes
from ..grading.graders import default_grader
from ..models.hub import fetch_models
from ..models.source import ModelSource
from ..protocols import AnswerGrader
from ..runs.folder import RESULTS
from ..specs.recipe import Recipe
from .claims import ended_by
from .ray_options import IN_THIS_PROCESS, RayOptions


@dataclass(frozen=True)
class RunPlan:
    """A run that can begin.

    Attributes:
        evaluation: the checked recipe with its cells and questions.
        models: source of its models.
        folder: the run folder, which may not exist yet.
        grader: decides which answers are the same.
        searching: where questions are searched.
        runner: searches the cells; None: the workers of `searching`, which start with the run.
        times: wall times, to which the runner adds.
        claim: ends the run as soon as it is settled; None: all questions are searched.
    """

    evaluation: Evaluation
    models: ModelSource
    folder: pathlib.Path
    grader: AnswerGrader
    searching: RayOptions
    runner: CellRunner | None
    times: WallTimes
    claim: AccuracyClaim | None = None


def plan_run(
    recipe: Recipe,
    models: ModelSource,
    folder: pathlib.Path | None = None,
    *,
    searching: RayOptions = IN_THIS_PROCESS,
    bank: pathlib.Path | None = None,
    claim: AccuracyClaim | None = None,
    resume: bool = True,
) -> RunPlan:
    """Download the models that are missing, and check a run; no weights are loaded.

    Args:
        recipe: the recipe.
        models: source of its models.
        folder: the run folder; default: runs/ and the recipe's name.
        searching: where questions are searched.
        bank: a step bank to replay in place of calling the models.
        claim: ends the run as soon as it is settled.
        resume: whether a folder with rows is continued; otherwise it is refused.

    Raises:
        BadInputError: something in the recipe or in the options can't work.
    """
    searching.check()
    if bank is not None and claim is not None:
        raise BadInputError(
            "--until-certified certifies searches, and --bank replays them: leave one of them out"
        )
    folder = pathlib.Path("runs") / recipe.name if folder is None else folder
    results = folder / RESULTS
    # A start that failed leaves an empty file.
    if not resume and results.exists() and results.stat().st_size > 0:
        raise BadInputError(f"{str(folder)!r} has results already: choose another --output")
    if searching.ray is not None:
        if bank is not None:
            raise BadInputError("--bank asks no model: give it without --ray")
        check_cluster(searching.ray)  # before models are downloaded and their weights are hashed
    if bank is None:
        fetch_models((recipe.policy, *recipe.prms))
    evaluation = prepare(recipe, models)
    if claim is not None:
        evaluation = ended_by(claim, evaluation, folder)
    grader, times = default_grader(recipe.questions), WallTimes()
    runner: CellRunner | None = None
    if bank is not None:
        evaluation, runner = replayed(evaluation, bank)
    elif searching.ray is None:
        runner = LocalRunner(evaluation.recipe, evaluation.cells, models, grader, times, folder)
        # Checked before the folder is made, because corrected settings would be those of another
        # run. A run that resumes may not need the models any more.
        if not folder.exists():
            runner.check_models()
    return RunPlan(evaluation, models, folder, grader, searching, runner, times, claim)
