"""A question to search, and the settings that questions share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import search

from ..protocols import Question
from . import ticks
from .limits import Limits


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
