"""Batch evaluation: every cell of a recipe's grid, resumable, graded apart from the search.

A search receives `Question`s only. Gold answers enter in `_Recorder`, after a search has ended.
"""

from __future__ import annotations

import hashlib
import pathlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import search

from .answers import BoxedIntegerJudge
from .config import PrmSpec, QuestionSpec, Recipe, StrategySpec
from .datasets import QuestionSet, read_jsonl, world_questions
from .errors import BadInputError
from .models import ModelSource
from .protocols import AnswerJudge, StepGenerator, StepScorer
from .results import SearchResult
from .runs import Row, Run, RunWriter, make_manifest, read_run
from .searcher import Searcher
from .strategies import IGNORES_NUM_CANDIDATES, build_strategy, check_width, controller_path
from .wall_times import WallTimes


@dataclass(frozen=True)
class Cell:
    """One strategy with one N, PRM and seed: a set of rows.

    Attributes:
        spec: the strategy as the recipe says.
        strategy, params: what it was built into.
        num_candidates: N; 1 for strategies that ignore it.
        prm: None for strategies that read no scores.
        seed: run seed.
    """

    spec: StrategySpec
    strategy: search.Strategy = field(repr=False)
    params: Any = field(repr=False)
    num_candidates: int
    prm: PrmSpec | None
    seed: int

    @property
    def title(self) -> str:
        """Short text for progress and tables."""
        prm = "" if self.prm is None else f" {self.prm.label}"
        return f"{self.spec.label} N={self.num_candidates}{prm} seed {self.seed}"

    def key(self, question_id: str) -> str:
        """Key of a row."""
        prm = "-" if self.prm is None else self.prm.label
        return f"{self.spec.label}|{self.num_candidates}|{prm}|{self.seed}|{question_id}"


class Observer(Protocol):
    """Follows an evaluation, for progress bars."""

    def begin_cell(self, title: str, total: int, rows: Sequence[Row]) -> None:
        """A cell with `total` questions begins, of which `rows` are done already."""
        ...

    def row(self, row: Row) -> None:
        """One more question has ended; its row is on its way to the disk."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """A checked recipe, ready to run: nothing in it can fail for bad input but the models.

    Attributes:
        recipe: as given.
        questions: the question set.
        cells: in order of running.
        manifest: of the run folder.
    """

    recipe: Recipe
    questions: QuestionSet
    cells: tuple[Cell, ...]
    manifest: Mapping[str, Any]

    def bounds(self) -> list[tuple[Cell, int, int, int]]:
        """(cell, rows, most candidates, most sampled tokens) for `--dry-run`."""
        recipe, rows = self.recipe, len(self.questions.questions)
        table = []
        for cell in self.cells:
            per_step, depth = cell.num_candidates, recipe.max_depth
            candidates = per_step * depth
            # The last step's samples run to the end of the answer.
            last = per_step
            if recipe.budget is not None:
                candidates = min(candidates, recipe.budget)
                last = min(last, candidates)
            policy = recipe.policy
            longest = max(policy.max_step_tokens, policy.max_answer_tokens)
            tokens = (candidates - last) * policy.max_step_tokens + last * longest
            table.append((cell, rows, rows * candidates, rows * tokens))
        return table


def prepare(
    recipe: Recipe, models: ModelSource, questions: QuestionSet | None = None
) -> Evaluation:
    """Check everything that can be checked without loading a model.

    Args:
        recipe: what to run.
        models: where its models come from.
        questions: default: those the recipe names.

    Raises:
        BadInputError: something in the recipe can't work.
    """
    cells = _cells(recipe)
    questions = load_questions(recipe.questions) if questions is None else questions
    fingerprints = {"policy": models.fingerprint(recipe.policy)}
    for spec in recipe.prms:
        fingerprints[f"prm {spec.label}"] = models.fingerprint(spec)
    for spec in recipe.strategies:
        checkpoint = dict(spec.options).get("checkpoint")
        if checkpoint is not None:
            fingerprints[f"controller {spec.label}"] = _folder_digest(controller_path(checkpoint))
    manifest = make_manifest(
        config=recipe.as_config(),
        models=fingerprints,
        questions=questions.fingerprint(),
        seeds=recipe.seeds,
    )
    return Evaluation(recipe, questions, cells, manifest)


def load_questions(spec: QuestionSpec) -> QuestionSet:
    """The question set a recipe names.

    Raises:
        BadInputError: it can't be read.
    """
    if spec.file is not None:
        return read_jsonl(spec.file, spec.count)
    assert spec.world is not None
    assert spec.count is not None
    return world_questions(spec.world, spec.count, seed=spec.seed, levels=spec.levels)


def evaluate(
    evaluation: Evaluation,
    models: ModelSource,
    folder: str | pathlib.Path,
    *,
    observer: Observer | None = None,
    judge: AnswerJudge | None = None,
) -> tuple[Run, WallTimes]:
    """Run the cells that are not in the folder yet, one after another.

    Each cell has all its questions in flight; a question's tree and row go to the disk as it ends,
    not with its cell. A failed question is a row and counts as wrong.

    Raises:
        BadInputError: the folder belongs to another run, or a model or question can't be used.
    """
    started = time.perf_counter()
    times = WallTimes()
    judge = BoxedIntegerJudge() if judge is None else judge
    recipe, questions = evaluation.recipe, evaluation.questions
    with RunWriter(folder, evaluation.manifest) as writer:
        known = {row.key: row for row in read_run(folder).rows}
        loaded = _LoadedModels(recipe, models, times)
        for cell in evaluation.cells:
            todo = [item for item in questions.questions if cell.key(item.id) not in known]
            done = [known[key] for q in questions.questions if (key := cell.key(q.id)) in known]
            if observer is not None:
                observer.begin_cell(cell.title, len(questions.questions), done)
            if not todo:
                continue
            searcher = Searcher(
                policy=loaded.policy(),
                scorer=None if cell.prm is None else loaded.prm(cell.prm),
                strategy=cell.strategy,
                params=cell.params,
                num_candidates=cell.num_candidates,
                seed=cell.seed,
                judge=judge,
                max_depth=recipe.max_depth,
                budget=recipe.budget,
                in_flight=recipe.in_flight,
                max_tokens=recipe.max_tokens,
                max_seconds=recipe.max_seconds,
            )
            with_trees = recipe.writes_trees(cell.num_candidates)
            recorder = _Recorder(cell, questions, judge, writer, with_trees, observer, times)
            begun, recorded = time.perf_counter(), times.recording
            searcher.run(todo, on_result=recorder)
            times.searching += time.perf_counter() - begun - (times.recording - recorded)
            times.parts.update(searcher.timings.as_dict())
    times.writing = writer.seconds
    times.total = time.perf_counter() - started
    return read_run(folder), times


class _Recorder:
    """Grades a result and writes it: the only place where gold answers are known."""

    def __init__(
        self,
        cell: Cell,
        questions: QuestionSet,
        judge: AnswerJudge,
        writer: RunWriter,
        with_trees: bool,
        observer: Observer | None,
        times: WallTimes,
    ) -> None:
        self._cell = cell
        self._questions = questions
        self._judge = judge
        self._writer = writer
        self._with_trees = with_trees
        self._observer = observer
        self._times = times

    def __call__(self, result: SearchResult) -> None:
        started = time.perf_counter()
        cell, identity = self._cell, result.question.id
        gold = self._questions.answers[identity]
        row = Row(
            key=cell.key(identity),
            question=identity,
            strategy=cell.spec.label,
            num_candidates=cell.num_candidates,
            prm=None if cell.prm is None else cell.prm.label,
            seed=cell.seed,
            meta=self._questions.meta.get(identity, {}),
            answer=result.answer,
            gold=gold,
            correct=result.answer is not None and self._judge.equivalent(result.answer, gold),
            status=result.status,
            reason=result.reason,
            steps=result.steps,
            ledger=result.ledger,
            actions=_count_actions(result),
        )
        self._writer.add(row, result if self._with_trees else None)
        if self._observer is not None:
            self._observer.row(row)
        self._times.recording += time.perf_counter() - started


class _LoadedModels:
    """The policy, and one PRM at a time: cells are ordered by PRM."""

    def __init__(self, recipe: Recipe, models: ModelSource, times: WallTimes) -> None:
        self._recipe = recipe
        self._models = models
        self._times = times
        self._policy: StepGenerator | None = None
        self._prm: tuple[PrmSpec, StepScorer] | None = None

    def policy(self) -> StepGenerator:
        if self._policy is None:
            started = time.perf_counter()
            self._policy = self._models.policy(self._recipe.policy)
            self._times.loading += time.perf_counter() - started
        return self._policy

    def prm(self, spec: PrmSpec) -> StepScorer:
        if self._prm is None or self._prm[0] != spec:
            self._prm = None  # the old one's memory is free before the new one is read
            started = time.perf_counter()
            self._prm = (spec, self._models.prm(spec))
            self._times.loading += time.perf_counter() - started
        return self._prm[1]


def _cells(recipe: Recipe) -> tuple[Cell, ...]:
    """The grid, without the cells that would repeat another one; ordered by PRM."""
    cells: list[Cell] = []
    for prm in (None, *recipe.prms):
        for spec in recipe.strategies:
            strategy, params = build_strategy(spec, None if prm is None else prm.path_score)
            if strategy.uses_scores != (prm is not None):
                continue
            once = spec.name in IGNORES_NUM_CANDIDATES
            for num_candidates in (1,) if once else recipe.num_candidates:
                check_width(strategy, spec.label, num_candidates)
                for seed in recipe.seeds[:1] if once else recipe.seeds:
                    cells.append(Cell(spec, strategy, params, num_candidates, prm, seed))
    for spec in recipe.strategies:
        if not any(cell.spec is spec for cell in cells):
            raise BadInputError(
                f"strategy {spec.label!r} reads PRM scores, but the recipe has no PRM: add 'prms'"
            )
    return tuple(cells)


def _count_actions(result: SearchResult) -> tuple[tuple[int, int, float, float, int, int], ...]:
    counts = Counter(
        (
            decision.num_extra,
            decision.num_retain,
            round(decision.temperature, 4),
            round(decision.top_p, 4),
            decision.top_k,
        )
        for decision in result.decisions
    )
    return tuple((*action, times) for action, times in sorted(counts.items()))


def _folder_digest(folder: pathlib.Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(folder)).encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return {"name": folder.name, "sha256": digest.hexdigest()}
