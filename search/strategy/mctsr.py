"""MCTSr: Monte-Carlo tree self-refine over whole answers.

Zhang et al.: "Accessing GPT-4 level Mathematical Olympiad Solutions via Monte Carlo Tree
Self-refine with LLaMa-3 8B" (2024), arXiv:2406.07394, and the authors' code,
trotsky1997/MathBlackBox at 7768f9d. A node is an answer; a child of it is a rewrite after a
critique. The search begins with one sampled answer and a dummy answer of the lowest reward. An
answer whose score is s has the reward 200 s - 100; a reward of at least `full_score` counts as 50.
With the rewards R of a node a, its parent f, its children i, and the number N of a node's rewards:

    Q(a) = (min R + mean R) / 2,    Q'(a) = (Q(a) + max_i Q(i)) / 2, or Q(a) without children,
    UCT(a) = Q'(a) + exploration * sqrt(ln(N(f) + 1) / (N(a) + 1e-5)),    N(f) = 0 without a parent.

The node of the highest UCT is rewarded once more and gets a child. A node with at least
`max_expand` children is left out once a child's Q is at least its own.

What differs from the authors' code:

- The PRM gives the rewards; the policy's weights can be the PRM. An answer has one score, so all
  rewards of a node are equal and Q is this reward. A node that is chosen again is not scored again,
  but N(a) counts the choice.
- The authors' code stops at the right answer. Here the highest score gives the answer.
- The dummy answer is the question itself: its rewrites are new answers. In the authors' code the
  policy scores and rewrites a sentence such as "I don't know"; here its reward is the lowest one.
- Answers with equal texts are separate nodes. In the authors' code they are one node, which loses
  its earlier children and its parent.
- The authors' code updates Q' only of nodes that have a child without children; here of all nodes.
- Among nodes of equal UCT the earlier one is chosen. The dummy answer is node 0, and so comes
  first; in the authors' code the first answer comes before it.
- N is the number of sampled answers. The authors' temperature is .95.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import AGGREGATIONS, path_scores
from ..answers import answer_rule
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
from .types import RefinedAnswers

_LEAST, _SPAN = -100.0, 200.0
"""Lowest reward, and the highest minus the lowest one."""

_SUPPRESSED = 50.0
"""Reward of an answer whose reward is at least `full_score`."""

_LAST = AGGREGATIONS["last"]


@functools.cache
def mctsr(
    *,
    exploration: float = 1.4,
    max_expand: int = 3,
    full_score: float = 95.0,
    rewriting: str = "critique",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """UCT over whole answers, of which one is rewritten in each step; K = N answers.

    Args:
        exploration: C of UCT, 0 to 1e30, on the scale of the rewards, -100 to 100.
        max_expand: children from which on a node may be left out, at least 1.
        full_score: reward from which on a reward counts as 50; above 100 none does.
        rewriting: prompts of a rewrite, a name or a .yaml file; see `Strategy.rewriting`.
        vote: how the answers give the answer of the search.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_exploration(exploration)
    if not full_score >= _LEAST:
        raise ValueError(f"full_score must be a reward >= {_LEAST:g}, got {full_score}")
    check_count("max_expand", max_expand, 1)
    check_rewriting(rewriting)

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " R"], RefinedAnswers]:
        memory: RefinedAnswers = state.memory
        paths, is_new = grow(memory.paths, state.pool, memory.node_of_slot)
        # The first answer is no rewrite of the dummy answer.
        paths = without_father(paths, is_new & (state.step == 0))
        visits = jnp.where(is_new, 1, memory.visits)
        rewards = _rewards(paths, full_score)
        best = choose(paths.parent, paths.valid, rewards, visits, exploration, max_expand)
        return rewrite_next(state, memory.replace(paths=paths, visits=visits), best)

    return Strategy(
        name="mctsr",
        plan=ask_one(sampling),
        sampling=(sampling,),
        aggregation=_LAST,
        keep=keep,
        answer=answer_rule(vote),
        init_memory=_init_memory,
        num_steps=lambda num_candidates, max_depth: num_candidates,
        needs_step_scores=False,
        rewriting=rewriting,
    )


def _rewards(paths: Paths, full_score: float) -> Float[Array, " M"]:
    """The reward of each node; node 0 is the dummy answer."""
    rewards = _LEAST + _SPAN * path_scores(paths, _LAST)
    rewards = jnp.where(rewards >= full_score, _SUPPRESSED, rewards)
    return rewards.at[0].set(_LEAST)


def choose(
    parent: Int[Array, " M"],
    valid: Bool[Array, " M"],
    rewards: Float[Array, " M"],
    visits: Int[Array, " M"],
    exploration: float,
    max_expand: int,
) -> Int[Array, ""]:
    """The node that is rewritten next; ties: the earlier node.

    Args:
        parent: parent of each node, itself without one.
        valid: nodes of the tree, at least one.
        rewards: Q of each node.
        visits: number of rewards of each node, >= 1.
        exploration: C of UCT.
        max_expand: children from which on a node may be left out.
    """
    num_children, best_child = of_children(parent, valid, rewards)
    backed_up = jnp.where(num_children > 0, (rewards + best_child) / 2.0, rewards)
    is_root = parent == jnp.arange(parent.shape[0], dtype=jnp.int32)
    of_father = jnp.where(is_root, 0, visits[parent]).astype(jnp.float32)
    bonus = jnp.sqrt(jnp.log(of_father + 1.0) / (visits.astype(jnp.float32) + 1e-5))
    mature = (num_children >= max_expand) & (best_child >= rewards)
    uct = backed_up + exploration * bonus
    return jnp.argmax(jnp.where(valid & ~mature, uct, -jnp.inf)).astype(jnp.int32)


def _init_memory(state: SearchState) -> RefinedAnswers:
    paths = plant_question(state)
    return RefinedAnswers(
        paths=paths,
        visits=paths.valid.astype(jnp.int32),
        node_of_slot=jnp.zeros(state.frontier.valid.shape, jnp.int32),
    )
