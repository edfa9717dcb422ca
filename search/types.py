"""The pytrees of one search: fixed shapes, padded, one question; `jax.vmap` batches them.

`N` is a capacity (of the pool, the frontier or an expansion; they may differ), `T` the depth
capacity, `F` the number of features, `P` of PRM features, `M` the strategy's memory, `E` any
pytree whose leaves have a leading `[N]`. Padding rows have `valid` False and hold the values of
`state.empty_paths`; no result may depend on them.
"""

from __future__ import annotations

from typing import Any

import jax
from flax import struct

PRM_FEATURES = (
    "sparsity_total",
    "sparsity_last_layer",
    "calibration_intercept",
    "calibration_slope",
    "calibration_agreement",
)
"""What a search knows of its PRM: shares in [0, 1], and the three numbers of `calibration`."""


class Paths(struct.PyTreeNode):
    """Partial or finished solutions, one per row."""

    valid: jax.Array  # bool[N]
    done: jax.Array  # bool[N]; the newest step ends the answer
    parent: jax.Array  # i32[N]; frontier slot the path grew from
    group: jax.Array  # i32[N]; subtree: row * K // N of the root's child the path starts with
    depth: jax.Array  # i32[N]; number of steps
    step_scores: jax.Array  # f32[N, T]; PRM score of each step, in [0, 1]; 0 beyond depth
    log_prob: jax.Array  # f32[N]; of the newest step under the policy, nats
    num_tokens: jax.Array  # i32[N]; of the newest step
    answer: jax.Array  # i32[N]; class of equal answers, -1 for none
    text: jax.Array  # i32[N]; equal for equal step texts under one parent
    weight: jax.Array  # f32[N]; 1 unless a strategy says otherwise
    embedding: Any  # E[N, ...]; a text id on the host, a latent in the simulator


class Decision(struct.PyTreeNode):
    """What the policy saw and chose at each frontier slot."""

    features: jax.Array  # f32[N, F]
    available: jax.Array  # i32[N]; candidates the action could ask for: what was legal
    action: jax.Array  # i32[N]; row of the action table
    log_prob: jax.Array  # f32[N]; of the action under the policy, nats
    reward: jax.Array  # f32[N]; filled in by commit
    valid: jax.Array  # bool[N]


class SearchState(struct.PyTreeNode):
    """Everything one search knows between two ticks."""

    frontier: Paths  # paths that may grow, best K at most
    pool: Paths  # children of this step so far; row = order of sampling
    finished: Paths  # paths whose answer is complete
    pending: Decision  # per frontier slot: the last decision on its path not yet learnt from
    num_candidates: jax.Array  # i32[]; N: cap on the candidates of one step
    width: jax.Array  # i32[]; K: cap on finished + frontier
    max_depth: jax.Array  # i32[]; steps
    budget: jax.Array  # i32[]; cap on the candidates of the whole search
    spent: jax.Array  # i32[]; candidates so far
    used: jax.Array  # i32[]; candidates of this step so far = pool rows in use
    step: jax.Array  # i32[]; reasoning steps completed
    phase: jax.Array  # i32[]; tick within the step, 0 = base
    price: jax.Array  # f32[]; of 100 candidates, in units of a right answer
    prm_features: jax.Array  # f32[P]; in the order of `PRM_FEATURES`
    memory: Any  # M; the strategy's own pytree, () by default


class Action(struct.PyTreeNode):
    """How each frontier slot wants to go on."""

    num_extra: jax.Array  # i32[N]; children to sample in this tick, before allocation
    num_retain: jax.Array  # i32[N]; children to keep at the end of the step
    temperature: jax.Array  # f32[N]; 0 = greedy
    top_p: jax.Array  # f32[N]; 1 = off
    top_k: jax.Array  # i32[N]; 0 = off


class Request(struct.PyTreeNode):
    """What the language model is asked for: `num_samples` children of each frontier slot."""

    num_samples: jax.Array  # i32[N]; after allocation
    temperature: jax.Array  # f32[N]
    top_p: jax.Array  # f32[N]
    top_k: jax.Array  # i32[N]
    to_end: jax.Array  # bool[N]; lift the step stop
    depth: jax.Array  # i32[N]; of the parent
    embedding: Any  # E[N, ...]; of the parent


class Expansion(struct.PyTreeNode):
    """Children in allocation order: slot by slot, `num_samples` rows each, then padding.

    A granted row with `valid` False is an invalid candidate (blank, cut, over-long): it was
    paid for and is never kept.
    """

    valid: jax.Array  # bool[N]
    parent: jax.Array  # i32[N]; frontier slot
    score: jax.Array  # f32[N]; PRM score of the step, in [0, 1]; 0 if the PRM was not asked
    done: jax.Array  # bool[N]
    answer: jax.Array  # i32[N]
    text: jax.Array  # i32[N]
    log_prob: jax.Array  # f32[N]
    num_tokens: jax.Array  # i32[N]
    embedding: Any  # E[N, ...]


class Plan(struct.PyTreeNode):
    """The pure half of a tick before the language model is asked."""

    request: Request
    action: Action
    decision: Decision
    memory: Any  # M


class Transition(struct.PyTreeNode):
    """Steps of experience in rlax's time suffixes: decide at t-1, next decision at t.

    Rows of weight 0 are zeros.
    """

    features_tm1: jax.Array  # f32[N, F]
    available_tm1: jax.Array  # i32[N]; candidates the action could ask for: what was legal
    action_tm1: jax.Array  # i32[N]
    log_prob_tm1: jax.Array  # f32[N]; of the action under the policy that took it
    reward_t: jax.Array  # f32[N]
    discount_t: jax.Array  # f32[N]; gamma, or 0 where the path or the search ended
    features_t: jax.Array  # f32[N, F]; zeros where discount_t is 0
    weight_t: jax.Array  # f32[N]; 1 for a surviving child, 0 for padding


class StepOutput(struct.PyTreeNode):
    """What one tick reports beside the new state."""

    transition: Transition  # [2 * frontier] rows: decisions followed by one, then by an end
    decision: Decision  # [frontier] rows; of this tick with its reward, valid where one was taken
    num_samples: jax.Array  # i32[N]; candidates granted to each frontier slot
    path_score: jax.Array  # f32[N]; of every pool row, before a step's end empties the pool
    active: jax.Array  # bool[]; False for a tick after the end
