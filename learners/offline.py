"""Offline training: the same updates, on rows drawn from a table of recorded decisions."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

import search

from .learner import make_learner
from .networks import make_actor, make_critic
from .train_config import TrainConfig
from .types import LearnerState, Metrics

_ROWS_PER_QUESTION = 16
"""Approximate number of decisions per question in online training."""


def make_offline(
    config: TrainConfig,
) -> Callable[[jax.Array, search.cats.Transition], tuple[LearnerState, Metrics]]:
    """The function `train(key, table) -> (state, metrics [I])`; pure, consumes the key.

    It makes `config.num_iterations` updates, each on `16 * config.num_episodes` rows of the table,
    drawn with replacement. The policy that took the decisions is the behaviour policy:

    - `AWR`: the behaviour policy may be any policy, deterministic or not. The critic learns its
      values. The actor learns its decisions, weighted by their advantages: one improvement step.
    - `PPO`: `log_prob_tm1` must be that of the behaviour policy; the result stays near it.
    - `A2C` treats the decisions as those of the actor. Section 6.1 of the paper trains on
      collected trajectories and does not name the behaviour policy.

    Args:
        config: training configuration; static.
    """
    actor = make_actor(len(config.cats.actions), config.actor_hidden)
    critic = make_critic(config.critic_hidden)
    learner = make_learner(
        actor, critic, config.cats.actions, config.learner, config.num_iterations
    )
    batch = _ROWS_PER_QUESTION * config.num_episodes

    def train(key: jax.Array, table: search.cats.Transition) -> tuple[LearnerState, Metrics]:
        size = table.weight_t.shape[0]

        def iterate(
            state: LearnerState, inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[LearnerState, Metrics]:
            index, key = inputs
            row_key, update_key = jax.random.split(key)
            rows = jax.random.randint(row_key, (batch,), 0, size)
            drawn = jax.tree.map(lambda leaf: leaf[rows], table)
            progress = index.astype(jnp.float32) / config.num_iterations
            bonus = config.entropy_weight * (1.0 - progress)
            return learner.update(state, drawn, bonus, update_key)

        init_key, run_key = jax.random.split(key)
        keys = jax.random.split(run_key, config.num_iterations)
        indices = jnp.arange(config.num_iterations, dtype=jnp.int32)
        return lax.scan(iterate, learner.init(init_key), (indices, keys))

    return train
