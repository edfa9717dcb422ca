"""Proximal policy optimisation (Schulman et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

import search

from .actor_critic import ActorCritic, Decisions, choose
from .advantages import at_least_tiny, moments, td_errors, total_weight
from .losses import clipped_loss
from .rows import Rows, map_blocks, pack, shuffle, sum_blocks
from .types import LearnerState, Metrics


@dataclass(frozen=True)
class PPO:
    """The actor's loss is PPO's clipped surrogate, see `learners.clipped_loss`.

    Advantages and the critic's targets are computed with the parameters before the update.

    Attributes:
        clip: epsilon, in (0, 1).
        num_epochs: passes over the transitions of one update.
        num_minibatches: optimiser steps of one pass, on about equal shares of the transitions,
            drawn without replacement.
        normalize_advantages: scale the advantages (TD errors) to mean 0 and deviation 1.

    Raises:
        ValueError: a value is out of range.
    """

    clip: float = 0.2
    num_epochs: int = 4
    num_minibatches: int = 4
    normalize_advantages: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.clip < 1.0:
            raise ValueError(f"clip must be in (0, 1), got {self.clip}")
        for name in ("num_epochs", "num_minibatches"):
            search.interface.check_count(name, getattr(self, name), 1)

    @property
    def steps_per_update(self) -> int:
        """Optimiser steps of one update."""
        return self.num_epochs * self.num_minibatches

    def update(
        self,
        model: ActorCritic,
        state: LearnerState,
        transitions: search.cats.Transition,
        entropy_weight: Float[Array, ""],
        key: jax.Array | None,
    ) -> tuple[LearnerState, Metrics]:
        """See `learners.Learner.update`; the key shuffles the minibatches and is consumed.

        Raises:
            ValueError: several minibatches without a key.
        """
        if key is None and self.num_minibatches > 1:
            raise ValueError("minibatches need a key to shuffle with: pass key=...")
        rows = pack(transitions.weight_t > 0.0)
        total = total_weight(transitions.weight_t)
        experience = self._experience(model, state, rows, transitions, total)

        def epoch(state: LearnerState, key: jax.Array | None) -> tuple[LearnerState, Metrics]:
            shuffled = rows if key is None else shuffle(rows, key)

            def minibatch(
                state: LearnerState, index: Int[Array, ""]
            ) -> tuple[LearnerState, Metrics]:
                state, metrics, weight = self._step(
                    model, state, shuffled, experience, index, entropy_weight
                )
                return state, jax.tree.map(lambda leaf: leaf * weight / total, metrics)

            indices = jnp.arange(self.num_minibatches, dtype=jnp.int32)
            state, metrics = lax.scan(minibatch, state, indices)
            return state, jax.tree.map(jnp.sum, metrics)

        keys = None if key is None else jax.random.split(key, self.num_epochs)
        state, metrics = lax.scan(epoch, state, keys, length=self.num_epochs)
        return state, jax.tree.map(lambda leaf: leaf[0], metrics)

    def _experience(
        self,
        model: ActorCritic,
        state: LearnerState,
        rows: Rows,
        transitions: search.cats.Transition,
        total: Float[Array, ""],
    ) -> _Experience:
        """Quantities of `M` transitions, computed with the parameters before the update."""
        weight = transitions.weight_t
        td = map_blocks(
            lambda block: td_errors(model.critic, state.critic, block), rows, transitions
        )
        value = map_blocks(
            lambda block: model.critic.apply(state.critic, block.features_tm1), rows, transitions
        )
        shift, scale = jnp.float32(0.0), jnp.float32(1.0)
        if self.normalize_advantages:
            shift, scale = moments(td, weight, total)
        return _Experience(
            decisions=Decisions(
                transitions.features_tm1, transitions.available_tm1, transitions.action_tm1
            ),
            log_prob=transitions.log_prob_tm1,
            advantage=(td - shift) / scale,
            target=td + value,
            weight=weight,
        )

    def _step(
        self,
        model: ActorCritic,
        state: LearnerState,
        rows: Rows,
        experience: _Experience,
        index: Int[Array, ""],
        entropy_weight: Float[Array, ""],
    ) -> tuple[LearnerState, Metrics, Float[Array, ""]]:
        """One step on minibatch `index` of the rows; its mean metrics and its weight."""
        start = index * rows.num_rows // self.num_minibatches
        stop = (index + 1) * rows.num_rows // self.num_minibatches

        def of_block(block: _Experience) -> tuple[Any, Float[Array, ""]]:
            gradients = model.gradients(
                state,
                block.decisions,
                block.weight,
                lambda params: block.target - model.critic.apply(params, block.decisions.features),
                lambda log_prob, _: clipped_loss(
                    log_prob, block.log_prob, block.advantage, self.clip
                ),
                entropy_weight,
            )
            return gradients, jnp.sum(block.weight)

        blank = (model.no_gradients(state), jnp.float32(0.0))
        sums, weight = sum_blocks(of_block, rows, experience, blank, start, stop)
        actor_gradient, critic_gradient, metrics = jax.tree.map(
            lambda leaf: leaf / at_least_tiny(weight), sums
        )
        stepped = model.descend(state, actor_gradient, critic_gradient)
        return choose(stop > start, stepped, state), metrics, weight


class _Experience(NamedTuple):
    """The quantities that are held fixed during an update; `M` rows."""

    decisions: Decisions  # [M]
    log_prob: jax.Array  # f32[M]; when the action was taken
    advantage: jax.Array  # f32[M]; normalised if `normalize_advantages`
    target: jax.Array  # f32[M]; of the critic
    weight: jax.Array  # f32[M]
