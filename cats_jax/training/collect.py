"""Trajectories: every decision of searches with real models, for offline training.

A folder holds Parquet tables `decisions-00000.parquet`, ... and a manifest. A row is one decision.
The rows of one search are consecutive and in order of time. Columns:

    search          number of the search
    question        id of the question
    prm, strategy   labels; the strategy is the behaviour policy
    num_candidates  N
    seed            seed of the run
    price           price of 100 candidates, or of 1000 tokens, in right answers
    step, phase     tick of the decision; phase >= 1
    node            candidate at which the decision was taken, 0 for the question itself
    features        f32[F], with excluded ones 0, in the order of the manifest's names
    available       candidates that an action could request; it determines the legal actions
    action          row of the manifest's action table
    log_prob        log-probability of the action under the behaviour policy, nats; 0 if that is
                    deterministic
    reward          reward of section 5.2 of the paper, see `search.cats.step_reward`
    granted         candidates granted to the decision
    spent           candidates of the whole search before this tick
    remaining       candidates of the whole search from this tick on
    predecessor     row, within the search, of the previous decision on the path; -1 for none
    ends            surviving paths that had their last decision here
    correct         whether the search's final answer is right

A decision has one transition to each decision that has it as predecessor, and `ends` transitions to
an end, for one-step methods. Monte-Carlo returns need `correct`, `price` and `remaining`. The
manifest's `cats` states the settings of the searches on which features, price and reward depend.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa

import learners
import search
from learners.policy import legal_log_probs

from ..controllers.checkpoint import load, questions_of, read_info
from ..controllers.strategies import build_strategy, controller_of
from ..datasets.digests import text_digest
from ..errors import BadInputError
from ..evaluation.cells import Cell
from ..evaluation.evaluate import prepare
from ..evaluation.runners import LocalRunner
from ..evaluation.wall_times import WallTimes
from ..grading.graders import default_grader
from ..live.results import ROOT, SearchResult
from ..models.source import ModelSource
from ..protocols import AnswerGrader
from ..specs.recipe import Recipe, StrategySpec
from ..storage.reading import reading
from ..storage.table_folder import (
    FolderKind,
    column_array,
    locked,
    read_manifest,
    read_tables,
    write_table,
)

KIND = FolderKind("collection of trajectories", format=1, command="cats-jax collect")

BLOCK_SIZE = 100
"""Questions per table, and most questions that a killed collection loses."""

_LATER = ("cats", "asked", "formats", "contents", "spent", "fitted_on", "chosen_on")
"""Entries of the manifest that collections of earlier versions lack; they can be continued."""

LogProbs = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""`(features f32[D, F], legal bool[D, A]) -> f32[D, A]`, a behaviour policy's log-probabilities."""


@dataclass(frozen=True)
class StoredDecisions:
    """Trajectories read from a folder.

    Attributes:
        columns: arrays [R] by name, [R, F] for the features; see the module's docstring.
        actions: action table; the column `action` holds numbers of its rows.
    """

    columns: Mapping[str, np.ndarray]
    feature_names: tuple[str, ...]
    actions: search.cats.ActionTable
    manifest: Mapping[str, Any]


def collect_decisions(
    recipe: Recipe,
    models: ModelSource,
    folder: str | pathlib.Path,
    *,
    grader: AnswerGrader | None = None,
    block_size: int = BLOCK_SIZE,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> pathlib.Path:
    """Search every cell of a recipe and keep the decisions. Finished blocks are not repeated.

    Args:
        recipe: recipe as for `cats-jax evaluate`, with CATS strategies that share an action table.
        models: source of the recipe's models.
        folder: folder of the trajectories, created if it does not exist.
        grader: decides whether two answers are equal; default: that of `cats-jax evaluate`.
        block_size: questions per table.
        report: called with the number of finished searches and the number of all searches.

    Raises:
        BadInputError: the recipe can't work, or the folder holds other data.
        RunStoppedError: the folder can't be written any more.
    """
    folder = pathlib.Path(folder)
    behaviours = {spec.label: _behaviour(spec) for spec in recipe.strategies}
    tables = {table for table, _ in behaviours.values()}
    if len(tables) > 1:
        raise BadInputError(
            f"strategies {', '.join(behaviours)} have different action tables: collect them into "
            "different folders"
        )
    if any(not -(1 << 31) <= seed < 1 << 31 for seed in recipe.seeds):
        raise BadInputError("seeds: decisions are stored with 32 bits of a seed: take smaller ones")
    evaluation = prepare(recipe, models, seen=True)
    known = evaluation.questions
    manifest = {
        **evaluation.manifest,
        **KIND.stamp(),
        "block_size": block_size,
        "feature_names": list(search.cats.FEATURE_NAMES),
        "actions": [list(row) for row in tables.pop().rows],
        "question_ids": [question.id for question in known.questions],
        "question_texts": [text_digest(question.text) for question in known.questions],
        "behaviours_learned": _learned_by(recipe.strategies),
        "cats": _settings_of(evaluation.cells),
    }
    grader = default_grader(recipe.questions) if grader is None else grader
    blocks = [
        (cell, start, place * len(known.questions) + start)
        for place, cell in enumerate(evaluation.cells)
        for start in range(0, len(known.questions), block_size)
    ]
    later = {name: manifest[name] for name in _LATER if name in manifest}
    with locked(folder, manifest, KIND, lambda old: {**later, **old}):
        runner = LocalRunner(evaluation.recipe, evaluation.cells, models, grader, WallTimes())
        done = 0
        for number, (cell, start, first) in enumerate(blocks):
            questions = known.questions[start : start + block_size]
            if not _file(folder, number).is_file():
                found: list[SearchResult] = []
                runner.search(cell, questions, found.append)
                results = {result.question.id: result for result in found}
                rows = [
                    row
                    for offset, question in enumerate(questions)
                    for row in decision_rows(
                        results[question.id],
                        number=first + offset,
                        cell=cell,
                        budget=recipe.budget or cell.num_candidates * recipe.max_depth,
                        correct=known.is_right(grader, question.id, results[question.id].answer),
                        behaviour=behaviours[cell.spec.label],
                    )
                ]
                write_table(_file(folder, number), pa.Table.from_pylist(rows, schema=_SCHEMA))
            done += len(questions)
            report(done, len(evaluation.cells) * len(known.questions))
    return folder


def recorded_settings(config: search.cats.CatsConfig) -> dict[str, Any]:
    """The settings of a search on which a decision's features, price and reward depend."""
    weights = ("cost", "margin", "score")
    return {
        **{name: getattr(config, name) for name in ("cost_unit", "path_score", "calibrated")},
        "excluded_features": sorted(config.excluded_features),
        **{f"reward.{name}": getattr(config.reward, name) for name in weights},
    }


def _settings_of(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """The distinct `recorded_settings` of cells, each with the label of the PRM."""
    found: list[dict[str, Any]] = []
    for cell in cells:
        label = "" if cell.prm is None else cell.prm.label
        settings = {"prm": label, **recorded_settings(cell.strategy.config)}
        if settings not in found:
            found.append(settings)
    return found


def _learned_by(specs: Sequence[StrategySpec]) -> dict[str, str]:
    """Training questions of the controllers among the strategies: id -> digest of the text.

    A controller that imitates them learns from these questions, too.
    """
    paths = {path for path in map(controller_of, specs) if path is not None}
    return texts_by_id(
        pair for path in sorted(paths) for pair in questions_of(str(path), read_info(path))
    )


def texts_by_id(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Digests of texts by id, from (id, digest) pairs of several question sets.

    Ids may be mere row numbers. If an id has another text already, the digest is added to it.
    """
    found: dict[str, str] = {}
    for question, text in pairs:
        if found.setdefault(question, text) != text:
            found[f"{question} ({text})"] = text
    return found


def decision_rows(
    result: SearchResult,
    *,
    number: int,
    cell: Cell,
    budget: int,
    correct: bool,
    behaviour: tuple[search.cats.ActionTable, LogProbs | None],
) -> list[dict[str, Any]]:
    """The decisions of one search, as rows of the table.

    Args:
        cell: cell of the recipe to which the search belongs.
        correct: whether the answer of the search is right.
        behaviour: action table, and log-probabilities of the policy (None: deterministic).
    """
    ticks = np.array([(c.step, c.phase) for c in result.candidates], np.int64).reshape(-1, 2)
    last_of: dict[int, int] = {}  # node -> row of its last decision so far
    rows: list[dict[str, Any]] = []
    for row, decision in enumerate(result.decisions):
        same_step = ticks[:, 0] == decision.step
        in_step = int((same_step & (ticks[:, 1] < decision.phase)).sum())
        spent = int((ticks[:, 0] < decision.step).sum()) + in_step
        node = decision.node
        rows.append(
            {
                "search": number,
                "question": result.question.id,
                "prm": "" if cell.prm is None else cell.prm.label,
                "strategy": cell.spec.label,
                "num_candidates": cell.num_candidates,
                "seed": cell.seed,
                "price": float(cell.price),
                "step": decision.step,
                "phase": decision.phase,
                "node": node,
                "features": decision.features,
                "available": max(min(cell.num_candidates - in_step, budget - spent), 0),
                "action": decision.action,
                "log_prob": 0.0,
                "reward": decision.reward,
                "granted": decision.granted,
                "spent": spent,
                "remaining": len(result.candidates) - spent,
                "predecessor": _last_decision(result, node, last_of),
                "ends": 0,
                "correct": correct,
            }
        )
        last_of[node] = row
    # A kept candidate without a valid child ends its path.
    goes_on = {c.parent for c in result.candidates if c.invalid is None}
    for candidate in result.candidates:
        if candidate.kept and candidate.id not in goes_on:
            before = _last_decision(result, candidate.id, last_of)
            if before >= 0:
                rows[before]["ends"] += 1
    _fill_log_probs(rows, behaviour)
    return rows


def load_decisions(folder: str | pathlib.Path) -> StoredDecisions:
    """Read the trajectories of a folder, complete or not.

    Raises:
        BadInputError: the folder is missing, damaged, without a table, of another format, or has
            other features than this version.
    """
    with reading_collection(folder):
        return _load(pathlib.Path(folder))


def reading_collection(folder: str | pathlib.Path) -> contextlib.AbstractContextManager[None]:
    """The context in which the files of a folder of trajectories are read."""
    return reading(f"{KIND.name} {str(folder)!r}", f"collect them anew by `{KIND.command}`")


def _load(folder: pathlib.Path) -> StoredDecisions:
    manifest = read_manifest(folder, KIND)
    names = tuple(manifest["feature_names"])
    if names != search.cats.FEATURE_NAMES:
        raise BadInputError(
            f"{KIND.name} {str(folder)!r} has other features than this version: collect it anew"
        )
    paths = sorted(folder.glob("decisions-*.parquet"))
    if not paths:
        raise BadInputError(
            f"{KIND.name} {str(folder)!r} has no table yet: run its `{KIND.command}`"
        )
    if "question_texts" not in manifest:
        raise BadInputError(
            f"{KIND.name} {str(folder)!r} is from an earlier version, which kept no digests of the "
            "questions, so that a controller could be evaluated on those it was trained on: "
            "collect it anew"
        )
    table = read_tables(paths, KIND)
    if not len(table):
        raise BadInputError(
            f"{KIND.name} {str(folder)!r} has no decision: no step of its searches had a valid "
            "candidate; check the policy and its limits of tokens"
        )
    return StoredDecisions(
        columns={name: column_array(table[name]) for name in table.column_names},
        feature_names=names,
        actions=search.cats.ActionTable(tuple(tuple(row) for row in manifest["actions"])),
        manifest=manifest,
    )


def _behaviour(spec: StrategySpec) -> tuple[search.cats.ActionTable, LogProbs | None]:
    """A strategy's action table, and its policy's log-probabilities (None: deterministic)."""
    options = dict(spec.options)
    path = controller_of(spec)
    samples = options.get("mode") == "sample"
    config = build_strategy(spec).strategy.config
    if not isinstance(config, search.cats.CatsConfig):
        raise BadInputError(
            f"strategy {spec.label!r} takes no decisions: collect with cats, cats_random, "
            "cats_constant or cats_rule"
        )
    if path is None or not samples:
        return config.actions, _uniform if spec.name == "cats_random" else None
    checkpoint = load(path)
    actor = learners.make_actor(len(config.actions), checkpoint.train_config.actor_hidden)

    def log_probs(features: np.ndarray, legal: np.ndarray) -> np.ndarray:
        logits = actor.apply(checkpoint.actor, jnp.asarray(features))
        return np.asarray(legal_log_probs(logits, jnp.asarray(legal)))

    return config.actions, log_probs


def _uniform(features: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Log-probabilities of `search.cats.random_policy`."""
    return np.broadcast_to(-np.log(legal.sum(axis=1, keepdims=True)), legal.shape)


def _fill_log_probs(
    rows: Sequence[dict[str, Any]], behaviour: tuple[search.cats.ActionTable, LogProbs | None]
) -> None:
    table, log_probs = behaviour
    if log_probs is None or not rows:
        return
    num_extra = np.array([row[0] for row in table.rows])
    legal = num_extra[None, :] <= np.array([row["available"] for row in rows])[:, None]
    values = log_probs(np.array([row["features"] for row in rows], np.float32), legal)
    for row, value in zip(rows, values, strict=True):
        row["log_prob"] = float(value[row["action"]])


def _last_decision(result: SearchResult, node: int, last_of: Mapping[int, int]) -> int:
    """Row of the newest decision on the path to a node, -1 for none.

    A node whose only valid child is from the last round of its step has no decision.
    """
    while node not in last_of:
        if node == ROOT:
            return -1
        node = result.candidates[node - 1].parent
    return last_of[node]


def _file(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder / f"decisions-{number:05d}.parquet"


_SCHEMA = pa.schema(
    [
        ("search", pa.int32()),
        ("question", pa.string()),
        ("prm", pa.string()),
        ("strategy", pa.string()),
        ("num_candidates", pa.int32()),
        ("seed", pa.int32()),
        ("price", pa.float32()),
        ("step", pa.int32()),
        ("phase", pa.int32()),
        ("node", pa.int32()),
        ("features", pa.list_(pa.float32())),
        ("available", pa.int32()),
        ("action", pa.int32()),
        ("log_prob", pa.float32()),
        ("reward", pa.float32()),
        ("granted", pa.int32()),
        ("spent", pa.int32()),
        ("remaining", pa.int32()),
        ("predecessor", pa.int32()),
        ("ends", pa.int32()),
        ("correct", pa.bool_()),
    ]
)
