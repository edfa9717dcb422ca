"""The common part of the three algorithms: gradients of both losses, and optimiser steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

import search

from .losses import critic_loss, entropy
from .networks import Network
from .policy import legal_log_probs, log_prob_of
from .types import LearnerState, Metrics


class Decisions(NamedTuple):
    """The inputs of actor and critic, with the actions taken; `N` rows."""

    features: jax.Array  # f32[N, F]
    available: jax.Array  # i32[N]; candidates left when the action was taken
    action: jax.Array  # i32[N]


class ActorCritic(NamedTuple):
    """Both networks, their action table and their optimiser.

    Attributes:
        actor: network that gives the logits of the actions.
        critic: network that gives the values of nodes.
        actions: action table, which gives the mask of legal actions in log pi.
    """

    actor: Network
    critic: Network
    actions: search.cats.ActionTable
    optimizer: optax.GradientTransformation

    def init(self, key: jax.Array) -> LearnerState:
        """Fresh parameters and optimiser states; consumes the key."""
        actor_key, critic_key = jax.random.split(key)
        actor_params, critic_params = self.actor.init(actor_key), self.critic.init(critic_key)
        return LearnerState(
            actor=actor_params,
            critic=critic_params,
            actor_optimizer=self.optimizer.init(actor_params),
            critic_optimizer=self.optimizer.init(critic_params),
        )

    def gradients(
        self,
        state: LearnerState,
        decisions: Decisions,
        share: Float[Array, " N"],
        errors: Callable[[Any], Float[Array, " N"]],
        actor_loss: Callable[[Float[Array, " N"], Float[Array, " N"]], Float[Array, " N"]],
        entropy_weight: Float[Array, ""],
    ) -> tuple[Any, Any, Metrics]:
        """Gradients of sum_n share_n * loss_n for actor and critic, and sums of metrics.

        Both losses use the critic's errors before its step, as in Algorithm 1.

        Args:
            state: parameters at which to differentiate.
            decisions: inputs of the actor, and the actions taken.
            share: weight of each row in the sum.
            errors: function from the critic's parameters to the error of each row, f32[N].
            actor_loss: `(log_prob, errors) -> loss`, row by row.
            entropy_weight: factor of the weighted sum of entropies that is subtracted.
        """

        def critic_objective(params: Any) -> tuple[jax.Array, jax.Array]:
            error = errors(params)
            return jnp.sum(share * critic_loss(error)), error

        critic_grad = jax.value_and_grad(critic_objective, has_aux=True)
        (critic_value, error), critic_gradient = critic_grad(state.critic)

        def actor_objective(params: Any) -> tuple[jax.Array, Any]:
            legal = jax.vmap(self.actions.legal)(decisions.available)
            log_probs = legal_log_probs(self.actor.apply(params, decisions.features), legal)
            loss = jnp.sum(share * actor_loss(log_prob_of(log_probs, decisions.action), error))
            mean_entropy = jnp.sum(share * entropy(log_probs))
            return loss - entropy_weight * mean_entropy, (loss, mean_entropy)

        actor_grad = jax.grad(actor_objective, has_aux=True)
        actor_gradient, (actor_value, mean_entropy) = actor_grad(state.actor)
        metrics = Metrics(
            td_error=jnp.sum(share * jnp.abs(error)),
            critic_loss=critic_value,
            actor_loss=actor_value,
            entropy=mean_entropy,
        )
        return actor_gradient, critic_gradient, metrics

    def no_gradients(self, state: LearnerState) -> tuple[Any, Any, Metrics]:
        """The result of `gradients` without rows: zeros."""
        return jax.tree.map(jnp.zeros_like, (state.actor, state.critic, no_metrics()))

    def descend(
        self, state: LearnerState, actor_gradient: Any, critic_gradient: Any
    ) -> LearnerState:
        """The state after one optimiser step of each network."""
        # Adam's bias correction is a float to the power of an integer count.
        with jax.numpy_dtype_promotion("standard"):
            actor_change, actor_optimizer = self.optimizer.update(
                actor_gradient, state.actor_optimizer
            )
            critic_change, critic_optimizer = self.optimizer.update(
                critic_gradient, state.critic_optimizer
            )
        return LearnerState(
            actor=optax.apply_updates(state.actor, actor_change),
            critic=optax.apply_updates(state.critic, critic_change),
            actor_optimizer=actor_optimizer,
            critic_optimizer=critic_optimizer,
        )


def no_metrics() -> Metrics:
    """The metrics without rows: zeros."""
    zero = jnp.float32(0.0)
    return Metrics(td_error=zero, critic_loss=zero, actor_loss=zero, entropy=zero)


def choose(condition: Any, on_true: LearnerState, on_false: LearnerState) -> LearnerState:
    """One of two states, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), on_true, on_false)
