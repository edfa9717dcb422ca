"""The pytrees of one search: fixed shapes, padded, one question; `jax.vmap` batches them.

`N` is a capacity (that of the pool, the frontier or an expansion), `T` the depth capacity, `D` is
`vectors.VECTOR_SIZE`, `M` the strategy's memory, `E` any pytree whose leaves have a leading `[N]`.
Padding rows are not `valid` and have the values of `state.empty_paths`; results must ignore them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from flax import struct


class Calibration(NamedTuple):
    """Numbers of a PRM and a policy that give P(step right), see `search.calibration`.

    The defaults keep a score, clipped to [.01, .99]. A step without a score gets its probability
    under the policy.
    """

    intercept: Any = 0.0  # f32[]
    slope: Any = 1.0  # f32[]; of the log-odds of the score
    agreement: Any = 0.0  # f32[]; of the log-odds of the text among its siblings
    likelihood: Any = 0.0  # f32[]; of the log-odds of the step under the policy
    unscored_intercept: Any = 0.0  # f32[]; without a score
    unscored_likelihood: Any = 1.0  # f32[]; without a score


class Context(NamedTuple):
    """Prices, PRM sparsity and PRM calibration of a search; all traced, also if given as floats."""

    price: Any = 0.0  # f32[]; per 100 candidates or 1000 tokens, in units of a right answer, >= 0
    sparsity_total: Any = 0.0  # f32[]; share of the PRM's parameters near zero, in [0, 1]
    sparsity_last_layer: Any = 0.0  # f32[]; the same of the PRM's last layer
    calibration: Calibration = Calibration()
    prm_token_cost: Any = 1.0  # f32[]; cost of a PRM token relative to a policy token


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
    unread: jax.Array  # i32[N]; tokens after the last step that the PRM has read
    answer: jax.Array  # i32[N]; class of equal answers, -1 for none
    text: jax.Array  # i32[N]; equal for equal step texts under one parent
    weight: jax.Array  # f32[N]; 1 unless a strategy sets another
    embedding: Any  # E[N, ...]; a candidate's id on the host, a latent in the simulator
    certainty: Any = None  # f32[N]; of the whole path; None unless the strategy reads it
    vector: Any = None  # f32[N, D]; of the newest step; None unless the strategy reads it


class SearchState(struct.PyTreeNode):
    """The whole state of one search between two ticks."""

    frontier: Paths  # paths that may grow, best K at most
    pool: Paths  # children of this step so far; row = order of sampling
    finished: Paths  # paths whose answer is complete
    num_candidates: jax.Array  # i32[]; N: cap on the candidates of one step
    width: jax.Array  # i32[]; K: cap on finished + frontier
    max_depth: jax.Array  # i32[]; steps of a path; the last one runs to the end of the answer
    max_steps: jax.Array  # i32[]; reasoning steps of the search
    budget: jax.Array  # i32[]; cap on the candidates of the whole search
    spent: jax.Array  # i32[]; candidates so far
    used: jax.Array  # i32[]; candidates of this step so far = pool rows in use
    step: jax.Array  # i32[]; reasoning steps completed
    phase: jax.Array  # i32[]; tick within the step, 0 = base
    context: Context  # price, sparsity and calibration
    memory: Any  # M; the strategy's own pytree, () by default


class Request(struct.PyTreeNode):
    """A request to the language model for `num_samples` children of each frontier slot."""

    num_samples: jax.Array  # i32[N]; what a strategy wants, then what `plan` grants
    temperature: jax.Array  # f32[N]; 0 = greedy
    top_p: jax.Array  # f32[N]; 1 = off
    top_k: jax.Array  # i32[N]; 0 = off
    scored: jax.Array  # bool[N]; request PRM scores of the children
    score_ends: jax.Array  # bool[N]; request those of children that end, even if not `scored`
    to_end: jax.Array  # bool[N]; lift the step stop
    depth: jax.Array  # i32[N]; of the parent
    # i32[]; candidates of earlier ticks of this step, and `Strategy.earlier_draws`
    used: jax.Array
    embedding: Any  # E[N, ...]; of the parent


class Expansion(struct.PyTreeNode):
    """Children in allocation order: `num_samples` rows for each slot in turn, then padding.

    A granted row that is not `valid` (blank, cut or over-long) counts as a candidate.
    """

    valid: jax.Array  # bool[N]
    parent: jax.Array  # i32[N]; frontier slot
    score: jax.Array  # f32[N]; PRM score of the step, in [0, 1]; 0 if not requested
    done: jax.Array  # bool[N]
    answer: jax.Array  # i32[N]
    text: jax.Array  # i32[N]
    log_prob: jax.Array  # f32[N]
    num_tokens: jax.Array  # i32[N]
    embedding: Any  # E[N, ...]
    certainty: Any = None  # f32[N]; of the child's whole path, see `Strategy.certainty`; or None
    vector: Any = None  # f32[N, D]; of the step, see `vectors`; or None


class Plan(struct.PyTreeNode):
    """The result of `plan`: the request of a tick and the strategy's new memory."""

    request: Request
    memory: Any  # M


class StepOutput(struct.PyTreeNode):
    """Outputs of one tick other than the new state; zeros (False) in skipped ticks of `play`."""

    num_samples: jax.Array  # i32[N]; candidates granted to each frontier slot
    path_score: jax.Array  # f32[N]; of every pool row, before a step's end empties the pool
    # i32[N]; `Paths.parent` of the paths that ended here, in row order; then -1
    ended: jax.Array
    active: jax.Array  # bool[]; False for a tick after the end
    report: Any  # the strategy's report; CATS: a `Decision`; ETS: an `Unsolved`; () by default


class Unsolved(struct.PyTreeNode):
    """A strategy's report on a solver that has a limit; the host counts and shows it."""

    # i32[]; programs of the tick that reached the limit: the solution may not be the best one
    count: jax.Array
