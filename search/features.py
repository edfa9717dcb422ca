"""What the policy sees of a node: numbers about its children, the budget and the PRM.

A *node* is a frontier slot; its *children* are the valid rows of the pool that grew from it.
Features are fixed in number and order; `FEATURE_NAMES` goes into every checkpoint, which is
refused when the names differ.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .aggregation import AGGREGATIONS, Aggregation, path_keys, path_scores
from .ranking import segment_ranks
from .types import SearchState

NUM_SORTED_SCORES = 16
"""Children beyond the best 16 are seen through count, mean and standard deviation only."""

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
"""The paper's state: the candidates' rewards and the budget left."""

SPARSITY_FEATURES = ("sparsity_total", "sparsity_last_layer")
"""The paper's stand-in for the PRM's generalisation error."""

EXTRA_FEATURES = ("round", "agreement", "node_rank", "finished_share", "path_score")
"""Not in the paper: round of the step, share of children with the best child's text, rank of
the node among the frontier, share of the places already taken by finished paths, and the
node's own path score."""

FEATURE_NAMES = PAPER_FEATURES + SPARSITY_FEATURES + EXTRA_FEATURES


def extract(
    state: SearchState, aggregation: Aggregation = AGGREGATIONS["min"]
) -> Float[Array, "N F"]:
    """Features of every frontier slot; zeros for slots without a valid child.

    All are scaled to about [-1, 1] except the two sparsities, which are log10(max(s, 1e-6)).
    Scores are path scores of the children, best first, 0 where there are fewer; `std` is the
    population standard deviation; `gap` is first minus second, 0 for a single child.
    `num_children`, `budget_left`, `step_left` and `num_candidates` are log2(1 + count) / 8.
    """
    frontier, pool = state.frontier, state.pool
    slots = frontier.valid.shape[0]
    scores = path_scores(pool, aggregation)
    child_of = _child_of(state)  # [S, N]
    ranks = segment_ranks(path_keys(pool, aggregation), pool.parent, pool.valid)

    num_children = jnp.sum(child_of, axis=1, dtype=jnp.float32)
    at_least_one = jnp.maximum(num_children, 1.0)
    rank_index = jnp.where(pool.valid & (ranks < NUM_SORTED_SCORES), ranks, NUM_SORTED_SCORES)
    ordered = jnp.zeros((slots, NUM_SORTED_SCORES), jnp.float32)
    ordered = ordered.at[pool.parent, rank_index].set(scores, mode="drop")
    mean = jnp.sum(jnp.where(child_of, scores[None, :], 0.0), axis=1) / at_least_one
    deviation = jnp.where(child_of, scores[None, :] - mean[:, None], 0.0)
    # The guard inside the root keeps the gradient finite at padding.
    variance = jnp.sum(deviation * deviation, axis=1) / at_least_one
    std = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1.0)), 0.0)
    largest = ordered[:, 0]
    smallest = jnp.min(jnp.where(child_of, scores[None, :], 1.0), axis=1, initial=1.0)
    gap = jnp.where(num_children > 1, ordered[:, 0] - ordered[:, 1], 0.0)

    best_text = _best_child_text(child_of, ranks, pool.text)
    same_text = jnp.sum(
        child_of & (pool.text[None, :] == best_text[:, None]), axis=1, dtype=jnp.float32
    )
    max_depth = state.max_depth.astype(jnp.float32)
    width = state.width.astype(jnp.float32)
    sparsity = jnp.log10(jnp.maximum(state.prm_features, 1e-6))

    one = jnp.ones((slots,), jnp.float32)
    rank_of_node = segment_ranks(
        path_keys(frontier, aggregation), jnp.zeros((slots,), jnp.int32), frontier.valid
    ).astype(jnp.float32)
    finished = jnp.sum(state.finished.valid, dtype=jnp.float32)
    columns = {
        "num_children": _log_count(num_children),
        **{f"score_{rank}": ordered[:, rank] for rank in range(NUM_SORTED_SCORES)},
        "mean": mean,
        "std": std,
        "max": largest,
        "min": smallest,
        "gap": gap,
        "depth": frontier.depth.astype(jnp.float32) / max_depth,
        "budget_left": _log_count((state.budget - state.spent).astype(jnp.float32)) * one,
        "step_left": _log_count((state.num_candidates - state.used).astype(jnp.float32)) * one,
        "num_candidates": _log_count(state.num_candidates.astype(jnp.float32)) * one,
        "sparsity_total": sparsity[0] * one,
        "sparsity_last_layer": sparsity[1] * one,
        "round": state.phase.astype(jnp.float32) / 4.0 * one,
        "agreement": same_text / at_least_one,
        "node_rank": rank_of_node / width,
        "finished_share": finished / width * one,
        "path_score": path_scores(frontier, aggregation),
    }
    features = jnp.stack([columns[name] for name in FEATURE_NAMES], axis=1)
    has_child = frontier.valid & (num_children > 0)
    return jnp.where(has_child[:, None], features, 0.0)


def feature_mask(excluded: tuple[str, ...]) -> Float[Array, " F"]:
    """1 for each feature kept, 0 for the excluded ones."""
    return jnp.asarray([name not in excluded for name in FEATURE_NAMES], jnp.float32)


def check_feature_names(names: tuple[str, ...]) -> None:
    """Raise ValueError if one of the names is not in `FEATURE_NAMES`."""
    unknown = [name for name in names if name not in FEATURE_NAMES]
    if unknown:
        raise ValueError(f"unknown features {unknown}: choose among {', '.join(FEATURE_NAMES)}")


def num_children(state: SearchState) -> Int[Array, " N"]:
    """Valid children of each frontier slot in the pool."""
    return jnp.sum(_child_of(state), axis=1, dtype=jnp.int32)


def _child_of(state: SearchState) -> Bool[Array, "S N"]:
    slots = jnp.arange(state.frontier.valid.shape[0], dtype=jnp.int32)
    return state.pool.valid[None, :] & (state.pool.parent[None, :] == slots[:, None])


def _best_child_text(
    child_of: Bool[Array, "S N"], ranks: Int[Array, " N"], text: Int[Array, " N"]
) -> Int[Array, " S"]:
    is_best = child_of & (ranks[None, :] == 0)
    return jnp.sum(jnp.where(is_best, text[None, :], 0), axis=1, dtype=jnp.int32)


def _log_count(value: Float[Array, "*B"]) -> Float[Array, "*B"]:
    return jnp.log2(1.0 + jnp.maximum(value, 0.0)) / 8.0
