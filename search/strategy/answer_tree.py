"""Trees of whole answers, for methods that rewrite answers.

A node is a whole answer, and a child of it is a rewrite. The frontier holds the nodes that get
children next, with depth 0, `done` False and the answer's embedding: see `Strategy.rewriting`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..interface import Sampling, request
from ..state import compact, count, join, pack
from ..types import Paths, Request, SearchState
from .trees import plant


def plant_question(state: SearchState) -> Paths:
    """The tree before the first answer: the question as node 0 of N + 1."""
    return plant(state, state.pool.valid.shape[0] + 1)


def ask(
    state: SearchState, num_samples: Int[Array, " S"] | Int[Array, ""] | int, sampling: Sampling
) -> Request:
    """The request for whole answers; at an answer of the frontier, for rewrites of it."""
    asked = request(state, num_samples, sampling)
    return asked.replace(to_end=jnp.ones_like(asked.to_end))


def grow(
    paths: Paths, pool: Paths, node_of_slot: Int[Array, " S"]
) -> tuple[Paths, Bool[Array, " M"]]:
    """Add a step's answers to the tree.

    Args:
        pool: children of the step. A child that is not an answer is left out.

    Returns:
        The nodes of the new tree, and which of them are new.
    """
    children = pool.replace(parent=node_of_slot[pool.parent])
    grown = compact(children, pool.valid & pool.done, paths)
    rows = jnp.arange(grown.valid.shape[0], dtype=jnp.int32)
    return grown, grown.valid & (rows >= count(paths))


def answers_left(state: SearchState) -> Int[Array, ""]:
    """Answers that N, the budget and the free places still allow at the end of a step."""
    sampled = jnp.minimum(state.num_candidates, state.budget) - state.spent
    answers = jnp.sum(state.pool.valid & state.pool.done, dtype=jnp.int32)
    return jnp.minimum(sampled, state.width - count(state.finished) - answers)


def kept(
    state: SearchState, paths: Paths, chosen: Bool[Array, " M"], memory: Any
) -> tuple[Paths, Bool[Array, " R"], Any]:
    """Result of `Strategy.keep`: the step's answers finish; the chosen nodes, in order, grow."""
    again = paths.replace(
        done=jnp.zeros_like(paths.done),
        depth=jnp.zeros_like(paths.depth),
        step_scores=jnp.zeros_like(paths.step_scores),
        unread=jnp.zeros_like(paths.unread),
    )
    return (
        join(again, state.pool),
        jnp.concatenate([chosen, state.pool.valid & state.pool.done]),
        memory,
    )


def ask_one(sampling: Sampling) -> Callable[..., tuple[Request, Any]]:
    """A `plan` that requests one answer: a rewrite of the chosen node's."""

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Any]:
        return ask(state, 1, sampling), state.memory

    return plan


def without_father(paths: Paths, marked: Bool[Array, " M"]) -> Paths:
    """The tree, in which the marked nodes are their own parents."""
    nodes = jnp.arange(marked.shape[0], dtype=jnp.int32)
    return paths.replace(parent=jnp.where(marked, nodes, paths.parent))


def rewrite_next(
    state: SearchState, memory: Any, best: Int[Array, ""]
) -> tuple[Paths, Bool[Array, " R"], Any]:
    """Result of `Strategy.keep` if the node `best` is rewritten next, which counts as a visit.

    Args:
        state: at the end of a step.
        memory: has `paths`, `visits` and `node_of_slot`.
        best: the node; it is not rewritten if the search may sample no more answers.
    """
    nodes = jnp.arange(memory.visits.shape[0], dtype=jnp.int32)
    chosen = (nodes == best) & (answers_left(state) > 0)
    node_of_slot, _ = pack(chosen, memory.node_of_slot.shape[0])
    visits = memory.visits + chosen.astype(jnp.int32)
    memory = memory.replace(visits=visits, node_of_slot=node_of_slot)
    return kept(state, memory.paths, chosen, memory)


def of_children(
    parent: Int[Array, " M"], valid: Bool[Array, " M"], values: Float[Array, " M"]
) -> tuple[Int[Array, " M"], Float[Array, " M"]]:
    """The number of children of each node, and their highest value, -inf without children."""
    children = has_child(parent, valid)
    best = jnp.max(jnp.where(children, values[None, :], -jnp.inf), axis=1)
    return jnp.sum(children, axis=1, dtype=jnp.int32), best


def has_child(parent: Int[Array, " M"], valid: Bool[Array, " M"]) -> Bool[Array, "M M"]:
    """Whether node j is a child of node i, at [i, j]; a node without a parent is its own parent."""
    nodes = jnp.arange(parent.shape[0], dtype=jnp.int32)
    is_root = parent == nodes
    return (parent[None, :] == nodes[:, None]) & (valid & ~is_root)[None, :]


def check_rewriting(value: Any) -> None:
    """Raise ValueError unless `value` can name a rewriting."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"rewriting must be a name or a .yaml file, got {value!r}")
