"""Monte-Carlo tree search: a strategy that holds its tree in the search's memory.

Each step descends L = max(1, N // branching) times from the root by UCT. A virtual visit per
descent makes the leaves differ. Every leaf reached gets `branching` children, whose path scores are
backed up. The frontier consists of the leaves reached, at any depth. The tree holds up to
`max_nodes` nodes, more than the frontier has slots.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from ..aggregation import Aggregation, aggregation, path_keys, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, same_for_all, share_of_candidates
from ..ranking import prune
from ..state import compact, count, empty_paths, pack
from ..types import Paths, SearchState
from .types import Tree


@functools.cache
def mcts(
    *,
    branching: int = 4,
    exploration: float = 1.0,
    max_nodes: int = 512,
    path_score: str = "min",
    vote: str = "weighted",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """UCT over reasoning steps; K = max(1, N // branching) leaves per step.

    Children beyond `max_nodes` nodes do not enter the tree. To lose none, set `max_nodes` to more
    than the budget.
    """
    aggregated = aggregation(path_score)
    return Strategy(
        name="mcts",
        plan=same_for_all(functools.partial(_branching, branching=branching), sampling),
        sampling=(sampling,),
        width=share_of_candidates(branching),
        aggregation=aggregated,
        keep=_make_keep(aggregated, exploration),
        answer=answer_rule(vote),
        init_memory=functools.partial(_plant, max_nodes=max_nodes),
    )


def _branching(state: SearchState, branching: int) -> Int[Array, ""]:
    return jnp.minimum(branching, state.num_candidates)


def _plant(state: SearchState, max_nodes: int) -> Tree:
    frontier = state.frontier
    root = jax.tree.map(lambda leaf: leaf[0], frontier.embedding)
    nodes = empty_paths(max_nodes, frontier.step_scores.shape[1], root)
    return Tree(
        paths=compact(frontier, frontier.valid, nodes),
        visits=jnp.zeros((max_nodes,), jnp.float32),
        value_sum=jnp.zeros((max_nodes,), jnp.float32),
        is_leaf=jnp.zeros((max_nodes,), bool),
        node_of_slot=jnp.zeros(frontier.valid.shape, jnp.int32),
    )


def _make_keep(path_score: Aggregation, exploration: float) -> Callable[..., Any]:
    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " M"], Tree]:
        tree: Tree = state.memory
        capacity = tree.visits.shape[0]
        nodes = jnp.arange(capacity, dtype=jnp.int32)
        size = jnp.sum(tree.paths.valid, dtype=jnp.int32)
        children = state.pool.replace(parent=tree.node_of_slot[state.pool.parent])
        paths = compact(children, children.valid, tree.paths)
        is_new = paths.valid & (nodes >= size)
        tree = tree.replace(paths=paths, is_leaf=tree.is_leaf | (is_new & ~paths.done))
        tree = _back_up(tree, is_new, path_scores(paths, path_score))

        def descend_once(_: Any, carry: tuple[Tree, jax.Array]) -> tuple[Tree, jax.Array]:
            tree, reached = carry
            leaf = _descend(tree, exploration)
            found = tree.is_leaf[leaf]
            # Taken leaves are no leaves any more, and carry a visit already: a virtual loss.
            tree = tree.replace(is_leaf=tree.is_leaf.at[leaf].set(False))
            tree = _back_up(tree, (nodes == leaf) & found, jnp.zeros((capacity,), jnp.float32))
            return tree, reached | ((nodes == leaf) & found)

        visits, value_sum = tree.visits, tree.value_sum
        leaves = jnp.maximum(state.width, 1)
        tree, reached = lax.fori_loop(0, leaves, descend_once, (tree, jnp.zeros((capacity,), bool)))
        # The prune of the loop, done here already: a slot must know the node it grows, and a leaf
        # that gets no place stays a leaf.
        competes = reached | (is_new & paths.done)
        free = state.width - count(state.finished)
        kept = prune(path_keys(paths, path_score), competes, free)
        node_of_slot, _ = pack(kept & ~paths.done, tree.node_of_slot.shape[0])
        tree = tree.replace(
            visits=visits,
            value_sum=value_sum,
            is_leaf=tree.is_leaf | (reached & ~kept),
            node_of_slot=node_of_slot,
        )
        return paths, kept, tree

    return keep


def _back_up(tree: Tree, at: Bool[Array, " M"], values: Any) -> Tree:
    """Add one visit and the value of each marked node to the node and to all its ancestors."""

    def climb(carry: tuple[Tree, jax.Array, jax.Array]) -> tuple[Tree, jax.Array, jax.Array]:
        tree, node, alive = carry
        tree = tree.replace(
            visits=tree.visits.at[node].add(alive.astype(jnp.float32)),
            value_sum=tree.value_sum.at[node].add(jnp.where(alive, values, 0.0)),
        )
        return tree, tree.paths.parent[node], alive & (node != 0)

    start = (tree, jnp.arange(at.shape[0], dtype=jnp.int32), at)
    return lax.while_loop(lambda carry: jnp.any(carry[2]), climb, start)[0]


def _descend(tree: Tree, exploration: float) -> Int[Array, ""]:
    """The leaf reached from the root along the best UCT children; the root if there is no leaf."""
    nodes = jnp.arange(tree.visits.shape[0], dtype=jnp.int32)
    has_leaf = (
        _back_up(
            tree.replace(visits=jnp.zeros_like(tree.visits)),
            tree.is_leaf,
            jnp.zeros_like(tree.visits),
        ).visits
        > 0
    )

    def uct(node: Int[Array, ""]) -> Int[Array, ""]:
        child = tree.paths.valid & (tree.paths.parent == node) & (nodes != 0) & has_leaf
        visits = jnp.maximum(tree.visits, 1.0)
        bonus = exploration * jnp.sqrt(jnp.log(jnp.maximum(tree.visits[node], 1.0)) / visits)
        value = tree.value_sum / visits + bonus
        return jnp.argmax(jnp.where(child, value, -jnp.inf)).astype(jnp.int32)

    return lax.while_loop(lambda node: has_leaf[node] & ~tree.is_leaf[node], uct, jnp.int32(0))
