"""Trees of whole answers: what the methods that rewrite answers share.

A node is a whole answer, and a child of it is a rewrite. The frontier holds the nodes that get
children next. Such a node looks like the question itself, with depth 0 and `done` False, but it has
the embedding of its answer: see `Strategy.rewriting`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..interface import Sampling, request
from ..state import compact, count, empty_paths
from ..types import Paths, Request, SearchState


def plant(state: SearchState) -> Paths:
    """The tree before the first answer: the question as node 0 of N + 1."""
    frontier = state.frontier
    root = jax.tree.map(lambda leaf: leaf[0], frontier.embedding)
    capacity, depth_capacity = state.pool.step_scores.shape
    return compact(frontier, frontier.valid, empty_paths(capacity + 1, depth_capacity, root))


def ask(
    state: SearchState, num_samples: Int[Array, " S"] | Int[Array, ""] | int, sampling: Sampling
) -> Request:
    """The request for whole answers, or for rewrites of the frontier's answers."""
    asked = request(state, num_samples, sampling)
    return asked.replace(to_end=jnp.ones_like(asked.to_end))


def grow(
    paths: Paths, pool: Paths, node_of_slot: Int[Array, " S"]
) -> tuple[Paths, Bool[Array, " M"]]:
    """Add a step's answers to the tree.

    Args:
        paths: nodes of the tree.
        pool: children of the step. A child that is not an answer is left out.
        node_of_slot: tree node of each frontier slot.

    Returns:
        The nodes of the new tree, and which of them are new.
    """
    children = pool.replace(parent=node_of_slot[pool.parent])
    grown = compact(children, pool.valid & pool.done, paths)
    rows = jnp.arange(grown.valid.shape[0], dtype=jnp.int32)
    return grown, grown.valid & (rows >= count(paths))


def answers_left(state: SearchState) -> Int[Array, ""]:
    """Answers that the search may still sample at the end of a step: N and the budget limit them.

    The places that finished answers leave limit them, too.
    """
    sampled = jnp.minimum(state.num_candidates, state.budget) - state.spent
    answers = jnp.sum(state.pool.valid & state.pool.done, dtype=jnp.int32)
    return jnp.minimum(sampled, state.width - count(state.finished) - answers)


def kept(
    state: SearchState, paths: Paths, chosen: Bool[Array, " M"], memory: Any
) -> tuple[Paths, Bool[Array, " R"], Any]:
    """What `Strategy.keep` returns: the step's answers are finished, the chosen nodes grow next.

    The frontier holds the chosen nodes in the order of the tree.
    """
    again = paths.replace(
        done=jnp.zeros_like(paths.done),
        depth=jnp.zeros_like(paths.depth),
        step_scores=jnp.zeros_like(paths.step_scores),
        unread=jnp.zeros_like(paths.unread),
    )
    rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), again, state.pool)
    return rows, jnp.concatenate([chosen, state.pool.valid & state.pool.done]), memory


def has_child(parent: Int[Array, " M"], valid: Bool[Array, " M"]) -> Bool[Array, "M M"]:
    """Whether node j is a child of node i, at [i, j]; a node without a parent is its own parent."""
    nodes = jnp.arange(parent.shape[0], dtype=jnp.int32)
    is_root = parent == nodes
    return (parent[None, :] == nodes[:, None]) & (valid & ~is_root)[None, :]


def check_rewriting(value: Any) -> None:
    """Raise ValueError unless `value` can name a rewriting."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"rewriting must be a name or a .yaml file, got {value!r}")
