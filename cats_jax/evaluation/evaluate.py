"""Batch evaluation: every cell of a recipe's grid, resumable, graded apart from the search.

A search receives `Question`s only. Gold answers enter in `RowRecorder`, after a search has ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import pathlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..controllers.strategies import (
    MissingControllerError,
    build_strategy,
    controller_of,
    foreign_models,
    revisions_of,
)
from ..datasets import QuestionSet, load_questions
from ..datasets.digests import text_digest
from ..errors import BadInputError
from ..grading.graders import default_grader, needs_math
from ..models.digests import folder_digest
from ..models.footprint import MARK_TOKENS, PROMPT_TOKENS
from ..models.readable import check_readable
from ..models.source import ModelSource, described_format, thought_tokens
from ..protocols import AnswerGrader
from ..runs.folder import PATHS, RunFolder, RunWriter, read_run
from ..specs.functions import AT_ENDPOINTS, is_function_name
from ..specs.models import ModelSpec, PolicySpec
from ..specs.recipe import QuestionSpec, Recipe, StrategySpec
from ..storage.manifest import make_manifest
from .asked import asked_of
from .cells import (
    Cell,
    asked_prompts,
    check_outcome_models,
    grid,
    prompts_of,
    resolved_cells,
    resolved_recipe,
)
from .failing import FailureWatch
from .guarantees import with_guarantees
from .recording import Observer, RowRecorder
from .runners import CellRunner, LocalRunner
from .until_certified import UntilCertified
from .wall_times import WallTimes


@dataclass(frozen=True)
class Evaluation:
    """A checked recipe, ready to run. Only loading the models can still raise BadInputError.

    Attributes:
        recipe: the recipe, its models resolved for this machine, see `models.resolve`.
        questions: the question set.
        cells: the cells of the grid, in order of running.
        manifest: manifest of the run folder.
        notes: messages to the user that are not errors, one line each.
        guarantees: for each strategy of a certificate, its guarantee or why it has none, one line
            each; the notes of the manifest also have them.
    """

    recipe: Recipe
    questions: QuestionSet
    cells: tuple[Cell, ...]
    manifest: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    guarantees: tuple[str, ...] = ()


def cost_bounds(
    recipe: Recipe, cells: Sequence[Cell], num_questions: int
) -> list[tuple[Cell, int, int, int, int]]:
    """The largest cost of each cell.

    A PRM on transformers computes each distinct step and each prompt once. Its tokens are at most
    the tokens of all candidates, `MARK_TOKENS` per candidate for the format's marks, and
    `PROMPT_TOKENS` per question for the prompt. Tokens are counted in the policy's vocabulary; a
    PRM with another vocabulary needs somewhat more or fewer. The bound leaves out the tokens that
    vLLM computes again: those that its prefix cache dropped, and those after the last full block.

    Returns:
        (cell, rows, candidates, sampled tokens, PRM tokens) of each cell. PRM tokens are 0 for a
        strategy that reads no scores, and for the policy's own confidence.
    """
    table = []
    for cell in cells:
        rewriting = cell.prompts.rewriting
        # Each candidate of a method that rewrites answers is a whole answer, one of N.
        per_step, depth = cell.num_candidates, recipe.max_depth if rewriting is None else 1
        candidates = per_step * depth
        # The last step's samples run to the end of the answer.
        last = per_step
        if recipe.budget is not None:
            candidates = min(candidates, recipe.budget)
            last = min(last, candidates)
        policy = recipe.policy
        longest = max(policy.max_step_tokens, policy.max_answer_tokens)
        tokens = (candidates - last) * _most_tokens(cell, policy) + last * longest
        tokens += candidates * thought_tokens(policy)
        is_read = cell.prm is not None and not cell.prm.is_confidence
        scored = PROMPT_TOKENS + tokens + MARK_TOKENS * candidates if is_read else 0
        if policy.examples is not None:
            tokens *= 2  # a step with an example has a first try
        if rewriting is not None and rewriting.critique:
            tokens *= 2  # an answer may have a critique, which no PRM reads
        if cell.strategy.comparison is not None and cell.strategy.comparison.judge == "policy":
            # A reply is at most as long as an answer, with the thought before it.
            prompts = cell.strategy.comparison.most_prompts(cell.strategy.width(per_step))
            tokens += prompts * (longest + thought_tokens(policy))
        per_question = (1, candidates, tokens, scored)
        table.append((cell, *(num_questions * count for count in per_question)))
    return table


def _most_tokens(cell: Cell, policy: PolicySpec) -> int:
    """Largest number of tokens that are sampled for one step before the last."""
    if not policy.chat:
        return policy.max_step_tokens
    if cell.strategy.keeps_all_paths or cell.strategy.ignores_num_candidates:
        # A whole answer that is cut may have one whole step, and is sampled on after that.
        return max(policy.max_step_tokens, policy.max_answer_tokens)
    return 2 * policy.max_step_tokens  # a sample that stops before its step is sampled again


def with_stand_ins(recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """Replace missing controllers and users' functions, so that a recipe's cells can be counted.

    A missing controller is not trained yet. A function is code, which a dry run does not call.

    Returns:
        The recipe with a shipped strategy in place of each, and a line for each missing controller.

    Raises:
        BadInputError: a strategy is wrong in any other way.
    """
    strategies: list[StrategySpec] = []
    missing: list[str] = []
    for spec in recipe.strategies:
        if is_function_name(spec.name):
            # A function may read scores, so the bounds assume that it does if there is a PRM.
            name = "best_of_n" if recipe.prms else "majority"
            options = (("path_score", "last"),) if recipe.prms else ()  # fits outcome models, too
            strategies.append(StrategySpec(name, spec.label, options, spec.certified))
            continue
        try:
            build_strategy(spec)
        except MissingControllerError as error:
            missing.append(f"strategy {spec.label!r}: {error}")
            spec = StrategySpec("cats_random", spec.label, (), spec.certified)
        strategies.append(spec)
    return dataclasses.replace(recipe, strategies=tuple(strategies)), tuple(missing)


def prepare(
    recipe: Recipe,
    models: ModelSource,
    questions: QuestionSet | None = None,
    *,
    seen: bool = False,
) -> Evaluation:
    """Check everything that can be checked without loading a model.

    Args:
        recipe: the recipe to run.
        models: source of the recipe's models.
        questions: the question set; default: the questions that the recipe names.
        seen: whether controllers may get questions they were trained on, to collect more
            trajectories.

    Raises:
        BadInputError: something in the recipe can't work.
    """
    given, cells = recipe, grid(recipe)  # raises for a wrong recipe, before models are checked
    for spec in (recipe.policy, *recipe.prms):
        models.check(spec)  # before data sets are downloaded and weights are hashed
    check_outcome_models(cells)
    check_grading(recipe.questions)
    questions = load_questions(recipe.questions) if questions is None else questions
    check_readable(models, recipe.policy, recipe.questions, questions.questions)
    asked = asked_of(recipe)
    formats = {"policy": described_format(recipe.policy)}
    formats |= {f"prm {spec.label}": described_format(spec) for spec in recipe.prms}
    recipe = resolved_recipe(recipe, cells, questions.questions)
    fingerprints = {"policy": models.fingerprint(recipe.policy)}
    fingerprints |= {f"prm {spec.label}": models.fingerprint(spec) for spec in recipe.prms}
    wording = asked | asked_prompts(cells)
    recipe, guarantees = with_guarantees(recipe, fingerprints, wording, questions.contents)
    cells = resolved_cells(cells, given, recipe)
    notes = (*questions.notes, *foreign_models(recipe.strategies, fingerprints))
    notes += _unrepeatable(recipe)
    for spec in recipe.strategies:
        folder = controller_of(spec)
        if folder is not None:
            fingerprints[f"controller {spec.label}"] = folder_digest(folder)
            if not seen:
                notes += _check_unseen(spec.label, folder, questions)
    manifest = make_manifest(
        config=recipe.as_config(),
        models=fingerprints,
        questions=questions.fingerprint(),
        seeds=recipe.seeds,
        notes=(*notes, *guarantees),
    )
    # By the labels of the rows: a strategy without its guarantee has another label by now.
    formats |= {key: each.name for key, each in prompts_of(cells).items()}
    manifest["formats"], manifest["asked"] = formats, asked | asked_prompts(cells)
    if questions.contents:
        manifest["contents"] = dict(questions.contents)
    manifest["revisions"] = revisions_of(
        recipe.strategies, [spec.path_score for spec in recipe.prms]
    )
    manifest |= _spent(recipe, questions)
    return Evaluation(recipe, questions, cells, manifest, notes, guarantees)


def _unrepeatable(recipe: Recipe) -> tuple[str, ...]:
    """Notes that a run on chat endpoints can't be repeated; empty for other models."""
    judges = tuple(
        f"the judge {prm.label!r} at {prm.backend} may change without notice, so that this run "
        f"can't be repeated; its FLOPs are not known{_kept(prm, 'critiques')}"
        for prm in recipe.prms
        if prm.path in AT_ENDPOINTS
    )
    if not recipe.policy.chat:
        return judges
    return (
        f"the policy at {recipe.policy.backend} may ignore seeds and change without notice, so "
        f"that this run can't be repeated; token ids, log-probabilities and FLOPs of the policy "
        f"are not known{_kept(recipe.policy, 'samples')}",
        *judges,
    )


def _kept(spec: ModelSpec, what: str) -> str:
    return "" if spec.replies else f"; a file of `replies` would keep its {what}"


def _spent(recipe: Recipe, questions: QuestionSet) -> dict[str, Any]:
    """Entries of a manifest: its questions, and how many were spent on a calibration or choice."""
    texts = [text_digest(item.text) for item in questions.questions]
    return {
        "texts": texts,
        "spent": {"fitted_on": sorted(recipe.fitted_on), "chosen_on": sorted(recipe.chosen_on)},
        "fitted_on": sum(text in recipe.fitted_on for text in texts),
        "chosen_on": sum(text in recipe.chosen_on for text in texts),
    }


def check_grading(questions: Sequence[QuestionSpec]) -> None:
    """Raise BadInputError if the answers to the questions can't be graded here."""
    if needs_math(questions) and importlib.util.find_spec("math_verify") is None:
        raise BadInputError(
            "answers in LaTeX are graded by math-verify, which is not installed: "
            "pip install 'cats-jax[eval]'"
        )


def _check_unseen(label: str, controller: pathlib.Path, questions: QuestionSet) -> tuple[str, ...]:
    """Notes on a controller; BadInputError if it was trained on one of the questions."""
    # Imported here, because it imports the learners, which only a learned controller needs.
    from ..controllers.checkpoint import read_info

    info = read_info(controller)
    taught = set(info.get("texts", ()))
    known = [item for item in questions.questions if text_digest(item.text) in taught]
    if known:
        raise BadInputError(
            f"controller {label!r} was trained on {len(known)} of these questions, such as "
            f"{known[0].id!r}: evaluate it on others"
        )
    if taught or not info.get("questions"):
        return ()
    return (
        f"controller {label!r} names its training questions by id only: it may have been trained "
        "on these questions",
    )


def evaluate(
    evaluation: Evaluation,
    models: ModelSource,
    folder: str | pathlib.Path,
    *,
    grader: AnswerGrader | None = None,
    runner: CellRunner | None = None,
    **options: Any,
) -> tuple[RunFolder, WallTimes]:
    """Search and grade all questions that have no row in the run folder yet, cell by cell.

    A question's tree and row are written when the question ends. A failed question has a row and
    counts as wrong.

    Args:
        evaluation: result of `prepare`.
        models: source of the recipe's models.
        folder: the run folder, which is created or continued.
        grader: decides which answers are the same; default: `default_grader`.
        runner: searches the questions of a cell; default: `LocalRunner`, in this process.
        options: further arguments of `search_cells`.

    Returns:
        The run as read from its folder, and the times.

    Raises:
        BadInputError: the folder belongs to another run, or a model or question can't be used.
        RunStoppedError: the folder can't be written any more, or every search failed, 20 for one
            reason; what was written stays.
    """
    started = time.perf_counter()
    times = WallTimes()
    grader = default_grader(evaluation.recipe.questions) if grader is None else grader
    if runner is None:
        runner = LocalRunner(
            evaluation.recipe, evaluation.cells, models, grader, times, pathlib.Path(folder)
        )
    with RunWriter(folder, evaluation.manifest) as writer:
        search_cells(evaluation, writer, runner, times, grader=grader, **options)
    return finished(writer, times, started)


def search_cells(
    evaluation: Evaluation,
    writer: RunWriter,
    runner: CellRunner,
    times: WallTimes,
    *,
    grader: AnswerGrader,
    observers: Sequence[Observer] = (),
    keep_going: bool = False,
    until: UntilCertified | None = None,
) -> None:
    """Search and grade the questions without a row in an open run folder; see `evaluate`.

    Args:
        evaluation, writer, runner, times, grader: as there.
        observers: objects notified of each cell and row, such as progress bars.
        keep_going: whether a run in which every search fails continues, see `FailureWatch`.
        until: a claim that ends the run as soon as it is settled; the runner must return when all
            questions of a call have ended, as `LocalRunner` does.
    """
    questions = evaluation.questions
    if not keep_going:
        observers = (*observers, FailureWatch(writer.folder))
    if until is not None:
        observers = (*observers, until)
    known = {row.key: row for row in read_run(writer.folder).rows}
    if not isinstance(runner, LocalRunner):
        with contextlib.suppress(OSError):
            (writer.folder / PATHS).unlink(missing_ok=True)  # new rows may be of other samples

    def begin(cell: Cell) -> RowRecorder:
        done = [known[key] for item in questions.questions if (key := cell.key(item.id)) in known]
        for observer in observers:
            observer.begin_cell(cell.title, len(questions.questions), done)
        with_trees = evaluation.recipe.writes_trees(cell.num_candidates)
        return RowRecorder(cell, questions, grader, writer, with_trees, observers, times)

    # A claim is about all cells, which search the same batch before the next one.
    cells = evaluation.cells
    for together in [[cell] for cell in cells] if until is None else [cells]:
        recorders = [begin(cell) for cell in together]
        everything = [questions.questions]
        for part in everything if until is None else until.batches(questions.questions):
            for cell, recorder in zip(together, recorders, strict=True):
                todo = [item for item in part if cell.key(item.id) not in known]
                if todo:
                    runner.search(cell, todo, recorder)
    runner.finish(times)
    writer.complete()


def finished(writer: RunWriter, times: WallTimes, started: float) -> tuple[RunFolder, WallTimes]:
    """The run of a closed folder, and its wall times with their total since `started`."""
    times.writing = writer.seconds
    times.total = time.perf_counter() - started
    return read_run(writer.folder), times
