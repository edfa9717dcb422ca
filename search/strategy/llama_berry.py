"""LLaMA-Berry: self-refine tree search over whole answers that are ranked by comparing pairs.

Zhang et al.: "LLaMA-Berry: Pairwise Optimization for Olympiad-level Mathematical Reasoning via
O1-like Monte Carlo Tree Search" (2024), arXiv:2410.02884, Algorithms 1 and 2 and Table A1. A node
is an answer; a child of it is a rewrite after a critique. A judge compares each new answer with
all answers so far, in both orders. With the rank of the new node v among the V nodes so far by the
Enhanced Borda Count, its parent f, and the number N of a node's visits:

    Q_g(v) = 1 - (rank(v) - 1) / (V - 1),    Q(v) = alpha Q_g(v),
    Q(f) <- (1 - gamma) Q(f) + gamma Q(v),
    UCT(v) = Q(v) + exploration * sqrt(ln N(f) / N(v)).

The node of the highest UCT gets a child. A node with at least `max_child` children is left out once
a child's Q is above its own. At the end all answers are ranked again, and the best one wins.

The publication leaves these points open, or they differ:

- The publication reads P(a > b) from the logits of a trained pairwise model. Here a language model
  as judge writes its choice, see `search.methods.pairwise_borda`.
- The local value of Q(v), of weight 1 - alpha, is a win rate against the children of v. Algorithm 1
  computes Q(v) before v has children, so the local value is 0.
- As in Algorithm 1, later answers change Q only if they are children of the node.
- A single answer has Q_g = 1. Nodes that the Borda count and the pairs leave equal share a rank.
- N(v) is 1, and 1 more each time that v is chosen. The first answer has no parent, and no bonus.
- The search selects among all nodes, as MCTSr by the same authors does.
- N is the number of sampled answers. If the first answer is invalid, another is sampled.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import AGGREGATIONS, path_scores
from ..answers import answer_best
from ..comparison import Comparison
from ..interface import Sampling, Strategy, check_count
from ..types import Paths, SearchState
from .answer_tree import (
    ask_one,
    check_rewriting,
    grow,
    of_children,
    plant_question,
    rewrite_next,
    without_father,
)
from .trees import check_exploration
from .types import RankedAnswers

_LAST = AGGREGATIONS["last"]


@functools.cache
def llama_berry(
    *,
    exploration: float = 1.4,
    max_child: int = 2,
    alpha: float = 0.9,
    gamma: float = 0.1,
    rewriting: str = "critique",
    comparison: str = "best",
    judge_temperature: float = 0.0,
    judge: str = "policy",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """UCT over whole answers that a judge compares in pairs; K = N answers.

    Args:
        exploration: c of UCT, 0 to 1e30.
        max_child: children from which on a node may be left out, at least 1.
        alpha: weight of the rank in Q, in [0, 1].
        gamma: weight of a child's Q in that of its parent, in [0, 1].
        rewriting: prompts of a rewrite, a name or a .yaml file; see `Strategy.rewriting`.
        comparison: prompt of a comparison, a name or a .yaml file; see `Strategy.comparison`.
        judge: "policy", or "prm" for the PRM of the search, a language model as judge that writes.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_exploration(exploration)
    check_count("max_child", max_child, 1)
    for name, value in (("alpha", alpha), ("gamma", gamma)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must be a number from 0 to 1, got {value}")
    check_rewriting(rewriting)
    compared = Comparison(
        prompt=comparison, rule="borda", temperature=judge_temperature, judge=judge, scores=True
    )

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " R"], RankedAnswers]:
        memory: RankedAnswers = state.memory
        paths, is_new = grow(memory.paths, state.pool, memory.node_of_slot)
        # An answer to the question, node 0, is no rewrite.
        paths = without_father(paths, is_new & (paths.parent == 0))
        quality = jnp.where(is_new, alpha * path_scores(paths, _LAST), memory.quality)
        quality = backpropagated(quality, paths.parent, is_new, gamma)
        visits = jnp.where(is_new, 1, memory.visits)
        best = choose(paths.parent, paths.valid, quality, visits, exploration, max_child)
        memory = memory.replace(paths=paths, quality=quality, visits=visits)
        return rewrite_next(state, memory, best)

    return Strategy(
        name="llama_berry",
        plan=ask_one(sampling),
        sampling=(sampling,),
        aggregation=_LAST,
        keep=keep,
        answer=answer_best,
        init_memory=_init_memory,
        num_steps=lambda num_candidates, max_depth: num_candidates,
        uses_scores=judge == "prm",
        needs_step_scores=False,
        rewriting=rewriting,
        comparison=compared,
    )


def backpropagated(
    quality: Float[Array, " M"],
    parent: Int[Array, " M"],
    is_new: Bool[Array, " M"],
    gamma: float,
) -> Float[Array, " M"]:
    """Q of all nodes after the backpropagation from the new node to its parent.

    Args:
        quality: Q of each node.
        parent: parent of each node, itself without one.
        is_new: at most one node.
        gamma: weight of the new node's Q.
    """
    nodes = jnp.arange(parent.shape[0], dtype=jnp.int32)
    new = jnp.argmax(is_new)
    is_father = jnp.any(is_new) & (nodes == parent[new]) & (nodes != new)
    return jnp.where(is_father, (1.0 - gamma) * quality + gamma * quality[new], quality)


def choose(
    parent: Int[Array, " M"],
    valid: Bool[Array, " M"],
    quality: Float[Array, " M"],
    visits: Int[Array, " M"],
    exploration: float,
    max_child: int,
) -> Int[Array, ""]:
    """The node that is rewritten next (ties: the earlier one); 0, the question, without an answer.

    Args:
        parent: parent of each node, itself without one.
        valid: nodes of the tree; node 0 is the question.
        quality: Q of each node.
        visits: visits of each node, >= 1.
        exploration: c of UCT.
        max_child: children from which on a node may be left out.
    """
    nodes = jnp.arange(parent.shape[0], dtype=jnp.int32)
    num_children, best_child = of_children(parent, valid, quality)
    of_father = jnp.where(parent == nodes, 1, visits[parent]).astype(jnp.float32)
    uct = quality + exploration * jnp.sqrt(jnp.log(of_father) / visits.astype(jnp.float32))
    explored = (num_children >= max_child) & (best_child > quality)
    may_grow = valid & (nodes != 0) & ~explored
    return jnp.argmax(jnp.where(may_grow, uct, -jnp.inf)).astype(jnp.int32)


def _init_memory(state: SearchState) -> RankedAnswers:
    paths = plant_question(state)
    return RankedAnswers(
        paths=paths,
        quality=jnp.zeros(paths.valid.shape, jnp.float32),
        visits=jnp.ones(paths.valid.shape, jnp.int32),
        node_of_slot=jnp.zeros(state.frontier.valid.shape, jnp.int32),
    )
