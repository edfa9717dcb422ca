"""Monte-Carlo tree search that chooses its next leaf among all leaves of the tree.

The idea is that of the variant MCTS_G in STILL-1 (Jiang et al.: "Enhancing LLM Reasoning with
Reward-guided Tree Search" (2024), arXiv:2411.11694): the policy's steps are nodes, and each
iteration takes a leaf of the whole tree. Only the abstract and a summary of the report were read,
and there is no published code. The method has its own name, and its other rules are ours.

A leaf is a node without children whose path may grow. An iteration has these parts:

1. Selection: the leaf s with the highest UCB(s) = V(s) + exploration * sqrt(ln N(parent of s) /
   N(s)). N(s) is the number of simulations of s and of all nodes below it, and V(s) is their mean
   reward. Ties: the earlier node.
2. Expansion: the leaf gets `branching` children, one step each.
3. Simulation: the path of every child is sampled to its end, one step at a time. Its reward is the
   score of the finished answer, as an outcome model gives it, or 0 without an answer.
4. Backpropagation: each reward is added to its child and to all nodes above it.

The simulated paths that finish give the answer. Only the first step of a simulation is a node.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import AGGREGATIONS, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, check_count, request
from ..state import compact, count, growing, join, pack
from ..types import Paths, Request, SearchState
from .trees import back_up, check_exploration, check_max_nodes, plant_tree
from .types import SimulatedTree

_LAST = AGGREGATIONS["last"]


@functools.cache
def global_mcts(
    *,
    branching: int = 4,
    exploration: float = 1.0,
    max_nodes: int = 1024,
    vote: str = "weighted",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """UCB over all leaves of a tree, with simulations to the end; K = N simulated answers.

    The search ends after N finished answers, when the budget is spent, or when no leaf is left. The
    PRM reads only finished answers, so that an outcome model fits.

    Args:
        branching: B, children of a leaf, at least 1; at most the places left and `max_nodes` - 1.
        exploration: constant of UCB, 0 to 1e30.
        max_nodes: most nodes of the tree, 2 to 16384. A leaf needs room for all its children.
        vote: how the finished paths give the answer.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_exploration(exploration)
    check_count("branching", branching, 1)
    check_max_nodes(max_nodes)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, SimulatedTree]:
        places = state.width - count(state.finished)
        fitting = min(branching, max_nodes - 1)  # below the root; `_keep` sees to other leaves
        children = jnp.minimum(jnp.minimum(fitting, state.num_candidates), places)
        each = jnp.where(state.memory.simulates, 1, children)
        return request(state, each, sampling, scored=False, score_ends=True), state.memory

    return Strategy(
        name="global_mcts",
        plan=plan,
        sampling=(sampling,),
        aggregation=_LAST,
        keep=functools.partial(_keep, branching=branching, exploration=exploration),
        answer=answer_rule(vote),
        init_memory=functools.partial(_plant, max_nodes=max_nodes),
        # Every step samples at least one candidate.
        num_steps=lambda num_candidates, max_depth: num_candidates * max_depth,
        earlier_draws=functools.partial(_earlier_draws, branching=branching),
        needs_step_scores=False,
    )


def _earlier_draws(state: SearchState, *, branching: int) -> Int[Array, ""]:
    """B for each leaf that was expanded before the last one, with its simulations.

    In an expansion with its simulations a node is drawn in one step only.
    """
    tree: SimulatedTree = state.memory
    paths = tree.paths
    grown = paths.valid & ~tree.is_leaf & ~paths.done & (paths.depth < state.max_depth)
    number = jnp.sum(grown, dtype=jnp.int32) - 1
    return jnp.minimum(branching, state.num_candidates) * number


def _keep(
    state: SearchState, *, branching: int, exploration: float
) -> tuple[Paths, Bool[Array, " R"], SimulatedTree]:
    pool = state.pool
    goes_on = growing(state)
    ends = pool.valid & pool.done
    tree, node = _observe(state, goes_on)
    nodes = jnp.arange(tree.visits.shape[0], dtype=jnp.int32)
    places = state.width - count(state.finished) - jnp.sum(ends, dtype=jnp.int32)
    best = choose(tree, exploration)
    grows = (
        ~jnp.any(goes_on)
        & tree.is_leaf[best]
        & (count(tree.paths) + jnp.minimum(branching, places) <= nodes.size)
        # Without a free place, budget or step, a chosen leaf would count as a path that ended.
        & (places > 0)
        & (state.spent < state.budget)
        & (state.step + 1 < state.max_steps)
    )
    chosen = grows & (nodes == best)
    row_of_slot, is_slot = pack(goes_on, tree.node_of_slot.shape[0])
    simulated = jnp.where(is_slot, node[row_of_slot], 0)
    tree = tree.replace(
        is_leaf=tree.is_leaf & ~chosen,
        # The chosen leaf has slot 0.
        node_of_slot=jnp.where(grows, jnp.zeros_like(simulated).at[0].set(best), simulated),
        simulates=jnp.any(goes_on),
    )
    rows = join(tree.paths, pool)
    return rows, jnp.concatenate([chosen, ends | goes_on]), tree


def choose(tree: SimulatedTree, exploration: float) -> Int[Array, ""]:
    """The leaf of the highest UCB; any node if there is no leaf.

    Args:
        tree: every leaf has been simulated once.
    """
    visits = jnp.maximum(tree.visits, 1.0)
    of_father = visits[tree.paths.parent]
    ucb = tree.value_sum / visits + exploration * jnp.sqrt(jnp.log(of_father) / visits)
    return jnp.argmax(jnp.where(tree.is_leaf, ucb, -jnp.inf)).astype(jnp.int32)


def _observe(
    state: SearchState, goes_on: Bool[Array, " N"]
) -> tuple[SimulatedTree, Int[Array, " N"]]:
    """Add the children of the chosen leaf to the tree, and back up the simulations that ended.

    Args:
        state: at the end of a step.
        goes_on: children whose simulation continues.

    Returns:
        The new tree, and the node of each child's simulation.
    """
    tree: SimulatedTree = state.memory
    pool, simulates = state.pool, tree.simulates
    num_nodes = tree.visits.shape[0]
    nodes = jnp.arange(num_nodes, dtype=jnp.int32)
    father = tree.node_of_slot[pool.parent]
    before = count(tree.paths)
    paths = compact(pool.replace(parent=father), pool.valid & ~simulates, tree.paths)
    is_new = paths.valid & (nodes >= before)
    added = before + jnp.cumsum(pool.valid, dtype=jnp.int32) - 1
    node = jnp.where(simulates, father, added)

    def at(marked: Bool[Array, " N"], values: Any) -> Float[Array, " M"]:
        """Values of the children's nodes; each node has one child at most."""
        target = jnp.where(marked, node, num_nodes)
        return jnp.zeros((num_nodes,), jnp.float32).at[target].set(values, mode="drop")

    # A simulation without a valid child has ended, too.
    waits = jnp.where(state.frontier.valid & simulates, tree.node_of_slot, num_nodes)
    under_way = jnp.zeros((num_nodes,), bool).at[waits].set(True, mode="drop")
    ended = (under_way | is_new) & (at(goes_on, 1.0) == 0.0)
    answered = pool.valid & pool.done & (pool.answer >= 0)
    rewards = at(answered, path_scores(pool, _LAST))
    grown = tree.replace(
        paths=paths,
        is_leaf=tree.is_leaf | (is_new & ~paths.done & (paths.depth < state.max_depth)),
    )
    return back_up(grown, ended, rewards), node


def _plant(state: SearchState, max_nodes: int) -> SimulatedTree:
    return plant_tree(SimulatedTree, state, max_nodes, simulates=jnp.bool_(False))
