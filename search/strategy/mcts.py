"""Monte-Carlo tree search over steps.

A simulation descends from the root by UCT (Kocsis and Szepesvari 2006) to a leaf, which gets
`branching` children. The path score of each child is backed up to the child and to all its
ancestors. Up to K simulations share a step of the loop; a virtual visit per descent makes their
leaves differ. The tree grows while the remaining budget can complete one path for every free place.
After that the leaves to which the highest mean values lead from the root are completed, one child a
step. If the budget or the room for nodes is too small for any tree, whole paths are sampled from
the question: as many as the budget can complete, at least one and at most K.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from ..aggregations import Aggregation, aggregation, path_keys, path_scores
from ..answers import answer_rule
from ..interface import (
    Sampling,
    Strategy,
    all_earlier_draws,
    check_count,
    same_for_all,
    share_of_candidates,
)
from ..ranking import prune
from ..state import compact, count, join, pack
from ..types import Paths, SearchState
from .trees import back_up, check_exploration, check_max_nodes, plant_tree
from .types import MctsTree


@functools.cache
def mcts(
    *,
    branching: int = 4,
    exploration: float = 1.0,
    max_nodes: int = 1024,
    path_score: str = "min",
    vote: str = "weighted",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """UCT over steps; K = max(1, N // branching) leaves per step of the loop.

    There is no rollout: the PRM's path score is the value of a node, as in AlphaZero. A finished
    path takes one of the K places, and the search ends when none is free.

    Args:
        branching: B, children of a leaf, at least 1; N if that is less.
        exploration: factor of a node's bonus sqrt(ln(parent's visits) / visits), 0 to 1e30.
        max_nodes: most nodes of the tree, 2 to 16384; above the budget it has no effect. The
            default ends the growth of the tree at N = 256 and 10 steps, or at N = 64 and 40 steps.
        path_score: path score that is backed up and that ranks paths.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_count("branching", branching, 1)
    check_exploration(exploration)
    check_max_nodes(max_nodes)
    aggregated = aggregation(path_score)
    return Strategy(
        name="mcts",
        plan=same_for_all(functools.partial(_num_children, branching=branching), sampling),
        sampling=(sampling,),
        width=share_of_candidates(branching),
        aggregation=aggregated,
        keep=functools.partial(
            _keep, path_score=aggregated, branching=branching, exploration=exploration
        ),
        answer=answer_rule(vote),
        init_memory=functools.partial(_plant, branching=branching, max_nodes=max_nodes),
        num_steps=functools.partial(_num_steps, branching=branching),
        earlier_draws=functools.partial(_earlier_draws, branching=branching),
    )


def _earlier_draws(state: SearchState, *, branching: int) -> Int[Array, ""]:
    """All earlier candidates, and B a step: N a step would meet the same of N draws at a node."""
    return all_earlier_draws(state) + jnp.minimum(branching, state.num_candidates) * state.step


def _num_steps(num_candidates: Any, max_depth: Any, *, branching: int) -> Any:
    """One leaf a step until the usual budget is spent, and a whole path at the end."""
    each: Any = (
        min(branching, num_candidates)
        if isinstance(num_candidates, int)
        else jnp.minimum(branching, num_candidates)
    )
    return num_candidates * max_depth // each + max_depth


def _branching(state: SearchState, branching: int) -> Int[Array, ""]:
    return jnp.minimum(branching, state.num_candidates)


def _num_children(state: SearchState, branching: int) -> Int[Array, ""]:
    paths = jnp.clip(state.budget // state.max_depth, 1, state.width)
    completed = jnp.where(state.step == 0, paths, 1)
    return jnp.where(state.memory.completes, completed, _branching(state, branching))


def _plant(state: SearchState, branching: int, max_nodes: int) -> MctsTree:
    cost, reserve = _branching(state, branching), state.width * (state.max_depth - 1)
    completes = (state.budget < cost + reserve) | (1 + cost > max_nodes)
    return plant_tree(MctsTree, state, max_nodes, completes=completes)


def _keep(
    state: SearchState, *, path_score: Aggregation, branching: int, exploration: float
) -> tuple[Paths, Bool[Array, " R"], MctsTree]:
    tree: MctsTree = state.memory
    nodes = jnp.arange(tree.visits.shape[0], dtype=jnp.int32)
    grown = state.pool.replace(parent=tree.node_of_slot[state.pool.parent])
    paths = compact(grown, grown.valid & ~tree.completes, tree.paths)
    is_new = paths.valid & (nodes >= count(tree.paths))
    tree = back_up(tree.replace(paths=paths), is_new, path_scores(paths, path_score))
    visits, value_sum = tree.visits, tree.value_sum

    # Children of paths that are being completed are kept beside the tree.
    rows = join(paths, state.pool)
    is_child = jnp.concatenate([is_new, state.pool.valid & tree.completes])
    # Finished children take places first; leaves get the rest.
    places = state.width - count(state.finished)
    ends = prune(path_keys(rows, path_score), is_child & rows.done, places)
    places = places - jnp.sum(ends, dtype=jnp.int32)
    # An unfinished path of largest depth may not grow.
    may_grow = is_child & ~rows.done & (rows.depth < state.max_depth)
    is_open, goes_on = jnp.split(may_grow, [nodes.size])
    is_leaf = tree.is_leaf | is_open
    each = _branching(state, branching)
    num_leaves = jnp.minimum(places, jnp.sum(is_leaf, dtype=jnp.int32))
    num_grown = jnp.minimum(num_leaves, state.num_candidates // each)
    cost, reserve = num_grown * each, places * (state.max_depth - 1)
    completes = (
        tree.completes
        | (state.budget - state.spent < cost + reserve)
        | (state.max_steps - state.step - 1 < state.max_depth)
        | (count(paths) + cost > nodes.size)
    )

    def descend_once(_: Any, carry: tuple[MctsTree, jax.Array]) -> tuple[MctsTree, jax.Array]:
        tree, reached = carry
        at = nodes == _descend(tree, jnp.where(completes, 0.0, exploration))
        # A virtual visit: the next descent takes another leaf.
        tree = tree.replace(is_leaf=tree.is_leaf & ~at)
        return back_up(tree, at, jnp.zeros(nodes.shape, jnp.float32)), reached | at

    # Paths that are being completed share the places among themselves.
    descents = jnp.where(completes, jnp.where(jnp.any(goes_on), 0, num_leaves), num_grown)
    start = tree.replace(is_leaf=is_leaf), jnp.zeros(nodes.shape, bool)
    tree, reached = lax.fori_loop(0, descents, descend_once, start)
    node_of_slot, _ = pack(reached, tree.node_of_slot.shape[0])
    # The virtual visits are undone.
    tree = tree.replace(
        visits=visits, value_sum=value_sum, node_of_slot=node_of_slot, completes=completes
    )
    return rows, ends | jnp.concatenate([reached, goes_on]), tree


def _descend(tree: MctsTree, exploration: Any) -> Int[Array, ""]:
    """The leaf reached from the root along the best UCT children; the root if there is no leaf."""
    nodes = jnp.arange(tree.visits.shape[0], dtype=jnp.int32)
    has_leaf = (
        back_up(
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
