"""Collecting a step bank: the questions of a recipe, block by block, into a folder."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable
from typing import Any

from .. import world
from ..datasets import QuestionSet, load_questions
from ..errors import BadInputError
from ..grading.verdict import default_judge
from ..models.backend import check_there
from ..models.footprint import Work
from ..models.settle import settle
from ..models.source import ModelSource, check_memory, is_world_policy
from ..protocols import AnswerJudge
from ..specs.recipe import PolicySpec, PrmSpec, QuestionSpec
from ..storage.manifest import make_manifest
from ..storage.table_folder import locked
from .grow import grow
from .recipe import BankRecipe
from .store import KIND, has_sparsity, missing_blocks, write_block, write_sparsity

BLOCK_SIZE = 20
"""Number of questions collected together. A killed process loses at most one such block."""


def collect_bank(
    recipe: BankRecipe,
    models: ModelSource,
    folder: str | pathlib.Path,
    *,
    judge: AnswerJudge | None = None,
    block_size: int = BLOCK_SIZE,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> pathlib.Path:
    """Collect the blocks of a bank that are not in its folder yet.

    A question's tree depends on the question and the recipe only. A collection that was killed and
    started again therefore holds the same rows.

    Args:
        recipe: recipe of the bank.
        models: source of the recipe's models.
        folder: folder of the bank, created if it does not exist.
        judge: judge of whether two answers are equal; default: that of `cats-jax evaluate`.
        block_size: questions per block.
        report: called with the number of finished questions and the number of all questions.

    Raises:
        BadInputError: something in the recipe can't work, or the folder holds another bank.
        RunStoppedError: the folder can't be written any more.
    """
    folder = pathlib.Path(folder)
    known = load_questions(recipe.questions)
    policy, prms = settle(recipe.policy, recipe.prms, known.questions, recipe.max_depth)
    recipe = dataclasses.replace(recipe, policy=policy, prms=prms)
    manifest = make_manifest(
        config=recipe.as_config(),
        models=fingerprints(models, recipe.policy, recipe.prms),
        questions=known.fingerprint(),
        seeds=(recipe.seed,),
    )
    manifest |= {
        **KIND.stamp(),
        "world": world_version(recipe.policy, recipe.questions),
        "block_size": block_size,
    }
    with locked(folder, manifest, KIND):
        _collect_missing(recipe, models, folder, known, judge, block_size, report)
    return folder


def _collect_missing(
    recipe: BankRecipe,
    models: ModelSource,
    folder: pathlib.Path,
    known: QuestionSet,
    judge: AnswerJudge | None,
    block_size: int,
    report: Callable[[int, int], None],
) -> None:
    blocks = [
        known.questions[start : start + block_size]
        for start in range(0, len(known.questions), block_size)
    ]
    missing = missing_blocks(folder, len(blocks))
    done = len(known.questions) - sum(len(blocks[number]) for number in missing)
    report(done, len(known.questions))
    if not missing and has_sparsity(folder):
        return
    if judge is None:
        judge = default_judge(recipe.questions)
    check_there((recipe.policy, *recipe.prms))
    asked = recipe.policy
    work = Work(
        questions=block_size,
        paths=sum(draws.root_draws for draws in recipe.allocation.draws),
        steps=recipe.max_depth,
        step_tokens=asked.max_step_tokens,
        answer_tokens=asked.max_answer_tokens,
    )
    check_memory(models, asked, recipe.prms, work)
    policy = models.policy(asked)
    for question in known.questions:
        policy.check_question(question)
    prms = {spec.label: models.prm(spec) for spec in recipe.prms}
    write_sparsity(
        folder,
        {label: (prm.sparsity_total, prm.sparsity_last_layer) for label, prm in prms.items()},
    )
    for number in missing:
        trees = grow(
            blocks[number],
            known,
            policy,
            prms,
            judge,
            recipe.allocation,
            max_depth=recipe.max_depth,
            seed=recipe.seed,
        )
        write_block(folder, number, trees)
        done += len(trees)
        report(done, len(known.questions))


def fingerprints(
    models: ModelSource, policy: PolicySpec, prms: tuple[PrmSpec, ...]
) -> dict[str, Any]:
    """Fingerprints of a bank's models, by "policy" or "prm LABEL"."""
    found = {"policy": models.fingerprint(policy)}
    for spec in prms:
        found[f"prm {spec.label}"] = models.fingerprint(spec)
    return found


def world_version(policy: PolicySpec, questions: tuple[QuestionSpec, ...]) -> str | None:
    """Digest of the embedded world's figures; None if neither policy nor questions are from it."""
    if not is_world_policy(policy) and all(spec.world is None for spec in questions):
        return None
    try:
        figures = (world.ASSETS / "world.json").read_bytes()
    except OSError as error:
        raise BadInputError(
            "the embedded world's figures are missing; reinstall the package or make them with: "
            "python -m cats_jax.world_build.build"
        ) from error
    return hashlib.sha256(figures).hexdigest()[:16]
