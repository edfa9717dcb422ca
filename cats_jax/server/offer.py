"""The models and strategies of a recipe with which a server searches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..bank.build import fingerprints
from ..controllers.strategies import foreign_models
from ..errors import BadInputError, known_names
from ..evaluation.asked import asked_of
from ..evaluation.cells import Cell, asked_prompts, check_outcome_models, grid
from ..evaluation.evaluate import check_grading
from ..evaluation.guarantees import Guarantee, guarantees
from ..evaluation.runners import check_steps, largest_work, searcher_of
from ..grading.graders import default_grader
from ..live.abstention import decided
from ..live.arguments import check_width
from ..live.method import check_trained
from ..live.results import SearchResult
from ..live.searcher import Searcher
from ..models.backend import check_there
from ..models.resolve import check_gpu_shares, resolve_format
from ..models.source import ModelSource, check_models, check_world_question
from ..protocols import AnswerGrader, Question, StepGenerator, StepScorer
from ..specs.recipe import Recipe
from .refusals import bad_request
from .requests import SAMPLING, ChatRequest

SEED_NAME = "question"
"""Name from which, with a search's seed, all its random numbers derive; as in `cats-jax solve`."""


@dataclass(frozen=True)
class Settings:
    """The settings of one search, with defaults filled in.

    Attributes:
        strategy: label of the strategy.
        num_candidates: N; 1 for strategies that ignore it.
        budget: cap on all candidates; None: N times the number of steps.
        price: price in units of a right answer, see `live.method.SearchMethod`.
        seed: seed of the search.
        guarantee: guarantee of the strategy's certificate for the search; None without a
            certificate.
    """

    strategy: str
    num_candidates: int
    budget: int | None
    price: float
    seed: int
    guarantee: Guarantee | None = field(default=None, compare=False)

    @property
    def batch(self) -> tuple[str, int, bool]:
        """Key of a batch: searches with the same key advance together.

        A search without a cap may sample whole answers, see `live.whole_answers`.
        """
        return self.strategy, self.num_candidates, self.budget is None


class Offer:
    """The strategies of a recipe by label, and the limits of requests."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        name: str,
        max_prompt_characters: int,
        ignore_sampling: Sequence[str] = (),
    ) -> None:
        """Check the recipe; no model is loaded.

        Args:
            recipe: recipe whose policy, PRM, strategies, calibration and limits are served. Its
                first strategy, N and seed are a request's defaults, its largest N the limit, and
                its questions determine the grader of answers.
            name: name of the served model.
            max_prompt_characters: largest number of characters of a message.
            ignore_sampling: parameters of a request that are ignored rather than refused; each
                reply names those that it ignores.

        Raises:
            BadInputError: the recipe has several PRMs, a strategy can't work with it, answers to
                its questions can't be graded, or a parameter can't be ignored.
        """
        for parameter in ignore_sampling:
            if parameter not in SAMPLING:
                raise BadInputError(
                    f"--ignore-sampling {parameter}: no parameter of the sampling; "
                    f"{known_names(parameter, SAMPLING)}"
                )
        if len(recipe.prms) > 1:
            raise BadInputError(
                f"a server has one PRM, recipe {recipe.name!r} has {len(recipe.prms)}: keep one"
            )
        check_grading(recipe.questions)
        most = recipe.most_candidates
        one = dataclasses.replace(recipe, num_candidates=(most,), seeds=recipe.seeds[:1])
        self.recipe = recipe
        self.name = name
        self.max_prompt_characters = max_prompt_characters
        self.max_candidates = most
        self.ignore_sampling = tuple(ignore_sampling)
        self._cells: Mapping[str, Cell] = {cell.spec.label: cell for cell in grid(one)}
        self._guarantees: Mapping[str, Guarantee] = {}

    @property
    def strategies(self) -> list[str]:
        """Labels of the strategies in the recipe's order; the first is the default."""
        return [spec.label for spec in self.recipe.strategies]

    def settings(self, request: ChatRequest) -> Settings:
        """The settings of a request, with defaults filled in.

        Raises:
            RefusedRequestError: the model or strategy is not served, or a value is above its limit.
        """
        recipe = self.recipe
        if request.model != self.name:
            raise bad_request(
                f"model {request.model[:60]!r} is not served: ask for {self.name!r}", "model"
            )
        for message in request.messages:
            if not message.content.strip():
                raise bad_request(f"the {message.role} message is blank: give its text", "messages")
            if len(message.content) > self.max_prompt_characters:
                raise bad_request(
                    f"the {message.role} message has {len(message.content)} characters, at most "
                    f"{self.max_prompt_characters} are read: shorten it",
                    "messages",
                )
        label = self.strategies[0] if request.strategy is None else request.strategy
        if label not in self._cells:
            hint = known_names(label[:60], self.strategies)
            raise bad_request(f"strategy {label[:60]!r} is not served: {hint}", "strategy")
        cell = self._cells[label]
        asked = request.num_candidates
        certified = cell.spec.certified
        num_candidates = recipe.num_candidates[0] if certified is None else cell.num_candidates
        num_candidates = num_candidates if asked is None else asked
        if num_candidates > self.max_candidates:
            raise bad_request(
                f"num_candidates={num_candidates}: this server samples at most "
                f"{self.max_candidates} candidates a step",
                "num_candidates",
            )
        if cell.strategy.ignores_num_candidates:
            num_candidates = 1
        try:
            check_width(cell.strategy, label, num_candidates)
        except BadInputError as error:
            raise bad_request(str(error), "num_candidates") from error
        budget = recipe.budget if request.budget is None else request.budget
        if recipe.budget is not None and budget is not None and budget > recipe.budget:
            raise bad_request(
                f"budget={budget}: this server samples at most {recipe.budget} candidates a search",
                "budget",
            )
        try:
            check_trained("price", request.price or 0.0, cell.prices)
        except BadInputError as error:
            raise bad_request(str(error), "price") from error
        settings = Settings(
            strategy=label,
            num_candidates=num_candidates,
            budget=budget,
            price=cell.price if request.price is None else request.price,
            seed=recipe.seeds[0] if request.seed is None else request.seed,
        )
        return dataclasses.replace(settings, guarantee=self._guarantee(settings, request))

    def decided(self, result: SearchResult, settings: Settings) -> SearchResult:
        """The result, without its answer if the strategy's certificate requires to abstain."""
        certified = self._cells[settings.strategy].spec.certified
        return result if certified is None else decided(result, certified.threshold)

    def _guarantee(self, settings: Settings, request: ChatRequest) -> Guarantee | None:
        """The guarantee of a search; it is broken if the request changes a certified setting."""
        found = self._guarantees.get(settings.strategy)
        if found is None:
            return None
        cell = self._cells[settings.strategy]
        wanted = {
            "num_candidates": cell.num_candidates,
            "budget": self.recipe.budget,
            "price": cell.price,
        }
        broken = [
            f"the request's {name} is {getattr(settings, name)}, not {value}"
            for name, value in wanted.items()
            if getattr(settings, name) != value
        ]
        if request.system is not None:
            broken.append("the request has a system message")
        return dataclasses.replace(found, broken=(*found.broken, *broken))

    def load(self, models: ModelSource) -> Loaded:
        """Check and load the models.

        Raises:
            BadInputError: a model is missing, does not fit its format or into memory, or is not
                that of a strategy's certificate.
        """
        # With resolved formats, as in manifests and therefore in certificates.
        self.recipe = recipe = dataclasses.replace(
            self.recipe,
            policy=resolve_format(self.recipe.policy),
            prms=tuple(map(resolve_format, self.recipe.prms)),
        )
        cells = [*self._cells.values()]
        check_outcome_models(cells)
        check_there((recipe.policy, *recipe.prms))
        check_gpu_shares(recipe.policy, recipe.prms)
        scored = any(cell.prm is not None for cell in cells)
        prms = recipe.prms if scored else ()
        known = fingerprints(models, recipe.policy, prms)
        asked = asked_of(recipe) | asked_prompts(cells)
        self._guarantees = guarantees(recipe, known, asked, of_questions=False)
        check_models(models, recipe.policy, prms, largest_work(recipe, cells))
        broken = [each.line for each in self._guarantees.values() if not each.holds]
        policy = models.policy(recipe.policy)
        check_steps(policy, recipe, cells)
        return Loaded(
            offer=self,
            policy=policy,
            scorer=models.prm(prms[0]) if prms else None,
            grader=default_grader(recipe.questions),
            warnings=(*foreign_models(recipe.strategies, known), *broken),
        )

    def cell(self, label: str) -> Cell:
        """The strategy of a label, at the largest N."""
        return self._cells[label]


@dataclass(frozen=True)
class Loaded:
    """An offer with its models, and warnings to the user about them, one line each."""

    offer: Offer
    policy: StepGenerator
    scorer: StepScorer | None
    grader: AnswerGrader
    warnings: tuple[str, ...] = ()

    def check_budget(self, settings: Settings) -> None:
        """Raise BadInputError if a budget needs single steps, and the policy has whole answers."""
        limited = dataclasses.replace(self.offer.recipe, budget=settings.budget)
        check_steps(self.policy, limited, [self.offer.cell(settings.strategy)])

    def check_question(self, question: Question, settings: Settings) -> None:
        """Raise BadInputError unless the models can read a question."""
        self.searcher(settings).check_question(question)
        check_world_question(question.text, self.offer.recipe.policy)

    def searcher(self, settings: Settings) -> Searcher:
        """The searcher that answers as the server does."""
        recipe, cell = self.offer.recipe, self.offer.cell(settings.strategy)
        return searcher_of(
            cell,
            recipe,
            self.policy,
            None if cell.prm is None else self.scorer,
            self.grader,
            num_candidates=settings.num_candidates,
            budget=settings.budget,
            price=settings.price,
            seed=settings.seed,
        )
