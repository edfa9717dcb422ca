"""The prompts that a strategy has beside the question: those of its rewrites and comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import search

from ..errors import BadInputError
from .comparing import ComparisonPrompt, load_comparison
from .rewriting import Rewriting, load_rewriting


@dataclass(frozen=True, slots=True)
class StrategyPrompts:
    """Prompts as first read, so that changes of files have no effect; None without prompts."""

    rewriting: Rewriting | None = None
    comparison: ComparisonPrompt | None = None

    def check(self, strategy: search.Strategy) -> None:
        """Raise BadInputError if a prompt of the strategy is not among these."""
        wanted = {"rewriting": strategy.rewriting, "comparison": strategy.comparison}
        for kind, choice in wanted.items():
            if choice is not None and kind not in self.by_kind():
                raise BadInputError(
                    f"prompts: strategy {strategy.name!r} has a {kind}, and its prompt is missing: "
                    "give those of specs.strategy_prompts.load_strategy_prompts, or none"
                )

    def by_kind(self) -> dict[str, Rewriting | ComparisonPrompt]:
        """The prompts that there are, by "rewriting" or "comparison"."""
        kinds = {"rewriting": self.rewriting, "comparison": self.comparison}
        return {kind: prompt for kind, prompt in kinds.items() if prompt is not None}


def load_strategy_prompts(strategy: search.Strategy) -> StrategyPrompts:
    """The prompts of a strategy; BadInputError for unknown names and files that break a rule."""
    rewriting, comparison = strategy.rewriting, strategy.comparison
    return StrategyPrompts(
        None if rewriting is None else load_rewriting(rewriting),
        None if comparison is None else load_comparison(comparison.prompt),
    )
