"""Trees in a search's memory, for the tree searches."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from ..interface import check_count
from ..state import blank_like, compact
from ..types import Paths, SearchState
from .types import StepTree

MOST_NODES = 1 << 14
"""Largest number of nodes of a tree. Every search of a batch reserves memory for all of them."""

_MOST_EXPLORATION = 1e30

_Tree = TypeVar("_Tree", bound=StepTree)


def plant(state: SearchState, num_nodes: int) -> Paths:
    """The tree before the first step: the question as node 0, and room for `num_nodes` in all."""
    frontier = state.frontier
    return compact(frontier, frontier.valid, blank_like(frontier, num_nodes))


def plant_tree(
    kind: type[_Tree], state: SearchState, num_nodes: int, **flags: Bool[Array, ""]
) -> _Tree:
    """The memory before the first step of a search whose memory has these flags."""
    return kind(
        paths=plant(state, num_nodes),
        visits=jnp.zeros((num_nodes,), jnp.float32),
        value_sum=jnp.zeros((num_nodes,), jnp.float32),
        is_leaf=jnp.zeros((num_nodes,), bool),
        node_of_slot=jnp.zeros(state.frontier.valid.shape, jnp.int32),
        **flags,
    )


def back_up(tree: _Tree, at: Bool[Array, " M"], values: Any) -> _Tree:
    """Add one visit and the value of each marked node to the node and to all its ancestors."""

    def climb(carry: tuple[_Tree, jax.Array, jax.Array]) -> tuple[_Tree, jax.Array, jax.Array]:
        tree, node, alive = carry
        tree = tree.replace(
            visits=tree.visits.at[node].add(alive.astype(jnp.float32)),
            value_sum=tree.value_sum.at[node].add(jnp.where(alive, values, 0.0)),
        )
        return tree, tree.paths.parent[node], alive & (node != 0)

    start = (tree, jnp.arange(at.shape[0], dtype=jnp.int32), at)
    return lax.while_loop(lambda carry: jnp.any(carry[2]), climb, start)[0]


def check_max_nodes(value: int) -> None:
    """Raise ValueError unless a tree may have this number of nodes."""
    check_count("max_nodes", value, 2)
    if value > MOST_NODES:
        raise ValueError(f"max_nodes must be at most {MOST_NODES}, got {value}")


def check_exploration(value: float) -> None:
    """Raise ValueError unless `value` can be the constant of UCT."""
    # Infinity times a bonus of 0 is NaN.
    if not 0.0 <= value <= _MOST_EXPLORATION:
        raise ValueError(
            f"exploration must be a number from 0 to {_MOST_EXPLORATION:g}, got {value}"
        )
