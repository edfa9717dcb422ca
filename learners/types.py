"""The pytrees of training. `I` is the number of iterations."""

from __future__ import annotations

from typing import Any

import jax
from flax import struct

import search


class LearnerState(struct.PyTreeNode):
    """Parameters of both networks and the state of their optimisers."""

    actor: Any  # nested dict of f32 arrays
    critic: Any  # nested dict of f32 arrays
    actor_optimizer: Any
    critic_optimizer: Any


class Metrics(struct.PyTreeNode):
    """Weighted means over the transitions of one update (PPO: first epoch); 0 without any."""

    td_error: jax.Array  # f32[]; absolute
    critic_loss: jax.Array  # f32[]
    actor_loss: jax.Array  # f32[]; without the entropy bonus
    entropy: jax.Array  # f32[]; of the policy over legal actions, nats


class Episode(struct.PyTreeNode):
    """The decisions and transitions of one search; `D` ticks that call the policy, `S` slots."""

    decision: search.cats.Decision  # [D, S]
    transition: search.cats.Transition  # [D, 2 S]; rows 0..S-1: into the decision of that slot
    cost: jax.Array  # f32[D]; from this tick to the next, in units of 100 candidates or 1000 tokens
    source: jax.Array  # i32[D, S]; slot, within the tick, of the path that is in this slot after it
    holds: jax.Array  # bool[D, S]; that path continues; its decision has no successor yet
    ends: jax.Array  # i32[D, S]; paths that left this slot for good at the end of the step
    last_reward: jax.Array  # f32[D, S]; of the newest decision on the path in this slot
    price: jax.Array  # f32[]; of a unit of cost: 100 candidates or 1000 tokens
    bonus: jax.Array  # f32[]; reward for the answer


class Curves(struct.PyTreeNode):
    """Learning curves, one value per iteration."""

    reward: jax.Array  # f32[I]; "paper": mean of the decisions' rewards; "outcome": of questions
    accuracy: jax.Array  # f32[I]; share of questions answered right
    candidates: jax.Array  # f32[I]; per question
    decisions: jax.Array  # i32[I]; valid ones, in all questions of the iteration
    entropy: jax.Array  # f32[I]; nats
    top_action: jax.Array  # f32[I]; share of the most frequent action
    td_error: jax.Array  # f32[I]; mean absolute
    critic_loss: jax.Array  # f32[I]


class TrainResult(struct.PyTreeNode):
    """The result of a training run."""

    learner_state: LearnerState
    curves: Curves
    collapsed: jax.Array  # bool[]; see `learners.has_collapsed`
