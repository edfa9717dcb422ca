"""One optimiser step over all transitions of an update, as A2C and AWR take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

import search

from .actor_critic import ActorCritic, Decisions, choose
from .advantages import moments, td_errors, total_weight
from .rows import map_blocks, pack, sum_blocks
from .types import LearnerState, Metrics


def batch_step(
    model: ActorCritic,
    state: LearnerState,
    transitions: search.cats.Transition,
    entropy_weight: Float[Array, ""],
    *,
    actor_loss: Callable[[Float[Array, " N"], Float[Array, " N"]], Float[Array, " N"]],
    normalize_advantages: bool,
) -> tuple[LearnerState, Metrics]:
    """One optimiser step on the mean loss over `M` transitions, weighted by `weight_t`.

    Args:
        transitions: `M` rows; rows of weight 0 have no effect.
        actor_loss: `(log_prob, advantage) -> loss`, row by row.
        normalize_advantages: whether to scale the advantages to mean 0 and standard deviation 1.
    """
    rows = pack(transitions.weight_t > 0.0)
    total = total_weight(transitions.weight_t)
    shift, scale = jnp.float32(0.0), jnp.float32(1.0)
    if normalize_advantages:
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
            lambda log_prob, td: actor_loss(log_prob, (td - shift) / scale),
            entropy_weight,
        )

    actor_gradient, critic_gradient, metrics = sum_blocks(
        of_block, rows, transitions, model.no_gradients(state)
    )
    stepped = model.descend(state, actor_gradient, critic_gradient)
    return choose(rows.num_rows > 0, stepped, state), metrics
