"""The pytrees of a CATS search: observations and decisions of its controller, and transitions."""

from __future__ import annotations

import jax
from flax import struct

from ..types import SearchState


class Observation(struct.PyTreeNode):
    """The input of a controller: all nodes of the frontier at once."""

    features: jax.Array  # f32[N, F]; zeros for slots without a valid child
    legal: jax.Array  # bool[A]; actions that can still be afforded
    deciding: jax.Array  # bool[N]; slots whose decision counts
    state: SearchState  # the whole search, for controllers that read more than features


class Action(struct.PyTreeNode):
    """Rows of an action table, one per frontier slot."""

    num_extra: jax.Array  # i32[N]; children to sample in this tick, before contention
    num_retain: jax.Array  # i32[N]; children to keep at the end of the step
    temperature: jax.Array  # f32[N]; 0 = greedy
    top_p: jax.Array  # f32[N]; 1 = off
    top_k: jax.Array  # i32[N]; 0 = off


class Decision(struct.PyTreeNode):
    """The controller's inputs and choices by frontier slot; zeros for slots without decision."""

    features: jax.Array  # f32[N, F]
    available: jax.Array  # i32[N]; candidates the action could request: what was legal
    action: jax.Array  # i32[N]; row of the action table
    num_extra: jax.Array  # i32[N]; children the action requested
    num_retain: jax.Array  # i32[N]; children it keeps
    log_prob: jax.Array  # f32[N]; of the action under the controller, nats
    reward: jax.Array  # f32[N]; 0 until the children exist
    valid: jax.Array  # bool[N]; the slot decided


class CatsMemory(struct.PyTreeNode):
    """Memory of a CATS search within one step, per frontier slot."""

    is_open: jax.Array  # bool[N]; may decide again in this step
    num_retain: jax.Array  # i32[N]; of the latest decision
    decision: Decision  # of this tick


class Transition(struct.PyTreeNode):
    """Transitions from a decision at t-1 to the next at t (rlax's suffixes); weight 0: zeros."""

    features_tm1: jax.Array  # f32[N, F]
    available_tm1: jax.Array  # i32[N]; candidates the action could request: what was legal
    action_tm1: jax.Array  # i32[N]
    log_prob_tm1: jax.Array  # f32[N]; of the action under the controller that took it
    reward_t: jax.Array  # f32[N]
    discount_t: jax.Array  # f32[N]; gamma, or 0 where the path or the search ended
    features_t: jax.Array  # f32[N, F]; zeros where discount_t is 0
    weight_t: jax.Array  # f32[N]; 1, or 0 for padding


class DecisionRecord(struct.PyTreeNode):
    """What a recorder keeps of one tick, `S` frontier slots."""

    decision: Decision  # [S]
    # [2 S]; of decisions that are followed by another one or have no valid child, then of those
    # whose paths end here
    transition: Transition
    pending: Decision  # [S]; after the tick: each path's last decision, not yet in a transition
    last_reward: jax.Array  # f32[S]; of the newest decision on the path in this slot
