"""A question to search, the settings that questions share, and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import search

from ..protocols import Question
from . import ticks
from .ledger import Ledger
from .results import Status


@dataclass(frozen=True)
class Limits:
    """Limits per question; None is no limit.

    Attributes:
        max_tokens: tokens sampled by the policy plus tokens computed by the PRM.
        max_seconds: seconds spent on the question, as in its ledger.
    """

    max_tokens: int | None = None
    max_seconds: float | None = None

    def exceeded(self, ledger: Ledger) -> tuple[Status, str] | None:
        """The limit that a question has reached, with the reason in one line, or None."""
        tokens, seconds = ledger.tokens, ledger.seconds
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return "max_tokens", f"{tokens} tokens, limit {self.max_tokens}"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "max_seconds", f"{seconds:.1f} s spent, limit {self.max_seconds}"
        return None


@dataclass(frozen=True)
class SearchSettings:
    """Settings that all questions of a run share; `num_candidates` is the largest N of them."""

    strategy: search.Strategy
    num_candidates: int
    max_depth: int
    limits: Limits
    recorder: search.Recorder | None = None

    @property
    def capacity(self) -> int:
        """Number of rows of the pool."""
        return search.state.capacity_for(self.num_candidates)

    @property
    def frontier_capacity(self) -> int:
        """Number of rows of the frontier and of the finished paths."""
        return search.state.capacity_for(self.strategy.width(self.num_candidates))

    @property
    def shapes(self) -> dict[str, Any]:
        """Static arguments of `ticks.first_states`."""
        return {
            "strategy": self.strategy,
            "max_depth": self.max_depth,
            "capacity": self.capacity,
            "frontier_capacity": self.frontier_capacity,
        }

    def reads_log_probs(self, inputs: ticks.SearchInputs) -> bool:
        """Whether a search with these inputs reads log-probabilities of the policy."""
        strategy, calibration = self.strategy, inputs.context.calibration
        return strategy.needs_log_probs or (strategy.calibrated and calibration.likelihood != 0.0)


@dataclass(frozen=True, slots=True)
class Job:
    """A question to search, with its own values.

    Attributes:
        question: the question. While it is open, the models serve no other question with its id.
        inputs: values of the core.
        seed, seed_name: the seeds of its candidates derive from them, see `candidate_seed`.
    """

    question: Question
    inputs: ticks.SearchInputs
    seed: int
    seed_name: str
