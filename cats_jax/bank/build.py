"""Collecting a step bank: the questions of a recipe, block by block, into a folder.

If the recipe's allocation reads scores, the policy and all PRMs are loaded together, and the trees
are scored while they grow. Otherwise the policy grows all trees alone, and then one PRM after
another scores them, so that only one model is in memory at a time.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import world
from ..datasets import QuestionSet, load_questions
from ..errors import BadInputError
from ..grading.graders import default_grader
from ..models.backend import check_there
from ..models.footprint import Work
from ..models.readable import check_readable
from ..models.resolve import check_gpu_shares, resolve_models
from ..models.source import (
    ModelSource,
    check_models,
    check_reads_steps,
    check_scores_steps,
    is_world_policy,
    thought_tokens,
)
from ..protocols import AnswerGrader, Question, StepScorer, warn_note
from ..specs.recipe import PolicySpec, PrmSpec, QuestionSpec
from ..storage.manifest import make_manifest
from ..storage.table_folder import locked
from .grow import grow
from .recipe import BankRecipe
from .score import score_column
from .store import (
    AFTERWARDS,
    KIND,
    WHILE_GROWING,
    known_sparsity,
    missing_blocks,
    missing_columns,
    read_block,
    write_block,
    write_column,
    write_sparsity,
)

BLOCK_SIZE = 20
"""Number of questions collected together. A killed process loses at most one block's work."""


def collect_bank(
    recipe: BankRecipe,
    models: ModelSource,
    folder: str | pathlib.Path,
    *,
    grader: AnswerGrader | None = None,
    block_size: int = BLOCK_SIZE,
    report: Callable[[float, int], None] = lambda done, total: None,
) -> pathlib.Path:
    """Collect the missing blocks and the missing columns of scores of a bank.

    A question's tree depends on the question and the recipe only, so a killed and restarted
    collection has the same rows. A bank that the policy grew alone can be continued by a recipe
    with more PRMs at the end of its list: each adds its column of scores.

    Args:
        recipe: recipe of the bank.
        models: source of the recipe's models.
        folder: folder of the bank, created if it does not exist.
        grader: decides whether two answers are equal; default: that of `cats-jax evaluate`.
        block_size: questions per block.
        report: called with the numbers of finished parts and of all parts of the work. A part is a
            question whose tree is grown, or that one PRM scores afterwards. Within a block the
            finished part is an estimate.

    Raises:
        BadInputError: something in the recipe can't work, or the folder holds another bank.
        RunStoppedError: the folder can't be written any more.
    """
    folder = pathlib.Path(folder)
    planned = plan_bank(recipe, models, block_size)
    extend = functools.partial(_with_added_prms, folder, new=planned.manifest)
    with locked(folder, planned.manifest, KIND, extend):
        _Collection(planned, models, folder, report).finish(grader)
    return folder


@dataclass(frozen=True)
class PlannedBank:
    """What a bank will contain, before any model is loaded.

    Attributes:
        recipe: recipe with the settings of its models as they will be used.
        known: question set of the recipe.
        blocks: its questions in blocks.
        manifest: manifest of the folder.
    """

    recipe: BankRecipe
    known: QuestionSet
    blocks: Sequence[Sequence[Question]]
    manifest: dict[str, Any]


def plan_bank(recipe: BankRecipe, models: ModelSource, block_size: int) -> PlannedBank:
    """Read the questions of a recipe and resolve its models; arguments as in `collect_bank`."""
    known = load_questions(recipe.questions)
    check_readable(models, recipe.policy, recipe.questions, known.questions)
    policy, prms = resolve_models(recipe.policy, recipe.prms, known.questions, recipe.max_depth)
    if recipe.allocation.reads_scores:
        check_gpu_shares(policy, prms)
    recipe = dataclasses.replace(recipe, policy=policy, prms=prms)
    manifest = make_manifest(
        config=recipe.as_config(),
        models=fingerprints(models, recipe.policy, recipe.prms),
        questions=known.fingerprint(),
        seeds=(recipe.seed,),
        notes=known.notes,
    )
    manifest |= {
        **KIND.stamp(),
        "world": world_version(recipe.policy, recipe.questions),
        "block_size": block_size,
        "scored": WHILE_GROWING if recipe.allocation.reads_scores else AFTERWARDS,
    }
    blocks = tuple(
        known.questions[start : start + block_size]
        for start in range(0, len(known.questions), block_size)
    )
    return PlannedBank(recipe, known, blocks, manifest)


def _with_added_prms(
    folder: pathlib.Path, old: dict[str, Any], new: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest `old` of a bank, as if the bank began with the PRMs that `new` adds to the end.

    Raises:
        BadInputError: `new` lacks a PRM of `old` or has them in another order, or PRMs can't be
            added because their scores decide what is drawn.
    """
    config, models = json.loads(json.dumps([new["config"], new["models"]]))
    before, after = ([spec["label"] for spec in each["prms"]] for each in (old["config"], config))
    if before == after:
        return old
    has = (
        f"step bank {str(folder)!r} has the PRMs {', '.join(before)}, the recipe {', '.join(after)}"
    )
    if old["scored"] == WHILE_GROWING:
        raise BadInputError(
            f"{has}: its PRMs decided what is drawn (revisits_per_prm, root_draws_per_prm), so "
            "they must stay the same; choose another output folder"
        )
    if after[: len(before)] != before:
        raise BadInputError(
            f"{has}: a recipe may add PRMs to the end of the list, but not leave one out or move "
            "it; list the bank's PRMs first, or choose another output folder"
        )
    added = config["prms"][len(before) :]
    names = [f"prm {spec['label']}" for spec in added]
    return {
        **old,
        "config": {**old["config"], "prms": [*old["config"]["prms"], *added]},
        "models": {**old["models"], **{name: models[name] for name in names}},
    }


@dataclass(frozen=True)
class _Collection:
    """A bank that is being collected into its folder, which is locked."""

    planned: PlannedBank
    models: ModelSource
    folder: pathlib.Path
    report: Callable[[float, int], None]

    @property
    def recipe(self) -> BankRecipe:
        return self.planned.recipe

    @property
    def blocks(self) -> Sequence[Sequence[Question]]:
        return self.planned.blocks

    def finish(self, grader: AnswerGrader | None) -> None:
        """Collect what is missing, with one model in memory where the allocation allows it."""
        self._report()
        check_scores_steps(self.recipe.prms, "a step bank")
        if self.recipe.allocation.reads_scores:
            self._grow(grader, self.recipe.prms)
            return
        self._grow(grader, ())
        _release_models()
        for column, spec in enumerate(self.recipe.prms):
            self._score(column, spec)
            _release_models()

    def _grow(self, grader: AnswerGrader | None, prms: Sequence[PrmSpec]) -> None:
        """Grow the trees of the missing blocks, with the scores of some PRMs."""
        missing = missing_blocks(self.folder, len(self.blocks))
        if not missing and self._knows_sparsity(prms):
            return
        if grader is None:
            grader = default_grader(self.recipe.questions)
        check_there((self.recipe.policy, *prms))
        check_models(self.models, self.recipe.policy, prms, self._work())
        for spec in self.recipe.prms:  # also those that score after all trees are grown
            self.models.check(spec)
        policy = self.models.policy(self.recipe.policy)
        for question in self.planned.known.questions:
            policy.check_question(question)
        loaded = {spec.label: self._load(spec) for spec in prms}
        for number in missing:
            trees = grow(
                self.blocks[number],
                self.planned.known,
                policy,
                loaded,
                grader,
                self.recipe.allocation,
                max_depth=self.recipe.max_depth,
                seed=self.recipe.seed,
                report=self._reporter(number),
            )
            write_block(self.folder, number, trees)
            self._report()
        for model in (policy, *loaded.values()):
            warn_note(model)

    def _score(self, column: int, spec: PrmSpec) -> None:
        """Add the missing blocks of one PRM's column of scores to trees that are grown."""
        missing = missing_columns(self.folder, column, len(self.blocks))
        if not missing and self._knows_sparsity([spec]):
            return
        check_there([spec])
        check_models(self.models, None, [spec], self._work())
        prm = self._load(spec)
        for number in missing:
            trees = read_block(self.folder, number)
            scored = score_column(
                list(zip(self.blocks[number], trees, strict=True)), prm, self._reporter(number)
            )
            write_column(self.folder, column, number, scored)
            self._report()
        warn_note(prm)

    def _load(self, spec: PrmSpec) -> StepScorer:
        prm = self.models.prm(spec)
        check_reads_steps(prm, spec.label, "a bank")
        sparsity = (prm.sparsity_total, prm.sparsity_last_layer)
        write_sparsity(self.folder, {**known_sparsity(self.folder), spec.label: sparsity})
        return prm

    def _work(self) -> Work:
        return largest_work(self.recipe, max(map(len, self.blocks)))

    def _knows_sparsity(self, prms: Sequence[PrmSpec]) -> bool:
        return {spec.label for spec in prms} <= set(known_sparsity(self.folder))

    def _reporter(self, number: int) -> Callable[[float], None]:
        """A reporter of a block's finished share; a whole block counts once it is written."""
        done, total = self._finished()
        size = 0.99 * len(self.blocks[number])
        return lambda share: self.report(done + share * size, total)

    def _report(self) -> None:
        self.report(*self._finished())

    def _finished(self) -> tuple[int, int]:
        """Number of finished parts of the work, by the files in the folder, and of all parts."""
        parts = [missing_blocks(self.folder, len(self.blocks))]
        if not self.recipe.allocation.reads_scores:
            for column in range(len(self.recipe.prms)):
                parts.append(missing_columns(self.folder, column, len(self.blocks)))
        left = sum(len(self.blocks[number]) for missing in parts for number in missing)
        total = len(parts) * len(self.planned.known.questions)
        return total - left, total


def largest_work(recipe: BankRecipe, questions: int) -> Work:
    """A collection's concurrent work, for blocks of so many questions, without revisits."""
    policy = recipe.policy
    return Work(
        questions=questions,
        paths=sum(draws.root_draws for draws in recipe.allocation.draws),
        steps=recipe.max_depth,
        step_tokens=policy.max_step_tokens,
        answer_tokens=policy.max_answer_tokens,
        thought_tokens=thought_tokens(policy),
    )


def _release_models() -> None:
    """Return the memory of models that are no longer used to their devices."""
    gc.collect()  # also frees models in reference cycles, and ends their engines
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()  # the next model's engine measures the device's free memory


def fingerprints(
    models: ModelSource, policy: PolicySpec, prms: tuple[PrmSpec, ...]
) -> dict[str, Any]:
    """Fingerprints of a bank's models, by "policy" or "prm LABEL"."""
    of_prms = {f"prm {spec.label}": models.fingerprint(spec) for spec in prms}
    return {"policy": models.fingerprint(policy), **of_prms}


def world_version(policy: PolicySpec, questions: tuple[QuestionSpec, ...]) -> str | None:
    """Digest of the embedded world's figures; None if neither policy nor questions are from it."""
    if not is_world_policy(policy) and all(spec.world is None for spec in questions):
        return None
    try:
        figures = (world.ASSETS / "world.json").read_bytes()
    except OSError as error:
        raise BadInputError(
            "the embedded world's figures are missing; reinstall the package, or make them in the "
            "repository with: python -m studies.world.models.build"
        ) from error
    return hashlib.sha256(figures).hexdigest()[:16]
