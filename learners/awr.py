"""Advantage-weighted regression (Peng et al. 2019), for decisions of other policies."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

import search

from .actor_critic import ActorCritic
from .batch_step import batch_step
from .losses import regression_loss
from .types import LearnerState, Metrics


@dataclass(frozen=True)
class AWR:
    """The actor's loss is -log pi(a | s) min(exp(A / temperature), 20).

    See `learners.regression_loss`. The decisions may come from any policy, deterministic or not.

    Attributes:
        temperature: > 0; towards 0 only the best decisions count; infinity is imitation.
        normalize_advantages: scale the advantages (TD errors) to mean 0 and deviation 1.

    Raises:
        ValueError: the temperature is out of range.
    """

    temperature: float = 0.5
    normalize_advantages: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0.0:
            raise ValueError(f"temperature must be > 0, got {self.temperature}")

    @property
    def steps_per_update(self) -> int:
        """Optimiser steps of one update."""
        return 1

    def update(
        self,
        model: ActorCritic,
        state: LearnerState,
        transitions: search.cats.Transition,
        entropy_weight: Float[Array, ""],
        key: jax.Array | None,
    ) -> tuple[LearnerState, Metrics]:
        """See `learners.Learner.update`; the key is not used."""
        return batch_step(
            model,
            state,
            transitions,
            entropy_weight,
            actor_loss=functools.partial(regression_loss, temperature=self.temperature),
            normalize_advantages=self.normalize_advantages,
        )
