"""Learners: the initial state of actor and critic, and one update of both from transitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

import search

from .actor_critic import ActorCritic
from .batch_step import A2C, AWR
from .networks import Network
from .ppo import PPO
from .types import LearnerState, Metrics

ALGORITHMS = {"A2C": A2C, "PPO": PPO, "AWR": AWR}
"""The algorithms by their names in settings and checkpoint files."""


@dataclass(frozen=True)
class LearnerConfig:
    """Configuration of a learner.

    Attributes:
        algorithm: `A2C`, `PPO` or `AWR`, with its own settings.
        learning_rate: learning rate of both Adam optimisers.
        anneal: whether the learning rate falls linearly to 0 over the updates of a training.
        max_gradient_norm: norm to which each network's gradient is clipped; None: no limit.

    Raises:
        ValueError: a value is out of range.
    """

    algorithm: A2C | PPO | AWR = field(default_factory=A2C)
    learning_rate: float = 1e-3
    anneal: bool = False
    max_gradient_norm: float | None = None

    def __post_init__(self) -> None:
        if not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be > 0, got {self.learning_rate}")
        if self.anneal and self.algorithm.steps_per_update is None:
            raise ValueError(
                "anneal needs a known number of optimiser steps: A2C(sequential=True) makes as "
                "many as there are transitions"
            )
        if self.max_gradient_norm is not None and not self.max_gradient_norm > 0.0:
            raise ValueError(f"max_gradient_norm must be > 0, got {self.max_gradient_norm}")


class Learner(NamedTuple):
    """A learner: a pair of pure functions.

    Attributes:
        init: `key -> LearnerState`; consumes the key.
        update: `(state, transitions, entropy_weight=0.0, key=None) -> (state, Metrics)`. The loss
            is the mean of critic and actor losses weighted by `weight_t`, minus `entropy_weight`
            times the mean entropy. Rows of weight 0 have no effect; without other rows the state
            does not change. Transitions have one leading axis, of any length. Only PPO with several
            minibatches needs the key, and consumes it.
    """

    init: Callable[[jax.Array], LearnerState]
    update: Callable[..., tuple[LearnerState, Metrics]]


def make_learner(
    actor: Network,
    critic: Network,
    actions: search.cats.ActionTable,
    config: LearnerConfig,
    num_updates: int | None = None,
) -> Learner:
    """A2C, PPO or AWR for the given networks.

    Args:
        actor, critic: networks of `make_actor` and `make_critic`, for one set of features.
        actions: action table, which gives the mask of legal actions in log pi.
        config: algorithm and optimiser of both networks.
        num_updates: updates of the whole training; only for `config.anneal`.

    Raises:
        ValueError: `config.anneal` without `num_updates`.
    """
    optimizer = optax.adam(_learning_rate(config, num_updates))
    if config.max_gradient_norm is not None:
        optimizer = optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), optimizer)
    model = ActorCritic(actor, critic, actions, optimizer)

    def update(
        state: LearnerState,
        transitions: search.cats.Transition,
        entropy_weight: float | Float[Array, ""] = 0.0,
        key: jax.Array | None = None,
    ) -> tuple[LearnerState, Metrics]:
        weight = jnp.asarray(entropy_weight, jnp.float32)
        return config.algorithm.update(model, state, transitions, weight, key)

    return Learner(init=model.init, update=update)


def _learning_rate(config: LearnerConfig, num_updates: int | None) -> float | optax.Schedule:
    if not config.anneal:
        return config.learning_rate
    steps = config.algorithm.steps_per_update
    if num_updates is None or steps is None:
        raise ValueError("anneal needs the number of updates of the training: pass num_updates=...")
    return optax.linear_schedule(config.learning_rate, 0.0, num_updates * steps)
