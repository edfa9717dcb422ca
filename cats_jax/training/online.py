"""On-line training: the learner with a real policy and real PRMs, as in Algorithm 1.

Every iteration searches questions with sampled actions and makes one update from all decisions, by
`learners.make_update_fns`, as trainings in the graph. The training is saved after every iteration.
A killed training resumes with the iteration that was in progress.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import learners
from learners.episodes import Played, episodes_of

from ..bank.build import fingerprints
from ..controllers import checkpoint
from ..datasets import QuestionSet, load_questions
from ..datasets.digests import text_digest
from ..errors import BadInputError, known_names
from ..evaluation.cells import check_log_probs
from ..evaluation.evaluate import check_grading
from ..grading.graders import default_grader
from ..models.backend import check_there
from ..models.hub import fetch_models
from ..models.readable import check_readable
from ..models.resolve import check_gpu_shares, resolve_models
from ..models.source import ModelSource, check_reads_steps, check_scores_steps
from ..protocols import AnswerGrader, warn_note
from ..specs.calibrations import CalibrationValues, calibration_of
from ..specs.functions import function_lines
from ..specs.recipe import Recipe, load_recipe, without_free_settings
from ..storage.manifest import make_manifest
from ..storage.table_folder import FolderKind, locked
from .learning_curves import plot_learning_curves
from .online_searches import CalibratedPrm, IterationSearches, Models, OnlineSearches, question_at
from .online_state import STATE, TrainingProgress

KIND = FolderKind("on-line training", format=1, command="cats-jax train --online", results=STATE)

CONTROLLER = "seed-0"
"""Folder of the controller, named as by a training in the graph."""

_DRAWING_INTERVAL = 60.0
"""Seconds from one drawing of the curves to the next; a drawing takes about one second."""


def train_online(
    path: str | pathlib.Path,
    config: learners.TrainConfig,
    models: ModelSource,
    output: pathlib.Path,
    *,
    prms: tuple[str, ...] | None = None,
    seed: int = 0,
    start: checkpoint.Checkpoint | None = None,
    grader: AnswerGrader | None = None,
    functions: bool = True,
    report: Callable[[str], None] = print,
) -> pathlib.Path:
    """Train one controller, or resume its training; write `output/seed-0` at the end.

    Args:
        path: recipe as for `cats-jax evaluate`; its strategies, values of N and seeds are ignored.
        config: training configuration; its `max_depth` is replaced by that of the recipe.
        models: source of the recipe's models.
        prms: labels of the PRMs to train with; default: all of the recipe's.
        start: controller whose networks the training starts with; default: random ones.
        grader: grader of the answers; default: that of `cats-jax evaluate`.
        functions: whether the recipe may name functions, whose code then runs.
        report: called with lines of progress, first with one for each function and its file.

    Returns:
        The checkpoint of the controller.

    Raises:
        BadInputError: the recipe and the configuration can't work together, the controller to start
            from has other networks, or the folder holds other data.
        RunStoppedError: all searches of an iteration failed, or the folder can't be written.
    """
    checkpoint.check_start(start, config)
    recipe = _recipe(path, prms)
    for line in function_lines((), recipe.policy, recipe.prms, allowed=functions):
        report(line)
    config = dataclasses.replace(config, max_depth=recipe.max_depth)
    strategy = learners.make_update_fns(config).strategy
    calibrations = {
        spec.label: calibration_of(
            spec.label, recipe.calibration, required=strategy.needs_calibration
        )
        for spec in recipe.prms
    }
    for calibration in calibrations.values():
        check_log_probs("the controller", strategy, calibration, recipe.policy)
    check_grading(recipe.questions)
    questions = load_questions(recipe.questions)
    check_readable(models, recipe.policy, recipe.questions, questions.questions)
    fetch_models((recipe.policy, *recipe.prms))
    check_scores_steps(recipe.prms, "a training")
    policy, specs = resolve_models(
        recipe.policy, recipe.prms, questions.questions, recipe.max_depth
    )
    recipe = dataclasses.replace(recipe, policy=policy, prms=specs)
    manifest = _manifest(recipe, config, calibrations, models, questions, seed, start)
    controller = output / CONTROLLER
    with locked(output, manifest, KIND):
        if (controller / checkpoint.JSON_NAME).exists():
            report(f"{output} holds the finished training already: nothing is left to do")
            return controller
        state, keys = learners.make_update_fns(config).init(jax.random.key(seed))
        progress = TrainingProgress(output, checkpoint.started_from(state, start))
        if progress.iteration < config.num_iterations:
            searches = _searches(recipe, config, models, grader, calibrations, questions, seed)
            _iterate(config, searches, progress, keys, output, report)
            for model in (searches.models.policy, *(prm.scorer for prm in searches.models.prms)):
                warn_note(model)
        collapsed = bool(learners.has_collapsed(progress.curves().top_action))
        _plot(progress, output)
        info = {
            **_info(config, questions, calibrations, seed, collapsed),
            "models": dict(manifest["models"]),
        }
        info = checkpoint.with_questions_of(info, start)
        checkpoint.save(controller, progress.state, config, info=info)
    report(f"checkpoint: {controller}" + (", COLLAPSED in training" if collapsed else ""))
    return controller


def _iterate(
    config: learners.TrainConfig,
    searches: OnlineSearches,
    progress: TrainingProgress,
    keys: jax.Array,
    output: pathlib.Path,
    report: Callable[[str], None],
) -> None:
    """Run the remaining iterations."""
    updates = learners.make_update_fns(config)
    draw, learn = jax.jit(updates.draw), _learner(config, updates)
    total = config.num_iterations
    if progress.iteration:
        report(f"going on after iteration {progress.iteration} of {total}")
    progress.resume()
    drawn = time.monotonic()
    while progress.iteration < total:
        index, started = progress.iteration, time.perf_counter()
        update_key, draws = draw(keys[index])
        found = searches.search(progress.state.actor, index, draws)
        state, row = learn(progress.state, found.played, jnp.int32(index), update_key)
        if not checkpoint.is_finite((state.actor, state.critic)):
            raise BadInputError(f"iteration {index}: {checkpoint.DIVERGED}")
        line = _line(index, row, found, time.perf_counter() - started)
        progress.add(state, line)
        report(_text(line, total, found.reason))
        if time.monotonic() - drawn >= _DRAWING_INTERVAL:
            _plot(progress, output)
            drawn = time.monotonic()


def _learner(config: learners.TrainConfig, updates: learners.UpdateFns) -> Callable[..., Any]:
    """`updates.learn`, compiled, for searches given as `Played`."""
    finish = functools.partial(
        episodes_of, terminal_weight=config.terminal_weight, num_actions=len(config.cats.actions)
    )

    @jax.jit
    def learn(
        state: learners.LearnerState, played: list[Played], index: jax.Array, key: jax.Array
    ) -> tuple[learners.LearnerState, learners.Curves]:
        return updates.learn(state, [finish(each) for each in played], index, key)

    return learn


def _recipe(path: str | pathlib.Path, prms: tuple[str, ...] | None) -> Recipe:
    """The recipe with the PRMs of the training.

    Raises:
        BadInputError: the recipe is wrong, has limits that cut searches, or has no such PRM.
    """
    recipe = load_recipe(path)
    for name in ("budget", "max_tokens", "max_seconds"):
        if getattr(recipe, name) is not None:
            raise BadInputError(
                f"recipe {str(path)!r}: {name} cuts searches short, and a controller learns from "
                f"whole ones: remove {name}"
            )
    chosen = recipe.prms
    if prms is not None:
        known = {spec.label: spec for spec in recipe.prms}
        for label in prms:
            if label not in known:
                hint = known_names(label, sorted(known))
                raise BadInputError(f"recipe {str(path)!r} has no PRM {label!r}: {hint}")
        chosen = tuple(known[label] for label in dict.fromkeys(prms))
    if not chosen:
        raise BadInputError(f"recipe {str(path)!r}: CATS reads PRM scores: add 'prms'")
    return dataclasses.replace(recipe, prms=chosen)


def _manifest(
    recipe: Recipe,
    config: learners.TrainConfig,
    calibrations: Mapping[str, Any],
    models: ModelSource,
    questions: QuestionSet,
    seed: int,
    start: checkpoint.Checkpoint | None,
) -> dict[str, Any]:
    """The manifest of the folder, which a resumed training must repeat."""
    settings = {
        **without_free_settings(
            {
                "policy": dataclasses.asdict(recipe.policy),
                "prms": [dataclasses.asdict(spec) for spec in recipe.prms],
            }
        ),
        "calibration": dict(calibrations),
        "train_config": checkpoint.config_document(config),
        "seed": seed,
    }
    if start is not None:
        settings["start"] = checkpoint.digest(start)
    manifest = make_manifest(
        config=settings,
        models=fingerprints(models, recipe.policy, recipe.prms),
        questions=questions.fingerprint(),
        seeds=(seed,),
    )
    return {**manifest, **KIND.stamp()}


def _searches(
    recipe: Recipe,
    config: learners.TrainConfig,
    models: ModelSource,
    grader: AnswerGrader | None,
    calibrations: Mapping[str, CalibrationValues],
    questions: QuestionSet,
    seed: int,
) -> OnlineSearches:
    """Searches with the recipe's models, which are checked and loaded here."""
    specs = (recipe.policy, *recipe.prms)
    check_there(specs)
    check_gpu_shares(recipe.policy, recipe.prms)
    for spec in specs:
        models.check(spec)
    policy = models.policy(recipe.policy)
    scorers = {spec.label: models.prm(spec) for spec in recipe.prms}
    for label, scorer in scorers.items():
        check_reads_steps(scorer, label, "a training")
    prms = [CalibratedPrm(scorer, calibrations[label]) for label, scorer in scorers.items()]
    for question in questions.questions:
        policy.check_question(question)
    grader = default_grader(recipe.questions) if grader is None else grader
    loaded = Models(policy, tuple(prms), grader)
    return OnlineSearches(config, questions, loaded, seed=seed, in_flight=recipe.in_flight)


def _info(
    config: learners.TrainConfig,
    questions: QuestionSet,
    calibrations: Mapping[str, CalibrationValues],
    seed: int,
    collapsed: bool,
) -> dict[str, Any]:
    """The checkpoint's entries on the training, but for the models."""
    return {
        **_questions_info(config, questions, seed),
        "prms": list(calibrations),
        "calibration": {label: list(values) for label, values in calibrations.items()},
        "seed": seed,
        "index": 0,
        "collapsed": collapsed,
        "collapse": {"in_training": collapsed},
        "prices": list(config.prices),
        "num_candidates": list(config.num_candidates),
    }


def _questions_info(
    config: learners.TrainConfig, questions: QuestionSet, seed: int
) -> dict[str, Any]:
    """The checkpoint's entries on the questions that were searched."""
    per_iteration = sum(batch.num_questions for batch in learners.make_update_fns(config).batches)
    number, size = config.num_iterations * per_iteration, len(questions.questions)
    # After one epoch all questions were searched.
    rows = sorted({question_at(place, size, seed) for place in range(min(number, size))})
    asked = [questions.questions[row] for row in rows]
    return {
        "source": "on-line, searches of a policy and PRMs",
        "questions": [question.id for question in asked],
        "texts": [text_digest(question.text) for question in asked],
        "episodes": number * config.searches_per_question,
    }


def _line(
    index: int, row: learners.Curves, found: IterationSearches, seconds: float
) -> dict[str, Any]:
    """The line of an iteration in `curves.jsonl`."""
    values = {
        field.name: np.asarray(getattr(row, field.name)).item()
        for field in dataclasses.fields(learners.Curves)
    }
    return {
        "iteration": index,
        **values,
        "searches": found.num_searches,
        "failed": found.num_failed,
        "seconds": round(seconds, 3),
    }


def _text(line: Mapping[str, Any], total: int, reason: str) -> str:
    failed = f"; {line['failed']} searches failed, such as: {reason}" if line["failed"] else ""
    return (
        f"iteration {line['iteration'] + 1} of {total}: accuracy {line['accuracy']:.3f} with "
        f"{line['candidates']:.1f} candidates, reward {line['reward']:.3f}, entropy "
        f"{line['entropy']:.2f} nats, {line['seconds']:.1f} s{failed}"
    )


def _plot(progress: TrainingProgress, output: pathlib.Path) -> None:
    curves = jax.tree.map(lambda leaf: leaf[None], progress.curves())
    plot_learning_curves(
        curves, output / "curves.png", f"on-line: {len(progress.lines)} iterations"
    )
