"""The pytrees of training. `I` is the number of iterations."""

from __future__ import annotations

from typing import Any

import jax
from flax import struct


class LearnerState(struct.PyTreeNode):
    """Parameters of both networks and the state of their optimisers."""

    actor: Any  # nested dict of f32 arrays
    critic: Any  # nested dict of f32 arrays
    actor_optimizer: Any
    critic_optimizer: Any


class Metrics(struct.PyTreeNode):
    """Weighted means over the transitions of one update; 0 if there were none."""

    td_error: jax.Array  # f32[]; absolute
    critic_loss: jax.Array  # f32[]
    actor_loss: jax.Array  # f32[]; without the entropy bonus
    entropy: jax.Array  # f32[]; of the policy over legal actions, nats


class Curves(struct.PyTreeNode):
    """One value per iteration."""

    reward: jax.Array  # f32[I]; mean of the decisions' rewards (Monte Carlo: of their returns)
    accuracy: jax.Array  # f32[I]; share of questions answered right
    candidates: jax.Array  # f32[I]; per question
    decisions: jax.Array  # i32[I]; valid ones, in all questions of the iteration
    entropy: jax.Array  # f32[I]; nats
    top_action: jax.Array  # f32[I]; share of the most frequent action
    td_error: jax.Array  # f32[I]; mean absolute
    critic_loss: jax.Array  # f32[I]


class TrainResult(struct.PyTreeNode):
    """What a training run leaves."""

    learner_state: LearnerState
    curves: Curves
    collapsed: jax.Array  # bool[]; one action in more than 95 % of the last decisions
