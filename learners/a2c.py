"""Advantage actor-critic (Mnih et al. 2016), in one step or in the order of Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jax import lax
from jaxtyping import Array, Float, Int

import search

from .actor_critic import ActorCritic, Decisions, no_metrics
from .advantages import td_errors, total_weight
from .batch_step import batch_step
from .losses import actor_loss
from .rows import pack
from .types import LearnerState, Metrics


@dataclass(frozen=True)
class A2C:
    """The actor's loss is -log pi(a | s) A, see `learners.actor_loss`.

    Attributes:
        normalize_advantages: scale the advantages (TD errors) to mean 0 and deviation 1.
        sequential: take a critic step and an actor step for each transition in turn, as in
            Algorithm 1, which is slow. The transition's weight is a factor of its losses. Otherwise
            each network takes one step over all transitions.

    Raises:
        ValueError: both are set.
    """

    normalize_advantages: bool = False
    sequential: bool = False

    def __post_init__(self) -> None:
        if self.normalize_advantages and self.sequential:
            raise ValueError("normalize_advantages needs a batch: it excludes sequential")

    @property
    def steps_per_update(self) -> int | None:
        """Optimiser steps of one update; None if the number depends on the transitions."""
        return None if self.sequential else 1

    def update(
        self,
        model: ActorCritic,
        state: LearnerState,
        transitions: search.cats.Transition,
        entropy_weight: Float[Array, ""],
        key: jax.Array | None,
    ) -> tuple[LearnerState, Metrics]:
        """See `learners.Learner.update`; the key is not used."""
        if self.sequential:
            return _one_by_one(model, state, transitions, entropy_weight)
        return batch_step(
            model,
            state,
            transitions,
            entropy_weight,
            actor_loss=actor_loss,
            normalize_advantages=self.normalize_advantages,
        )


def _one_by_one(
    model: ActorCritic,
    state: LearnerState,
    transitions: search.cats.Transition,
    entropy_weight: Float[Array, ""],
) -> tuple[LearnerState, Metrics]:
    rows = pack(transitions.weight_t > 0.0)
    total = total_weight(transitions.weight_t)

    def learn_row(
        index: Int[Array, ""], carry: tuple[LearnerState, Metrics]
    ) -> tuple[LearnerState, Metrics]:
        state, sums = carry
        row = rows.take(transitions, index, 1, rows.num_rows)
        actor_gradient, critic_gradient, metrics = model.gradients(
            state,
            Decisions(row.features_tm1, row.available_tm1, row.action_tm1),
            row.weight_t,
            lambda params: td_errors(model.critic, params, row),
            actor_loss,
            entropy_weight,
        )
        sums = jax.tree.map(lambda a, b: a + b / total, sums, metrics)
        return model.descend(state, actor_gradient, critic_gradient), sums

    return lax.fori_loop(0, rows.num_rows, learn_row, (state, no_metrics()))
