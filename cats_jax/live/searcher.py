"""`Searcher`, the class that `solve`, `evaluate` and notebooks run searches with."""

from __future__ import annotations

import pathlib
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import jax
import numpy as np

import search

from ..compiled_programs import keep_compiled_programs
from ..errors import BadInputError, RunWarning
from ..grading.boxed_integer import BoxedIntegerGrader
from ..protocols import AnswerGrader, Question, StepGenerator, StepScorer, facts_of
from ..specs.comparing import ComparisonPrompt
from ..specs.recipe import check_num_candidates
from ..specs.strategy_prompts import StrategyPrompts, load_strategy_prompts
from .arguments import (
    as_method,
    check_calibration,
    check_counts,
    check_grader,
    check_limits,
    check_policy,
    check_questions,
    check_rates,
    check_scorer,
    fitting_strategy,
)
from .comparisons import Comparisons, Judge, unread_note, writer_of
from .driver import SearchBatch
from .jobs import Job, SearchSettings
from .limits import Limits
from .method import SearchMethod, check_trained
from .proxies import innermost
from .ranked_answers import RankScorer
from .results import SearchResult, unsolved_note
from .rewriter import Rewriter
from .seeds import stable_seed
from .ticks import SearchInputs
from .timings import Timings
from .whole_answers import whole_answers, whole_scores


class Searcher:
    """Searches many questions at once with one strategy and one N.

    Each call of the policy serves all open questions. Each call of the PRM serves the candidates
    whose scores the strategy reads. A question that requests no samples advances at once, until it
    requests some or ends. Waiting questions take the places of finished ones.

    Unless `max_seconds` ends its search, a question's result depends on the seed and the question
    alone, not on its neighbours.

    Compiled programs are kept in the user's cache folder for the next process. JAX's own settings
    take precedence, see `compiled_programs.keep_compiled_programs`.
    """

    def __init__(
        self,
        *,
        policy: StepGenerator,
        scorer: StepScorer | None = None,
        strategy: search.Strategy | SearchMethod,
        num_candidates: int,
        calibration: Sequence[float] | str | pathlib.Path | None = None,
        price: float | None = None,
        prm_token_cost: float | None = None,
        seed: int = 0,
        params: Any = (),
        grader: AnswerGrader | None = None,
        max_depth: int = 10,
        budget: int | None = None,
        in_flight: int = 64,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        recorder: search.Recorder | None = None,
        comparer: StepGenerator | None = None,
        prompts: StrategyPrompts | None = None,
    ) -> None:
        """Check the settings; no model is called yet.

        Args:
            policy: language model that writes candidate steps.
            scorer: PRM that scores the steps; needed by strategies with `uses_scores`. An outcome
                model (`finished_only`) scores finished answers only, and works with strategies
                without `needs_step_scores`.
            strategy: search strategy, for example `search.beam(expansion=8)`, or a search method,
                for example `cats_jax.load_controller("cats")`, which has params, price and
                `prm_token_cost`.
            num_candidates: N in 1..256, cap on the candidates of one reasoning step.
            calibration: calibration of the scorer's scores beside the policy, for strategies with
                `needs_calibration`. It is the values of a `search.Calibration` in order; or a name
                or file as in a recipe, with an entry for a PRM of the scorer's name; or "none",
                which leaves scores as they are. None: for a controller, the calibration of its
                training with this policy and PRM, or the one shipped for models of the embedded
                world.
            price: price of 100 candidates in units of a right answer, >= 0; for a controller with
                `cost_unit="tokens"`, price of 1000 tokens. A controller trained at several prices
                samples less at a higher one. None: that of the search method, otherwise 0.
            prm_token_cost: cost of a PRM token relative to a policy token, >= 0. A controller
                trained at several costs calls the PRM less at a higher one. None: that of the
                search method, otherwise 1.
            seed: run seed.
            params: parameters of the strategy's controller (CATS); `()` without one, and for a
                search method, which has its own.
            grader: decides which answers are the same; default: `BoxedIntegerGrader`.
            max_depth: most reasoning steps; the last one runs to the end of the answer.
            budget: cap on all candidates of a question, below 2**31; default
                `num_candidates * max_depth`.
            in_flight: most questions searched at once.
            max_tokens: cap on a question's tokens, sampled by the policy plus computed by the
                PRM; checked after every tick.
            max_seconds: cap on the seconds spent on a question; checked after every tick.
            recorder: what to record of each tick, see `SearchResult.records`; None: nothing.
            comparer: language model that compares finished answers in place of the judge of the
                strategy's `comparison`. Its cost counts as that judge's. None: the judge, which is
                the policy or the language model of the scorer.
            prompts: the prompts of the strategy's rewrites and comparisons; None: they are read
                here.

        Raises:
            BadInputError: a setting breaks its rule; an object can't be used in a search; or the
                strategy reads something that is missing: a calibration, certainties or vectors of
                the policy, or an outcome model's scores of unfinished paths.

        Warns:
            RunWarning: a controller was not trained with these models.
        """
        check_num_candidates(num_candidates)
        check_policy(policy)
        check_scorer(scorer)
        method = as_method(strategy, params)
        price = method.price if price is None else price
        prm_token_cost = method.prm_token_cost if prm_token_cost is None else prm_token_cost
        check_counts(max_depth=max_depth, in_flight=in_flight)
        check_rates(price=price, prm_token_cost=prm_token_cost)
        check_trained("price", price, method.prices)
        check_trained("prm_token_cost", prm_token_cost, method.prm_token_costs)
        check_limits(budget, max_tokens, max_seconds)
        strategy = fitting_strategy(method.strategy, num_candidates, policy, scorer)
        read = scorer if strategy.uses_scores else None
        if calibration is None or isinstance(calibration, str | pathlib.Path):
            prm = None if read is None else read.name
            calibration = method.calibration(policy.name, prm, calibration)
        check_calibration(calibration)
        if (warning := _foreign(method, policy, read)) is not None:
            warnings.warn(warning, RunWarning, stacklevel=2)
        prompts = load_strategy_prompts(strategy) if prompts is None else prompts
        prompts.check(strategy)
        self._compares = _judge(strategy, prompts.comparison, policy, scorer, comparer)
        if prompts.rewriting is not None:
            policy = Rewriter(policy, prompts.rewriting)
        self._policy, self._scorer = policy, read
        self._limited = any(each is not None for each in (budget, max_tokens, max_seconds))
        self._settings = SearchSettings(
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=int(max_depth),
            limits=Limits(max_tokens=max_tokens, max_seconds=max_seconds),
            recorder=recorder,
        )
        self._context = _context(price, read, calibration, prm_token_cost)
        self._budget = num_candidates * max_depth if budget is None else budget
        if isinstance(seed, bool) or not isinstance(seed, Integral):
            raise BadInputError(f"seed={seed!r}: must be an integer")
        self._seed = int(seed)
        self._params = method.params
        if grader is not None:
            check_grader(grader)
        self._grader = BoxedIntegerGrader() if grader is None else grader
        self._in_flight = int(in_flight)
        self.timings = Timings()

    def run(
        self,
        questions: Sequence[Question],
        on_result: Callable[[SearchResult], None] | None = None,
        *,
        terms: Sequence[SearchInputs] | None = None,
    ) -> list[SearchResult]:
        """Search all questions.

        Args:
            questions: questions with distinct ids.
            on_result: called with each result when its question ends.
            terms: N, budget, context and key of each question; N is at most that of the searcher.
                None: those of the searcher, with a key from the seed and the question's id.

        Returns:
            Results in the order of `questions`.

        Raises:
            BadInputError: an id occurs twice; a question is not a `Question`; a model can't read
                it, or the strategy's prompts about it; or a model returned another class.

        Warns:
            RunWarning: a solver reached its limit, or comparisons had no choice that can be read.
        """
        check_questions(questions)
        seen: set[str] = set()
        for question in questions:
            if question.id in seen:
                raise BadInputError(f"question id {question.id!r} occurs twice: ids must be unique")
            seen.add(question.id)
            self.check_question(question)
        if not questions:
            return []
        keep_compiled_programs()
        if terms is None:
            jobs = [self.job(question) for question in questions]
        else:
            jobs = [
                Job(question, own, self._seed, question.id)
                for question, own in zip(questions, terms, strict=True)
            ]
        results: dict[str, SearchResult] = {}

        def finish(result: SearchResult) -> None:
            results[result.question.id] = result
            if on_result is not None:
                on_result(result)

        self.cohort(deque(jobs), finish).run()
        found = [results[question.id] for question in questions]
        title = f"strategy {self._settings.strategy.name!r}, N={self._settings.num_candidates}"
        notes = [unsolved_note(title, found)]
        if self._compares is not None:
            notes.append(unread_note(title, self._compares.writer.name, found))
        for note in filter(None, notes):
            warnings.warn(note, RunWarning, stacklevel=2)
        return found

    def check_question(self, question: Question) -> None:
        """Check that the models can read a question, and the strategy's prompts with empty answers.

        Raises:
            BadInputError: a model can't read it.
        """
        if question.system and not facts_of(self._policy).reads_system:
            raise BadInputError(
                f"question {question.id!r}: policy {self._policy.name!r} reads no system message: "
                "leave it out"
            )
        self._policy.check_question(question)
        if self._compares is not None:
            self._compares.check_question(question)

    def job(self, question: Question, seed_name: str | None = None) -> Job:
        """A question, which is not checked, with this searcher's N, budget, price and seed.

        Its key and seeds derive from `seed_name` (None: its id) and the seed.
        """
        name = question.id if seed_name is None else seed_name
        key = jax.random.key(stable_seed(self._seed, name) % 2**31)
        inputs = SearchInputs(
            num_candidates=np.int32(self._settings.num_candidates),
            budget=np.int32(self._budget),
            context=self._context,
            key=np.asarray(jax.random.key_data(key)),
        )
        return Job(question, inputs, self._seed, name)

    def cohort(
        self,
        waiting: deque[Job],
        finish: Callable[[SearchResult], None],
        slots: int | None = None,
    ) -> SearchBatch:
        """A batch with this searcher's strategy, models and limits.

        Args:
            waiting: jobs of searchers that differ from this one only in price, seed and budget. If
                this one has a budget, they must have one, too.
            finish: called with each result when its question ends.
            slots: number of questions at once; None: as many as wait now, at least 1 and at most
                `in_flight`.
        """
        at_once = max(1, min(self._in_flight, len(waiting))) if slots is None else slots
        places = 1 << (at_once - 1).bit_length()
        settings = self._settings
        # Anew for each batch: one that was interrupted must leave no answers to the next.
        policy = whole_answers(
            self._policy, settings.strategy, max_depth=settings.max_depth, limited=self._limited
        )
        scorer = None if self._scorer is None else whole_scores(self._scorer, policy)
        comparisons = None
        if self._compares is not None:
            known = {}
            if self._compares.comparison.scores:
                scorer = ranks = RankScorer(self._compares)
                known = {"known": ranks.replies}
            limits = settings.limits
            comparisons = Comparisons(self._compares, limits, places, self.timings, **known)
        return SearchBatch(
            settings=settings,
            params=self._params,
            policy=policy,
            scorer=scorer,
            grader=self._grader,
            waiting=waiting,
            # A power of two, so that runs of similar size share one compilation.
            slots=places,
            most=at_once,
            finish=finish,
            timings=self.timings,
            comparisons=comparisons,
        )


def _foreign(method: SearchMethod, policy: StepGenerator, scorer: StepScorer | None) -> str | None:
    """A warning if the controller of a method was trained with other models, else None."""
    if method.origin is None:
        return None
    models = {"policy": {"name": policy.name}}
    if scorer is not None:
        models[f"prm {scorer.name}"] = {"name": scorer.name}
    return method.origin.warning(models)


def _context(
    price: float, scorer: StepScorer | None, calibration: Sequence[float], prm_token_cost: float
) -> search.Context:
    sparsity = (0.0, 0.0) if scorer is None else (scorer.sparsity_total, scorer.sparsity_last_layer)
    values = search.Calibration(*calibration)
    return jax.tree.map(np.float32, search.Context(price, *sparsity, values, prm_token_cost))


def _judge(
    strategy: search.Strategy,
    prompt: ComparisonPrompt | None,
    policy: StepGenerator,
    scorer: StepScorer | None,
    comparer: StepGenerator | None,
) -> Judge | None:
    """What compares the finished answers of a strategy; None if nothing does."""
    if comparer is not None:
        check_policy(comparer)
    if strategy.comparison is None or prompt is None:
        return None
    writer = writer_of(strategy, policy, scorer) if comparer is None else comparer
    # The system message of the policy's format requests an answer. Another judge has its own.
    system = "" if innermost(writer) is innermost(policy) else None
    return Judge(writer, strategy.comparison, prompt, system)
