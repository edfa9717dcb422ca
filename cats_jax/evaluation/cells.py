"""The grid of a recipe: one cell for each distinct search of a strategy, N, PRM and seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import search

from ..controllers.strategies import build_strategy
from ..errors import BadInputError
from ..live.arguments import (
    check_outcome_model,
    check_width,
    missing_certainty,
    missing_vectors,
)
from ..live.comparison_rules import most_matches
from ..live.comparisons import not_a_judge
from ..models.footprint import PromptLoad
from ..models.resolve import resolve_models
from ..models.source import is_outcome_model, thought_tokens, writes_verdicts
from ..protocols import Question
from ..runs.folder import row_key
from ..specs.calibrations import IDENTITY, CalibrationValues, calibration_of
from ..specs.comparing import ComparisonPrompt
from ..specs.models import PolicySpec
from ..specs.recipe import PrmSpec, Recipe, StrategySpec
from ..specs.rewriting import Rewriting
from ..specs.strategy_prompts import StrategyPrompts, load_strategy_prompts
from ..storage.yaml_file import naming
from .guarantees import certified_prm


@dataclass(frozen=True)
class Cell:
    """One strategy with one N, PRM and seed: one result row per question.

    Attributes:
        spec: the strategy as the recipe describes it.
        strategy: the strategy built from `spec`.
        params: parameters of the strategy's controller; `()` without one.
        price: price of 100 candidates or 1000 tokens in units of a right answer, an input of the
            controller.
        num_candidates: N; 1 for strategies that ignore it.
        prm: the PRM; None for strategies that read no scores.
        seed: run seed.
        calibration: values of the PRM's calibration; the identity if the recipe has none.
        prm_token_cost: cost of a PRM token relative to a policy token, an input of the controller.
        prompts: prompts of the strategy's rewrites and comparisons.
        prices: prices in the training of the controller; empty without one.
    """

    spec: StrategySpec
    strategy: search.Strategy = field(repr=False)
    params: Any = field(repr=False)
    num_candidates: int
    prm: PrmSpec | None
    seed: int
    calibration: CalibrationValues = IDENTITY
    price: float = 0.0
    prm_token_cost: float = 1.0
    prompts: StrategyPrompts = field(default_factory=StrategyPrompts)
    prices: Sequence[float] = ()

    @property
    def title(self) -> str:
        """Strategy, N, PRM and seed in a short text for progress and tables."""
        prm = "" if self.prm is None else f" {self.prm.label}"
        return f"{self.spec.label} N={self.num_candidates}{prm} seed {self.seed}"

    @property
    def pool(self) -> str | None:
        """Name of the pool of whole paths whose first N this cell reads; see `pool_name`."""
        return pool_name(self.strategy, self.seed)

    def key(self, question_id: str) -> str:
        """Key of the result row of a question in this cell."""
        prm = None if self.prm is None else self.prm.label
        return row_key(self.spec.label, self.num_candidates, prm, self.seed, question_id)


def pool_name(strategy: search.Strategy, seed: int) -> str | None:
    """Name of the pool of whole paths whose first N a strategy reads with a run seed.

    None for a strategy that prunes: its paths differ at each N.
    """
    if not strategy.keeps_all_paths or strategy.width(256) != 256:
        return None
    certainty = strategy.certainty and strategy.certainty.token
    return f"seed {seed}, {strategy.sampling}, {certainty}, {strategy.needs_vectors}"


def grid(
    recipe: Recipe, known_prompts: Mapping[str, StrategyPrompts] | None = None
) -> tuple[Cell, ...]:
    """The cells of a recipe ordered by PRM, without repetitions.

    The cells of a strategy that keeps all paths begin with the largest N, whose paths the smaller N
    share.

    Args:
        recipe: the recipe.
        known_prompts: prompts of all strategies, by label; default: they are read.

    Raises:
        BadInputError: a strategy is unknown, or can't work with this recipe.
    """
    cells: list[Cell] = []
    for prm in (None, *recipe.prms):
        for spec in recipe.strategies:
            certified = spec.certified
            if certified is not None and prm is not None and prm is not certified_prm(spec, recipe):
                continue
            method = build_strategy(spec, getattr(certified or prm, "path_score", None))
            strategy = method.strategy
            if strategy.uses_scores != (prm is not None):
                continue
            calibration = IDENTITY if certified is None else certified.calibration
            if certified is None and prm is not None:
                required = strategy.needs_calibration
                calibration = calibration_of(prm.label, recipe.calibration, required=required)
            if known_prompts is not None:
                prompts = known_prompts[spec.label]
            else:
                with naming(f"strategy {spec.label!r}"):
                    prompts = load_strategy_prompts(strategy)
            check_log_probs(f"strategy {spec.label!r}", strategy, calibration, recipe.policy)
            _check_reported(spec.label, strategy, prm, recipe.policy)
            once = strategy.ignores_num_candidates
            values = (1,) if once else recipe.num_candidates
            if certified is not None:
                values = (certified.num_candidates,)
            if strategy.keeps_all_paths:
                values = sorted(values, reverse=True)
            for num_candidates in values:
                check_width(strategy, spec.label, num_candidates)
                for seed in recipe.seeds[:1] if once else recipe.seeds:
                    cells.append(
                        Cell(
                            spec=spec,
                            strategy=strategy,
                            params=method.params,
                            num_candidates=num_candidates,
                            prm=prm,
                            seed=seed,
                            calibration=calibration,
                            price=method.price,
                            prm_token_cost=method.prm_token_cost,
                            prompts=prompts,
                            prices=method.prices,
                        )
                    )
    for spec in recipe.strategies:
        if not any(cell.spec is spec for cell in cells):
            raise BadInputError(
                f"strategy {spec.label!r} reads PRM scores, but the recipe has no PRM: add 'prms'"
            )
    return tuple(cells)


def resolved_recipe(recipe: Recipe, cells: Sequence[Cell], questions: Sequence[Question]) -> Recipe:
    """The recipe with its models as this machine runs them, see `models.resolve`."""
    policy, prms = resolve_models(
        recipe.policy,
        recipe.prms,
        questions,
        recipe.max_depth,
        *(prompt_tokens_of(cells, recipe, judge) for judge in ("policy", "prm")),
    )
    return dataclasses.replace(recipe, policy=policy, prms=prms)


def resolved_cells(cells: Sequence[Cell], given: Recipe, resolved: Recipe) -> tuple[Cell, ...]:
    """The cells of the recipe `given` with the models and labels of the resolved recipe.

    `resolved` is the same recipe with other settings of its PRMs and labels of its strategies.
    """
    specs = _by_label(given.strategies, resolved.strategies)
    prms = _by_label(given.prms, resolved.prms)
    return tuple(
        dataclasses.replace(
            cell,
            spec=specs[cell.spec.label],
            prm=None if cell.prm is None else prms[cell.prm.label],
        )
        for cell in cells
    )


def prompts_of(cells: Sequence[Cell]) -> dict[str, Rewriting | ComparisonPrompt]:
    """The prompts of strategies that rewrite or compare answers, by kind and label."""
    return {
        f"{kind} {cell.spec.label}": prompts
        for cell in cells
        for kind, prompts in cell.prompts.by_kind().items()
    }


def asked_prompts(cells: Sequence[Cell]) -> dict[str, Any]:
    """The part of a manifest's entry `asked` about such prompts: the digests of their texts."""
    return {key: {"files": each.digests()} for key, each in prompts_of(cells).items()}


def prompt_tokens_of(cells: Sequence[Cell], recipe: Recipe, judge: str = "policy") -> int:
    """Most tokens that one of the `written_prompts` has besides the question's; 0 without any."""
    return max((each.tokens for each in written_prompts(cells, recipe, judge)), default=0)


def written_prompts(
    cells: Sequence[Cell], recipe: Recipe, judge: str = "policy"
) -> tuple[PromptLoad, ...]:
    """The largest prompts of rewrites and comparisons, and how many a question has at once.

    Tokens are those of the recipe's policy. With the `judge` "prm", only prompts that PRMs read
    count, otherwise those that the policy reads.
    """
    policy = recipe.policy
    last = max(policy.max_step_tokens, policy.max_answer_tokens)
    path = (recipe.max_depth - 1) * policy.max_step_tokens + last
    found: dict[PromptLoad, None] = {}
    for cell in cells:
        strategy, prompts = cell.strategy, cell.prompts
        if prompts.rewriting is not None and judge == "policy":
            found[PromptLoad(prompts.rewriting.prompt_tokens(last), cell.num_candidates)] = None
        comparison, prompt = strategy.comparison, prompts.comparison
        if comparison is not None and prompt is not None and comparison.judge == judge:
            answers = strategy.width(cell.num_candidates)
            tokens = prompt.prompt_tokens(path, comparison.most_shown(answers))
            found[PromptLoad(tokens, most_matches(comparison, answers))] = None
    return tuple(found)


def check_outcome_models(cells: Sequence[Cell]) -> None:
    """Raise BadInputError if a cell's PRM can't do what its strategy needs.

    An outcome model gives no scores of unfinished paths, and only a judge that writes can compare.
    Reads the models' configurations, but no weights.
    """
    outcome = {
        prm: is_outcome_model(prm) for prm in dict.fromkeys(cell.prm for cell in cells if cell.prm)
    }
    for cell in cells:
        if cell.prm is not None and outcome[cell.prm]:
            check_outcome_model(cell.strategy, cell.spec.label, cell.prm.label)
        comparison = cell.strategy.comparison
        compares = comparison is not None and comparison.judge == "prm"
        if compares and cell.prm is not None and writes_verdicts(cell.prm) is False:
            raise BadInputError(not_a_judge(cell.spec.label, f" {cell.prm.label!r}"))


def _by_label(given: Sequence[Any], resolved: Sequence[Any]) -> dict[str, Any]:
    return {old.label: new for old, new in zip(given, resolved, strict=True)}


def check_log_probs(
    name: str, strategy: search.Strategy, calibration: CalibrationValues, policy: PolicySpec
) -> None:
    """Raise BadInputError if a search reads log-probabilities that its policy leaves out."""
    missing = _missing_log_probs(policy, "take another strategy or calibration")
    by_likelihood = strategy.calibrated and search.Calibration(*calibration).likelihood != 0.0
    if missing and (strategy.needs_log_probs or by_likelihood):
        raise BadInputError(f"{name} reads the policy's log-probabilities, {missing}")


def _check_reported(
    label: str, strategy: search.Strategy, prm: PrmSpec | None, policy: PolicySpec
) -> None:
    """Raise BadInputError if a search reads what its policy can't report.

    This is a certainty, the vectors of steps, or the confidence that stands in for a PRM.
    """
    # A thought has tokens that were put in.
    if strategy.certainty is not None:
        reported = () if thought_tokens(policy) else policy.certainties
        if reported is not None and strategy.certainty.token not in reported:
            raise BadInputError(missing_certainty(label, strategy.certainty.token, reported))
    if strategy.needs_vectors and (thought_tokens(policy) or policy.vectors is False):
        raise BadInputError(missing_vectors(label))
    missing = _missing_log_probs(policy, "take another PRM")
    if prm is not None and prm.is_confidence and missing:
        raise BadInputError(f"PRM {prm.label!r} is the policy's own confidence, {missing}")


def _missing_log_probs(policy: PolicySpec, way_out: str) -> str | None:
    """Why the policy reports no log-probabilities, and the way out; None if it reports them."""
    if policy.chat:
        return f"which a policy with chat: true does not report: {way_out}"
    if policy.log_probs is False:
        return f"which log_probs: false leaves out: leave that key out, or {way_out}"
    return None
