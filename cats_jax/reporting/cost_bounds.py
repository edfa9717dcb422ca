"""Bounds on the mean costs of a question for a configuration: candidates, tokens and FLOPs.

A bound on a mean needs the largest possible cost of a question. For candidates this is the budget.
For tokens it follows from the limits of a step and of an answer, see `PREMISE`: a prompt has at
most `PROMPT_TOKENS` tokens, and a format adds at most `MARK_TOKENS` tokens around a step. The FLOPs
of a token are twice the parameters of its model, computed from the ledgers of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import theory

from ..errors import BadInputError
from ..models.footprint import MARK_TOKENS, PROMPT_TOKENS
from ..runs.folder import Row, RunFolder
from .groups import Group

PREMISE = (
    f"the bounds on tokens and FLOPs are for prompts of at most {PROMPT_TOKENS} tokens, for PRMs "
    "with the policy's vocabulary that write nothing, and for models that compute each token of a "
    "question once"
)

_NUM_COSTS = 3


@dataclass(frozen=True)
class CostBounds:
    """Upper bounds on the mean costs of a question, which hold together.

    Attributes:
        candidates: sampled steps.
        tokens: tokens as in `Ledger.tokens`. None if the run does not state the limits of steps and
            answers, if the strategy rewrites or compares answers, if steps have examples, if a
            question exceeds the premise, or if no question has tokens.
        flops: FLOPs of policy and PRM. None in the same cases, and if the rows do not count FLOPs.
    """

    candidates: float
    tokens: float | None
    flops: float | None


def cost_bounds(run: RunFolder, group: Group, *, delta: float, choices: int) -> CostBounds:
    """Bounds that hold together, also for a configuration that was chosen by its results.

    The bound on each cost has the level delta / (3 choices), see `theory.cost_upper`.

    Args:
        run: the run.
        group: rows of a configuration of the run.
        delta: largest probability that any bound of any configuration is too low, in (0, 1).
        choices: number of configurations that could have been chosen, at least 1.

    Raises:
        BadInputError: a question has more candidates than the manifest's budget.
    """
    config = run.manifest["config"]
    formats = run.manifest.get("formats") or {}
    rewrites = f"rewriting {group.strategy}" in formats
    candidates = config.get("budget") or group.num_candidates * run.max_depth
    if rewrites:  # each candidate is one of N answers
        candidates = min(candidates, group.num_candidates)
    level = delta / _NUM_COSTS
    values = _means(group, "candidates")
    if values.max() > candidates:
        raise BadInputError(
            f"{group.name} has a question with {values.max():g} candidates, more than the budget "
            f"of {candidates} in the run's manifest: search the questions anew, by `cats-jax "
            "evaluate`"
        )
    sampled = _most_sampled(config["policy"], group.num_candidates, candidates)
    if rewrites or f"comparison {group.strategy}" in formats or config["policy"].get("examples"):
        # Prompts hold answers or examples, and critiques, choices, first tries are no candidates.
        sampled = None
    tokens = flops = None
    if sampled is not None:
        computed = PROMPT_TOKENS + sampled + MARK_TOKENS * candidates
        scored = 0 if group.prm is None else computed
        tokens = _bound(group, "tokens", sampled + scored, level, choices)
        rates = _flops_per_token(group.rows)
        if rates is not None:
            policy, prm = rates
            most = computed * policy + scored * prm
            flops = _bound(group, "flops", most, level, choices)
    of_candidates = theory.cost_upper(values, limit=candidates, delta=level, num_choices=choices)
    return CostBounds(of_candidates, tokens, flops)


def _bound(group: Group, cost: str, most: float, level: float, choices: int) -> float | None:
    """The bound; None if a question breaks the premise, or if no question has a cost."""
    values = _means(group, cost)
    if not 0 < values.max() <= most:
        return None
    return theory.cost_upper(values, limit=most, delta=level, num_choices=choices)


def _means(group: Group, cost: str) -> np.ndarray:
    """Mean over seeds of each question's cost, f64[questions]."""
    return np.array(list(group.by_question(cost).values()))


def _most_sampled(policy: dict[str, Any], width: int, candidates: int) -> int | None:
    """Most tokens that a question samples; None if the run does not state the limits.

    A sample ends with its step, except at the last step, where it continues to the end of the
    answer. The format of a file may have thoughts, whose budget the run does not state.
    """
    step, answer = policy.get("max_step_tokens"), policy.get("max_answer_tokens")
    in_file = str(policy.get("format", "")).endswith((".yaml", ".yml"))
    if step is None or answer is None or in_file:
        return None
    last, whole = min(width, candidates), max(step, answer)
    if policy.get("chat"):  # it may sample a step twice, or a whole answer as one step
        step = max(2 * step, whole)
    return (candidates - last) * step + last * whole


def _flops_per_token(rows: Sequence[Row]) -> tuple[float, float] | None:
    """FLOPs of a token of the policy and of the PRM; None if the rows do not count them."""
    policy = prm = 0.0
    for row in rows:
        ledger = row.ledger
        if ledger.prompt_computed:
            policy = max(policy, (ledger.flops - ledger.prm_flops) / ledger.prompt_computed)
        if ledger.prm_computed:
            prm = max(prm, ledger.prm_flops / ledger.prm_computed)
    return (policy, prm) if policy > 0 else None
