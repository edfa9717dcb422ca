"""Runs from Python: evaluate a recipe, or read a run folder."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import BadInputError, quoted
from ..models.source import ModelFolders, ModelSource
from ..reporting.run_report import write_overview
from ..runs.folder import read_run
from ..specs.functions import function_lines
from ..specs.recipe import path_of
from .planning import plan_run
from .ray_options import RayOptions
from .recipes import Changes, read_recipe
from .results import Run
from .running import run_plan


def evaluate(
    recipe: str | os.PathLike[str] | Mapping[str, Any],
    out: str | os.PathLike[str] | None = None,
    *,
    strategies: Iterable[str] | None = None,
    num_candidates: Iterable[int] | None = None,
    prms: Iterable[str] | None = None,
    seeds: Iterable[int] | None = None,
    questions: int | None = None,
    in_flight: int | None = None,
    bank: str | os.PathLike[str] | None = None,
    ray: str | None = None,
    ray_workers: int | None = None,
    resume: bool = True,
    keep_going: bool = False,
    functions: bool = True,
    models: ModelSource | None = None,
) -> Run:
    """Search all questions of a recipe that have no row yet, as `cats-jax evaluate` does.

    The same call resumes a run that was interrupted. It writes rows, trees, a summary, figures and
    curves to the run folder. It prints only the progress of downloads.

    Args:
        recipe: path of a YAML file, or a mapping with the same content, which needs a `name`.
        out: run folder; default: runs/ and the recipe's name.
        strategies: labels of the recipe's strategies to run; default: all.
        num_candidates: values of N, in place of the recipe's.
        prms: labels of the recipe's PRMs to use; default: all.
        seeds: run seeds, in place of the recipe's.
        questions: number of questions of each data set, in place of the recipe's count.
        in_flight: number of questions searched at once, which does not affect results.
        bank: folder of a step bank to replay in place of calling the models.
        ray: address of a Ray cluster to search on, or "local" for one on this machine.
        ray_workers: workers on the cluster; default: one for each GPU or core.
        resume: whether a folder with rows is continued; otherwise it is refused.
        keep_going: whether a run continues in which every search failed, 20 for one reason.
        functions: whether the code of functions that the recipe names as module:function is run.
        models: source of the models; default: folders, ids on the hub and the embedded world.

    Raises:
        BadInputError: something in the recipe or the arguments can't work, or the folder belongs to
            another run; raised before models are loaded where that is possible.
        RunStoppedError: the folder can't be written any more, or every search failed, 20 for one
            reason; what was written stays.
    """
    changes = Changes(
        strategies=_listed("strategies", strategies),
        num_candidates=_listed("num_candidates", num_candidates),
        prms=_listed("prms", prms),
        seeds=_listed("seeds", seeds),
        questions=_plain(questions),
        in_flight=_plain(in_flight),
    )
    _check_source(models)
    loaded = read_recipe(recipe, changes)
    function_lines(loaded.strategies, loaded.policy, loaded.prms, allowed=functions)
    plan = plan_run(
        loaded,
        ModelFolders() if models is None else models,
        None if out is None else path_of(out, "out"),
        searching=RayOptions(ray, ray_workers),
        bank=None if bank is None else path_of(bank, "bank"),
        resume=resume,
    )
    run, _ = run_plan(plan, keep_going=keep_going)
    write_overview(run)
    return Run(run)


def load_run(folder: str | os.PathLike[str]) -> Run:
    """The results in a run folder, whether finished, interrupted or in use; it is not changed.

    Raises:
        BadInputError: not a path or not a run folder, another schema, or a damaged row, named by
            line.
    """
    return Run(read_run(path_of(folder, "folder")))


def _listed(name: str, values: Any) -> tuple[Any, ...] | None:
    """An argument with several values as a tuple; a text or a number is one value."""
    if values is None:
        return None
    if isinstance(values, str | numbers.Integral):
        return (_plain(values),)
    if not isinstance(values, Iterable):
        raise BadInputError(f"{name}={quoted(values)}: must be a list of values")
    return tuple(map(_plain, values))


def _plain(value: Any) -> Any:
    """An integer of another type, such as numpy's, as an `int`; other values as they are."""
    is_other = isinstance(value, numbers.Integral) and not isinstance(value, int)
    return int(value) if is_other else value


def _check_source(models: Any) -> None:
    methods = [name for name in vars(ModelSource) if not name.startswith("_")]
    if models is not None and not all(hasattr(models, name) for name in methods):
        raise BadInputError(
            f"models={quoted(models)}: must be an object with the methods {', '.join(methods)}; "
            "the recipe names the paths of models"
        )
