"""The cost of a step bank, estimated before anything is sampled."""

from __future__ import annotations

from dataclasses import dataclass

from ..models.footprint import PROMPT_TOKENS
from ..models.source import thought_tokens
from .recipe import BankRecipe


@dataclass(frozen=True)
class BankCost:
    """Cost of the questions of a bank.

    Attributes:
        paths: complete paths that are drawn for every question, over all sampling settings.
        samples: steps that the policy samples.
        sampled: tokens that it samples.
        scored: tokens that each PRM computes; the policy's own confidence computes none.
    """

    paths: int
    samples: int
    sampled: int
    scored: int


def bank_cost(recipe: BankRecipe, questions: int) -> BankCost:
    """Approximate upper bound on the cost of a bank of so many questions.

    Every path is counted to the last step, and every step at its largest length. The draws of a
    step are those of the paths, of revisited nodes, of the nodes that are drawn like the root, and
    of the paths that began at such nodes before. A bank costs less, often by far: most paths end
    early, and equal samples are scored only once.
    """
    allocation, prms = recipe.allocation, len(recipe.prms)
    root = sum(draws.root_draws for draws in allocation.draws)
    revisit = sum(draws.revisit_draws for draws in allocation.draws)
    most = max(draws.root_draws for draws in allocation.draws)
    revisited = allocation.revisits_per_prm * prms + int(most / allocation.revisit_arrivals)
    like_root = allocation.root_draws_per_prm * prms
    extra = revisited * revisit + like_root * root
    steps, policy = recipe.max_depth, recipe.policy
    # Each extra draw may begin a path, which is drawn at all later steps, too.
    samples = steps * root + extra * steps * (steps - 1) // 2
    last = root + extra * (steps - 1)
    longest = max(policy.max_step_tokens, policy.max_answer_tokens)
    sampled = (samples - last) * policy.max_step_tokens + last * longest
    sampled += samples * thought_tokens(policy)
    tries = 1 if policy.examples is None else 2  # a step with an example has a first try
    return BankCost(
        paths=root,
        samples=questions * samples,
        sampled=questions * sampled * tries,
        scored=questions * (PROMPT_TOKENS + sampled),
    )
