"""`cats-jax rescore`: other scores, votes or grades on a run's saved trees, without sampling."""

from __future__ import annotations

import os
import pathlib
from typing import Annotated, Literal

import tyro

from ..errors import BadInputError
from .model_options import ModelOptions


def rescore(
    run: tyro.conf.Positional[pathlib.Path],
    *,
    output: pathlib.Path | None = None,
    path_score: Literal["min", "last", "mean", "product"] | None = None,
    vote: Literal["best", "weighted", "majority"] | None = None,
    prm: str | None = None,
    prm_format: str = "auto",
    prm_adapter: str | None = None,
    prm_head: str | None = None,
    prm_label: str = "",
    loading: tyro.conf.OmitArgPrefixes[ModelOptions],
    grader: Annotated[Literal["math", "integer"] | None, tyro.conf.arg()] = None,
    functions: bool = False,
) -> int:
    """Show a run as it would have been with other scores, another vote or another grader.

    Nothing is sampled. Rows whose search would have proceeded differently are left out, with the
    reason.

    Args:
        run: run folder, with trees.
        output: new run folder; default: the old one's name and "-rescored".
        path_score: aggregation of step scores.
        vote: how the answer is chosen among the finished paths.
        prm: score every path with this PRM: a folder, a name of the embedded world, "confidence"
            (the policy's own), or "chat-judge" (the model --served-name of the endpoint --backend).
        prm_format: format in which that PRM reads a solution.
        prm_adapter: folder of a LoRA adapter, merged into that PRM's weights.
        prm_head: file of a linear head, in place of the format's read-out.
        prm_label: that PRM's name in tables; default: the folder's. PRMs of one run need different
            names.
        loading: how that PRM is loaded.
        grader: "math" for LaTeX, "integer" for integers in a box; default: as in the run.
        functions: also rescore strategies that the run names as module:function, by running their
            code.
    """
    from ..evaluation import rescore as rescoring
    from ..grading.graders import make_grader, recorded_grader
    from ..models.footprint import Work
    from ..models.hub import fetch_models
    from ..models.source import ModelFolders, check_models, check_scores_steps
    from ..reporting.run_report import show_run
    from ..runs.folder import read_run
    from ..specs.recipe import PrmSpec
    from .terminal import make_console

    if path_score is vote is prm is grader is None:
        raise BadInputError("rescore: say what to change: --path-score, --vote, --prm or --grader")
    given = {"format": prm_format != "auto", "adapter": prm_adapter, "head": prm_head}
    options = [f"--prm-{name}" for name, value in {**given, "label": prm_label}.items() if value]
    if prm is None and (unread := [*options, *loading.given()]):
        raise BadInputError(f"{unread[0]}: is for the PRM that scores the paths: give --prm, too")
    old = read_run(run)
    scores_by = None
    if prm is not None:
        scores_by = PrmSpec(
            path=prm,
            format=prm_format,
            adapter=prm_adapter,
            head=prm_head,
            label=prm_label,
            **loading.settings(),
        )
    change = rescoring.Change(path_score, vote, scores_by)
    run = pathlib.Path(os.path.abspath(run))  # `.` has no name
    folder = run.with_name(f"{run.name}-rescored") if output is None else output
    # Before the PRM is downloaded.
    rescoring.rescorable_rows(old, folder, change, functions=functions)
    name = grader or recorded_grader(old.manifest["config"])
    models = ModelFolders()
    if scores_by is not None:
        fetch_models([scores_by])
        check_scores_steps([scores_by], "rescoring")
        check_models(models, None, [scores_by], Work())
    console = make_console()
    rescored = rescoring.rescore(
        old,
        folder,
        change,
        make_grader(name),
        models=models,
        grader_name=name,
        functions=functions,
    )
    show_run(console, rescored.run)
    for label, reason in rescored.left_out.items():
        console.print(f"left out: {label} ({reason})", markup=False, soft_wrap=True)
    console.print(f"run folder: {folder}", markup=False, soft_wrap=True)
    return 0
