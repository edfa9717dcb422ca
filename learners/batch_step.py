"""A2C (Mnih et al. 2016) and AWR (Peng et al. 2019): one optimiser step on a whole batch.

A2C may also take the transitions one by one, in the order of Algorithm 1.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

import search

from . import losses
from .actor_critic import ActorCritic, Decisions, choose, no_metrics
from .advantages import moments, td_errors, total_weight
from .rows import map_blocks, pack, sum_blocks
from .types import LearnerState, Metrics


class _BatchStep(abc.ABC):
    """One optimiser step on the mean loss over the transitions, weighted by `weight_t`."""

    normalize_advantages: bool

    @property
    def steps_per_update(self) -> int | None:
        """Optimiser steps of one update; None if the number depends on the transitions."""
        return 1

    @abc.abstractmethod
    def actor_loss(
        self, log_prob: Float[Array, " N"], advantage: Float[Array, " N"]
    ) -> Float[Array, " N"]:
        """The loss of each decision."""

    def update(
        self,
        model: ActorCritic,
        state: LearnerState,
        transitions: search.cats.Transition,
        entropy_weight: Float[Array, ""],
        key: jax.Array | None,
    ) -> tuple[LearnerState, Metrics]:
        """See `learners.Learner.update`; the key is not used."""
        rows = pack(transitions.weight_t > 0.0)
        total = total_weight(transitions.weight_t)
        shift, scale = jnp.float32(0.0), jnp.float32(1.0)
        if self.normalize_advantages:
            td = map_blocks(
                lambda block: td_errors(model.critic, state.critic, block), rows, transitions
            )
            shift, scale = moments(td, transitions.weight_t, total)

        def of_block(block: search.cats.Transition) -> tuple[Any, Any, Metrics]:
            return model.gradients(
                state,
                Decisions(block.features_tm1, block.available_tm1, block.action_tm1),
                block.weight_t / total,
                lambda params: td_errors(model.critic, params, block),
                lambda log_prob, td: self.actor_loss(log_prob, (td - shift) / scale),
                entropy_weight,
            )

        actor_gradient, critic_gradient, metrics = sum_blocks(
            of_block, rows, transitions, model.no_gradients(state)
        )
        stepped = model.descend(state, actor_gradient, critic_gradient)
        return choose(rows.num_rows > 0, stepped, state), metrics


@dataclass(frozen=True)
class AWR(_BatchStep):
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

    def actor_loss(
        self, log_prob: Float[Array, " N"], advantage: Float[Array, " N"]
    ) -> Float[Array, " N"]:
        """See `learners.regression_loss`."""
        return losses.regression_loss(log_prob, advantage, self.temperature)


@dataclass(frozen=True)
class A2C(_BatchStep):
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

    def actor_loss(
        self, log_prob: Float[Array, " N"], advantage: Float[Array, " N"]
    ) -> Float[Array, " N"]:
        """See `learners.actor_loss`."""
        return losses.actor_loss(log_prob, advantage)

    def update(
        self,
        model: ActorCritic,
        state: LearnerState,
        transitions: search.cats.Transition,
        entropy_weight: Float[Array, ""],
        key: jax.Array | None,
    ) -> tuple[LearnerState, Metrics]:
        """See `learners.Learner.update`; the key is not used."""
        if not self.sequential:
            return super().update(model, state, transitions, entropy_weight, key)
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
                losses.actor_loss,
                entropy_weight,
            )
            sums = jax.tree.map(lambda a, b: a + b / total, sums, metrics)
            return model.descend(state, actor_gradient, critic_gradient), sums

        return lax.fori_loop(0, rows.num_rows, learn_row, (state, no_metrics()))
