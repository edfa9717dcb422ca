"""Runners, which search the questions of a cell; `LocalRunner` does so in this process."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..errors import BadInputError
from ..live.comparisons import writer_of
from ..live.results import SearchResult
from ..live.searcher import Searcher
from ..live.whole_answers import whole_answers
from ..models.backend import check_there
from ..models.footprint import Work
from ..models.resolve import check_gpu_shares
from ..models.source import ModelSource, check_models, thought_tokens
from ..protocols import AnswerGrader, Question, StepGenerator, StepScorer, facts_of, warn_note
from ..runs.folder import PATHS
from ..specs.functions import AT_ENDPOINTS
from ..specs.recipe import PrmSpec, Recipe
from .cells import Cell, written_prompts
from .shared_paths import SharedPaths
from .wall_times import WallTimes


class CellRunner(Protocol):
    """Searches the questions of one cell after another, in this process or elsewhere."""

    def search(
        self, cell: Cell, questions: Sequence[Question], on_result: Callable[[SearchResult], None]
    ) -> None:
        """Search all questions; `on_result` gets each result as it ends, one at a time.

        A runner with workers may return as soon as one of them is idle; later calls then pass the
        other results to `on_result`.
        """
        ...

    def finish(self, times: WallTimes) -> None:
        """Wait for all results, and add the times of workers elsewhere to `times`."""
        ...


def largest_work(recipe: Recipe, cells: Sequence[Cell]) -> Work:
    """The most work that a run of the recipe holds at once: its largest N, up to the last step.

    Args:
        recipe: the recipe.
        cells: its cells, with the prompts that the run uses.
    """
    policy = recipe.policy
    return Work(
        questions=recipe.in_flight,
        paths=recipe.most_candidates,
        steps=recipe.max_depth,
        step_tokens=policy.max_step_tokens,
        answer_tokens=policy.max_answer_tokens,
        thought_tokens=thought_tokens(policy),
        prompts=written_prompts(cells, recipe),
        prm_prompts=written_prompts(cells, recipe, "prm"),
    )


def check_steps(policy: StepGenerator, recipe: Recipe, cells: Sequence[Cell]) -> None:
    """Raise BadInputError if a cell needs single steps, and the policy samples whole answers only.

    Such a policy has the reason in `ModelFacts.whole_only`. With examples whole paths
    need single steps, too.
    """
    reason = facts_of(policy).whole_only
    limited = any(
        each is not None for each in (recipe.budget, recipe.max_tokens, recipe.max_seconds)
    )
    for cell in cells if reason else ():
        wrapped = whole_answers(policy, cell.strategy, max_depth=recipe.max_depth, limited=limited)
        # A rewrite and the answer that it rewrites are whole answers, without a path before them.
        if wrapped is policy and cell.strategy.rewriting is None:
            if recipe.policy.examples is not None:
                raise BadInputError(
                    f"policy: examples need single steps, and {policy.name!r} samples whole "
                    "answers only: leave examples out, or take another endpoint"
                )
            raise BadInputError(f"{cell.title} needs single steps: {reason}")


def searcher_of(
    cell: Cell,
    recipe: Recipe,
    policy: StepGenerator,
    scorer: StepScorer | None,
    grader: AnswerGrader,
    **changes: Any,
) -> Searcher:
    """The searcher of a cell, with the limits of its recipe; see `Searcher` for the models.

    `changes` are arguments of `Searcher` that differ from those of the cell and the recipe.
    """
    settings: dict[str, Any] = {
        "strategy": cell.strategy,
        "prompts": cell.prompts,
        "params": cell.params,
        "num_candidates": cell.num_candidates,
        "calibration": cell.calibration,
        "price": cell.price,
        "prm_token_cost": cell.prm_token_cost,
        "seed": cell.seed,
        "max_depth": recipe.max_depth,
        "budget": recipe.budget,
        "in_flight": recipe.in_flight,
        "max_tokens": recipe.max_tokens,
        "max_seconds": recipe.max_seconds,
    }
    return Searcher(policy=policy, scorer=scorer, grader=grader, **{**settings, **changes})


class LocalRunner:
    """Searches in this process with the recipe's policy and one PRM in memory at a time.

    Judges at endpoints, which need no memory here, stay loaded: each counts its costs.
    Before the first model is loaded, the policy and all PRMs are checked, see `check_models`.
    """

    def __init__(
        self,
        recipe: Recipe,
        cells: Sequence[Cell],
        models: ModelSource,
        grader: AnswerGrader,
        times: WallTimes,
        folder: pathlib.Path | None = None,
    ) -> None:
        """Models are loaded at the first cell that needs them.

        Args:
            recipe: the recipe.
            cells: its cells, for which the models are checked.
            models: source of the recipe's models.
            grader: decides which answers are the same.
            times: wall times, to which the runner adds.
            folder: the run folder, which keeps the paths that cells share until the run is
                complete; None: they are in a temporary file.

        Raises:
            BadInputError: a device or an engine of the models is not on this machine, or engines
                need more than a whole GPU.
        """
        check_there((recipe.policy, *recipe.prms))
        check_gpu_shares(recipe.policy, recipe.prms)
        self._recipe = recipe
        self._cells = cells
        self._models = models
        self._grader = grader
        self._times = times
        self._policy: StepGenerator | None = None
        self._prms: dict[PrmSpec, StepScorer] = {}
        self._checked = False
        # A search that a budget or a time limit may cut short does not share paths.
        self._shares = recipe.budget is None and recipe.max_seconds is None
        self._shared: SharedPaths | None = None
        self._paths = None if folder is None else folder / PATHS

    def check_models(self) -> None:
        """Check, once, that the policy and each PRM fit their formats and the memory.

        Raises:
            BadInputError: see `models.source.check_models`.
        """
        if not self._checked:
            recipe, work = self._recipe, largest_work(self._recipe, self._cells)
            check_models(self._models, recipe.policy, recipe.prms, work)
            self._checked = True

    def load(self, cell: Cell) -> tuple[StepGenerator, StepScorer | None]:
        """The policy and the PRM of a cell, which are loaded unless the cell before had them."""
        return self._load_policy(), None if cell.prm is None else self._load_prm(cell.prm)

    def search(
        self, cell: Cell, questions: Sequence[Question], on_result: Callable[[SearchResult], None]
    ) -> None:
        """Search all questions, `in_flight` of the recipe at once."""
        recipe = self._recipe
        policy, scorer = self.load(cell)
        comparer = writer_of(cell.strategy, policy, scorer)  # what it writes is no shared path
        remember: Callable[[SearchResult], None] | None = None
        if self._shares and cell.pool is not None:
            if self._shared is None:  # by now the run folder is there, and locked
                self._shared = SharedPaths(self._paths)
            policy = whole_answers(
                policy,
                cell.strategy,
                max_depth=recipe.max_depth,
                limited=recipe.max_tokens is not None,  # with other limits, no paths are shared
            )
            policy, scorer, remember = self._shared.share(cell, policy, scorer)

        def ended(result: SearchResult) -> None:
            if remember is not None:
                remember(result)
            on_result(result)

        searcher = searcher_of(cell, recipe, policy, scorer, self._grader, comparer=comparer)
        begun, recorded, recomputed = time.perf_counter(), self._times.recording, self._recomputed()
        searcher.run(questions, on_result=ended)
        recording = self._times.recording - recorded
        self._times.searching += time.perf_counter() - begun - recording
        self._times.parts.update(searcher.timings.as_dict())
        self._times.recomputed += self._recomputed() - recomputed

    def finish(self, times: WallTimes) -> None:
        """Show the notes of the loaded models as warnings; `search` counts its own times."""
        self._drop_prms()
        warn_note(self._policy)
        self.close_paths()

    def close_paths(self) -> None:
        """Close the store of shared paths; without a run folder, its paths are gone."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _recomputed(self) -> int:
        """Tokens that the loaded models have computed again so far."""
        return sum(facts_of(model).recomputed for model in (self._policy, *self._prms.values()))

    def _load_policy(self) -> StepGenerator:
        if self._policy is None:
            self.check_models()
            started = time.perf_counter()
            self._policy = self._models.policy(self._recipe.policy)
            check_steps(self._policy, self._recipe, self._cells)
            self._times.loading += time.perf_counter() - started
        return self._policy

    def _load_prm(self, spec: PrmSpec) -> StepScorer:
        if spec not in self._prms:
            self._drop_prms(AT_ENDPOINTS)  # frees the old PRM's memory before the new PRM is loaded
            started = time.perf_counter()
            self._prms[spec] = self._models.prm(spec)
            self._times.loading += time.perf_counter() - started
        return self._prms[spec]

    def _drop_prms(self, kept: Sequence[str] = ()) -> None:
        """Free the loaded PRMs but those of the paths `kept`, and show their notes as warnings."""
        for spec in [each for each in self._prms if each.path not in kept]:
            warn_note(self._prms.pop(spec))
