"""Features of a node, inputs of the controller: numbers about children, the budget and the PRM.

A *node* is a frontier slot; its *children* are the valid rows of the pool that grew from it. A
checkpoint holds `FEATURE_NAMES` and can't be loaded with other names or another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import AGGREGATIONS, Aggregation, last, path_keys, path_scores
from ..ranking import reduce_rows, segment_ranks
from ..types import Calibration, Paths, SearchState

NUM_SORTED_SCORES = 16
"""Number of children whose scores are features of their own."""

PAPER_FEATURES = (
    "num_children",
    *(f"score_{rank}" for rank in range(NUM_SORTED_SCORES)),
    "mean",
    "std",
    "max",
    "min",
    "gap",
    "depth",
    "budget_left",
    "step_left",
    "num_candidates",
)
"""The paper's state (section 5.2) without the sparsity.

The paper names the number of candidates (here those of the node), their scores, and "the maximum
candidate paths that can be sampled": here both N and the part of N that is left. The statistics of
the scores and the depth are our choice."""

SPARSITY_FEATURES = ("sparsity_total", "sparsity_last_layer")
"""The paper's proxy for the PRM's generalisation error (section 5.1, appendix G)."""

EXTRA_FEATURES = (
    "round",
    "agreement",
    "node_rank",
    "finished_share",
    "path_score",
    "price",
    "calibration_slope",
    "calibration_agreement",
    "any_right",
    "distinct_texts",
    "pool_best",
    "frontier_share",
    "finished_best",
    "vote_share",
)
"""Features that the paper does not have.

Of the node: round of the step; share of children with the best child's text; rank among the
frontier; own path score; number of distinct texts of its children. `any_right` is 1 minus the
product of (1 - path score) over children of distinct texts: the probability that any of them is
right, if they are independent and the scores are calibrated. Of the search: shares of the places
taken by finished and by growing paths; best path score in the pool and among finished paths; the
leading answer's share of the finished paths' votes, weighted by path score. Of the setting: price,
and how well the PRM ranks (slope, agreement)."""

COMPUTE_FEATURES = (
    "likelihood_best",
    "likelihood_seen",
    "scored_share",
    "unread",
    "prm_token_cost",
    "step_best",
    "prm_weight",
)
"""Features of the cost so far, and of what more samples may find.

Of the node: probability of the best child's text under the policy; sum of these probabilities over
the distinct texts of the children (the rest to 1 is the probability that no child covers); share of
the children that the PRM has scored; number of tokens of the node's path that the PRM has not read;
score of the best child's own step. Of the setting: cost of a PRM token relative to a policy token,
and weight of the PRM's score relative to the likelihood."""

CALIBRATION_FEATURES = ("calibration_slope", "calibration_agreement", "prm_weight")
"""The features that read the PRM's calibration, see `calibration`."""

LIKELIHOOD_FEATURES = ("likelihood_best", "likelihood_seen")
"""The compute features that read the policy's log-probabilities."""

FEATURE_NAMES = PAPER_FEATURES + SPARSITY_FEATURES + EXTRA_FEATURES + COMPUTE_FEATURES


def extract(
    state: SearchState, aggregation: Aggregation = AGGREGATIONS["min"]
) -> Float[Array, "N F"]:
    """Features of every frontier slot; zeros for slots without a valid child.

    The two sparsities are log10(max(s, 1e-6)), and `round` is the round / 4, which may exceed 1.
    The other features are scaled to about [-1, 1]. The scores are path scores of the children, best
    first, and 0 beyond the last child. `std` is the
    population standard deviation. `gap` is the first score minus the second, 0 for one child.
    `num_children`, `distinct_texts`, `budget_left`, `step_left`, `num_candidates` and `unread` are
    log2(1 + count) / 8. `prm_token_cost` is log2(1 + rate) / 4. `prm_weight` is the slope's share
    of slope plus likelihood. `price` is log10(max(1000 price, 1)) / 3. Slope and agreement are
    divided by 4.
    """
    children = _children(state, aggregation)
    of_node = _node_features(state, children, aggregation)
    of_search = _search_features(state, children, aggregation)
    frontier = state.frontier
    has_child = frontier.valid & (children.num > 0)
    blocks = (
        children.ordered,
        _stack(list(of_node.values())),
        jnp.broadcast_to(_stack(list(of_search.values())), (frontier.valid.size, len(of_search))),
    )
    names = (*(f"score_{rank}" for rank in range(NUM_SORTED_SCORES)), *of_node, *of_search)
    columns = jnp.asarray([names.index(name) for name in FEATURE_NAMES], jnp.int32)
    features = lax.optimization_barrier(jnp.concatenate(blocks, axis=1))[:, columns]
    return jnp.where(has_child[:, None], features, 0.0)


class FeatureSet(NamedTuple):
    """The features of a node that are the input of a controller.

    Attributes:
        names: names of the features, in order.
        extract: `(state, aggregation) -> f32[N, F]`, one row per frontier slot.
    """

    names: tuple[str, ...]
    extract: Callable[[SearchState, Aggregation], jax.Array]

    def column(self, name: str) -> int:
        """Column of a feature. Raises ValueError if it is unknown."""
        self.check((name,))
        return self.names.index(name)

    def check(self, names: tuple[str, ...]) -> None:
        """Raise ValueError if a name is unknown."""
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise ValueError(f"unknown features {unknown}: choose among {', '.join(self.names)}")

    def mask(self, excluded: tuple[str, ...]) -> Float[Array, " F"]:
        """f32[F]: 0 for each excluded feature, 1 for the others."""
        return jnp.asarray([name not in excluded for name in self.names], jnp.float32)


FEATURES = FeatureSet(FEATURE_NAMES, extract)
"""The features of this module, `FEATURE_NAMES`."""


def num_children(state: SearchState) -> Int[Array, " N"]:
    """Number of valid children of each frontier slot in the pool."""
    return _count_children(state.pool.parent, state.pool.valid, state.frontier.valid.shape[0])


class _Children(NamedTuple):
    """The children of each node, S frontier slots and N rows of the pool."""

    valid: jax.Array  # bool[N]
    parent: jax.Array  # i32[N]
    scores: jax.Array  # f32[N]; path scores
    ranks: jax.Array  # i32[N]; among the siblings, 0 is the best
    child_of: jax.Array  # bool[S, N]
    num: jax.Array  # i32[S]; of each node
    ordered: jax.Array  # f32[S, NUM_SORTED_SCORES]; best first, 0 beyond the last child


def _node_features(
    state: SearchState, children: _Children, aggregation: Aggregation
) -> dict[str, jax.Array]:
    """The features of each frontier slot, f32[S] each; the ordered scores are left out."""
    frontier = state.frontier
    one_segment = jnp.zeros(frontier.valid.shape, jnp.int32)
    rank = segment_ranks(path_keys(frontier, aggregation), one_segment, frontier.valid)
    return {
        "num_children": _log_count(children.num.astype(jnp.float32)),
        **_score_features(children),
        "depth": frontier.depth.astype(jnp.float32) / state.max_depth.astype(jnp.float32),
        **_text_features(state.pool, children),
        "node_rank": rank.astype(jnp.float32) / state.width.astype(jnp.float32),
        "path_score": path_scores(frontier, aggregation),
        "unread": _log_count(frontier.unread.astype(jnp.float32)),
        "step_best": _best_step(state.pool, children),
    }


def _search_features(
    state: SearchState, children: _Children, aggregation: Aggregation
) -> dict[str, jax.Array]:
    """The features that all frontier slots share, f32[] each."""
    context, finished = state.context, state.finished
    width = state.width.astype(jnp.float32)
    finished_scores = path_scores(finished, aggregation)
    return {
        "budget_left": _log_count((state.budget - state.spent).astype(jnp.float32)),
        "step_left": _log_count((state.num_candidates - state.used).astype(jnp.float32)),
        "num_candidates": _log_count(state.num_candidates.astype(jnp.float32)),
        "sparsity_total": _log_share(context.sparsity_total),
        "sparsity_last_layer": _log_share(context.sparsity_last_layer),
        "round": state.phase.astype(jnp.float32) / 4.0,
        "finished_share": jnp.sum(finished.valid, dtype=jnp.float32) / width,
        "price": jnp.log10(jnp.maximum(1000.0 * context.price, 1.0)) / 3.0,
        "calibration_slope": context.calibration.slope / 4.0,
        "calibration_agreement": context.calibration.agreement / 4.0,
        "pool_best": _highest(children.scores, state.pool.valid),
        "frontier_share": jnp.sum(state.frontier.valid, dtype=jnp.float32) / width,
        "finished_best": _highest(finished_scores, finished.valid),
        "vote_share": _leading_share(finished, finished_scores),
        "prm_token_cost": jnp.log2(1.0 + context.prm_token_cost) / 4.0,
        "prm_weight": _prm_weight(context.calibration),
    }


def _highest(scores: Float[Array, " N"], valid: Bool[Array, " N"]) -> Float[Array, ""]:
    return jnp.max(jnp.where(valid, scores, 0.0), initial=0.0)


def _children(state: SearchState, aggregation: Aggregation) -> _Children:
    # Without the barriers, XLA computes these values anew for each column and pair that read them.
    pool, slots = state.pool, state.frontier.valid.shape[0]
    scores, parent, valid = lax.optimization_barrier(
        (path_scores(pool, aggregation), pool.parent, pool.valid)
    )
    ranks = segment_ranks(path_keys(pool, aggregation), pool.parent, pool.valid)
    rank_index = jnp.where(valid & (ranks < NUM_SORTED_SCORES), ranks, NUM_SORTED_SCORES)
    ordered = jnp.zeros((slots, NUM_SORTED_SCORES), jnp.float32)
    ordered = ordered.at[parent, rank_index].set(scores, mode="drop")
    ordered, count = lax.optimization_barrier((ordered, _count_children(parent, valid, slots)))
    child_of = valid[None, :] & (parent[None, :] == jnp.arange(slots, dtype=jnp.int32)[:, None])
    return _Children(valid, parent, scores, ranks, child_of, count, ordered)


def _score_features(children: _Children) -> dict[str, Float[Array, " S"]]:
    scores, ordered, child_of = children.scores, children.ordered, children.child_of
    at_least_one = jnp.maximum(children.num, 1).astype(jnp.float32)
    mean = reduce_rows(jnp.sum, jnp.where(child_of, scores[None, :], 0.0)) / at_least_one
    mean = lax.optimization_barrier(mean)
    deviation = jnp.where(child_of, scores[None, :] - mean[:, None], 0.0)
    # The guard inside the root keeps the gradient finite at padding.
    variance = reduce_rows(jnp.sum, deviation * deviation) / at_least_one
    std = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1.0)), 0.0)
    smallest = jnp.ones(children.num.shape, jnp.float32)
    smallest = smallest.at[children.parent].min(jnp.where(children.valid, scores, 1.0))
    gap = jnp.where(children.num > 1, ordered[:, 0] - ordered[:, 1], 0.0)
    return {"mean": mean, "std": std, "max": ordered[:, 0], "min": smallest, "gap": gap}


def _text_features(pool: Paths, children: _Children) -> dict[str, Float[Array, " S"]]:
    parent, valid, slots = children.parent, children.valid, children.num.shape[0]
    best = jnp.where(valid & (children.ranks == 0), parent, slots)
    best_text = jnp.zeros((slots,), jnp.int32).at[best].set(pool.text, mode="drop")
    same_text = _count_children(parent, valid & (pool.text == best_text[parent]), slots)
    is_first = lax.optimization_barrier(_first_of_its_text(pool))
    distinct = _count_children(parent, is_first, slots).astype(jnp.float32)
    at_least_one = jnp.maximum(children.num, 1).astype(jnp.float32)
    wrong = jnp.where(is_first, 1.0 - children.scores, 1.0)
    all_wrong = reduce_rows(jnp.prod, jnp.where(children.child_of, wrong[None, :], 1.0))
    known = valid & ~jnp.isnan(pool.log_prob)
    probability = jnp.where(known, jnp.exp(jnp.where(known, pool.log_prob, 0.0)), 0.0)
    probability = lax.optimization_barrier(probability)
    likelihood = jnp.zeros((slots,), jnp.float32).at[best].set(probability, mode="drop")
    seen = jnp.zeros((slots,), jnp.float32).at[parent].add(jnp.where(is_first, probability, 0.0))
    scored = _count_children(parent, valid & (pool.unread == 0), slots)
    return {
        "likelihood_best": likelihood,
        "likelihood_seen": jnp.minimum(seen, 1.0),
        "scored_share": scored.astype(jnp.float32) / at_least_one,
        "agreement": same_text.astype(jnp.float32) / at_least_one,
        "any_right": 1.0 - all_wrong,
        "distinct_texts": _log_count(distinct),
    }


def _best_step(pool: Paths, children: _Children) -> Float[Array, " S"]:
    """Score of the newest step of each node's best child; 0 without a child."""
    slots = children.num.shape[0]
    score = lax.optimization_barrier(last(pool.step_scores, pool.depth))
    best = jnp.where(children.valid & (children.ranks == 0), children.parent, slots)
    return jnp.zeros((slots,), jnp.float32).at[best].set(score, mode="drop")


def _prm_weight(calibration: Calibration) -> Float[Array, ""]:
    """slope / (|slope| + |likelihood|), in [-1, 1]; 0 if both are 0."""
    total = jnp.abs(calibration.slope) + jnp.abs(calibration.likelihood)
    return calibration.slope / jnp.maximum(total, 1e-6)


def _count_children(
    parent: Int[Array, " N"], marked: Bool[Array, " N"], slots: int
) -> Int[Array, " S"]:
    return jnp.zeros((slots,), jnp.int32).at[parent].add(marked.astype(jnp.int32))


def _stack(columns: list[Float[Array, "*B"]]) -> Float[Array, "*B C"]:
    """`jnp.stack(columns, axis=-1)` as one kernel: XLA makes one per operand of a concatenation."""
    shape = (*columns[0].shape, len(columns))
    index = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    stacked = jnp.zeros(shape, jnp.float32)
    for position, column in enumerate(columns):
        stacked = jnp.where(index == position, column[..., None], stacked)
    return stacked


def _first_of_its_text(pool: Paths) -> Bool[Array, " N"]:
    """Valid rows without an earlier sibling of the same text."""
    parent, text, valid = lax.optimization_barrier((pool.parent, pool.text, pool.valid))
    rows = jnp.arange(parent.shape[0], dtype=jnp.int32)
    same = (parent[None, :] == parent[:, None]) & (text[None, :] == text[:, None])
    earlier = same & valid[None, :] & (rows[None, :] < rows[:, None])
    return valid & (reduce_rows(jnp.sum, earlier) == 0)


def _leading_share(finished: Paths, scores: Float[Array, " N"]) -> Float[Array, ""]:
    """The leading answer's share of the votes; 0 without votes."""
    weight = jnp.where(finished.valid & (finished.answer >= 0), scores, 0.0)
    same = finished.answer[None, :] == finished.answer[:, None]
    votes = jnp.sum(jnp.where(same, weight[None, :], 0.0), axis=1)
    leading = jnp.max(jnp.where(weight > 0, votes, 0.0), initial=0.0)
    return leading / jnp.maximum(jnp.sum(weight), 1e-6)


def _log_count(value: Float[Array, "*B"]) -> Float[Array, "*B"]:
    return jnp.log2(1.0 + jnp.maximum(value, 0.0)) / 8.0


def _log_share(value: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.log10(jnp.maximum(value, 1e-6))
