"""AB-MCTS-A: adaptive branching Monte-Carlo tree search over whole answers, by node aggregation.

Inoue et al.: "Wider or Deeper? Scaling LLM Inference-Time Compute with Adaptive Branching Tree
Search" (2025), arXiv:2503.04412, and the authors' code, SakanaAI/treequest at e6865b7, with one
action. A node is an answer; a child of it is a rewrite, and a child of the root is a new answer.

The search descends from the root. A node without children gets a child. At other nodes the search
draws one value from each of two posteriors (Thompson sampling): GEN from the scores of the node's
children, CONT from those of all nodes below the children. If the value of GEN is at least that of
CONT, the node gets a child. Otherwise the search draws a value for each child, from the scores of
the child and of all nodes below it, and descends to the child with the highest value.

A posterior is that of a mean score. With `dist_type` "beta" it is a Beta distribution with the
prior Beta(.5, .5), to whose parameters each score s adds s and 1 - s. With "gaussian" it is that of
a Gaussian's mean with the normal-inverse-chi-squared prior m = 0, kappa = 1, nu = 1 and tau^2 = .1.

The answer with the best score gives the answer of the search, as in their `top_k`.

What differs from the authors' code:

- N is the number of answers. An invalid answer counts and is not in the tree.
- One model writes all answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ..aggregations import AGGREGATIONS, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, check_count
from ..state import MAX_CANDIDATES, pack
from ..types import Paths, Request, SearchState
from .answer_tree import answers_left, ask, check_rewriting, grow, has_child, kept, plant_question
from .types import AnswerStatistics, SampledAnswers

BETA_PRIOR = 0.5
"""Both parameters of the Beta prior, Jeffreys' prior."""

GAUSSIAN_PRIOR = (0.0, 1.0, 1.0, 0.1)
"""m, kappa, nu and tau^2 of the prior of a Gaussian with unknown mean and variance."""

_LAST = AGGREGATIONS["last"]


@functools.cache
def ab_mcts_a(
    *,
    dist_type: str = "gaussian",
    batch_size: int = 1,
    rewriting: str = "revise",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Thompson sampling between a new answer and a rewrite of an earlier one; K = N answers.

    Args:
        dist_type: posterior of a mean score, "gaussian" or "beta".
        batch_size: answers that are sampled together, at least 1; N if that is less. The same
            posteriors give their places, which may be equal.
        rewriting: prompts of a rewrite, a name or a .yaml file; see `Strategy.rewriting`.
        vote: how the answers give the answer of the search.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if dist_type not in _DRAWS:
        raise ValueError(f"dist_type must be one of {', '.join(_DRAWS)}, got {dist_type!r}")
    check_count("batch_size", batch_size, 1)
    check_rewriting(rewriting)
    # No more places than answers are drawn.
    batch_size = min(batch_size, MAX_CANDIDATES)
    draw = _DRAWS[dist_type]

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, SampledAnswers]:
        memory: SampledAnswers = state.memory
        first = jnp.where(state.step == 0, batch_size, memory.count_of_slot)
        return ask(state, first, sampling), memory.replace(key=jax.random.key_data(key))

    def keep(state: SearchState) -> tuple[Paths, Bool[Array, " R"], SampledAnswers]:
        memory: SampledAnswers = state.memory
        paths, is_new = grow(memory.paths, state.pool, memory.node_of_slot)
        seen = observe(memory.seen, paths.parent, is_new, path_scores(paths, _LAST))
        key = jax.random.wrap_key_data(memory.key)
        places = _places(key, seen, has_child(paths.parent, paths.valid), draw, batch_size)
        is_drawn = jnp.arange(batch_size, dtype=jnp.int32) < answers_left(state)
        counts = jnp.zeros(is_new.shape, jnp.int32).at[places].add(is_drawn.astype(jnp.int32))
        node_of_slot, is_slot = pack(counts > 0, memory.node_of_slot.shape[0])
        memory = memory.replace(
            paths=paths,
            seen=seen,
            node_of_slot=node_of_slot,
            count_of_slot=jnp.where(is_slot, counts[node_of_slot], 0),
        )
        return kept(state, paths, counts > 0, memory)

    return Strategy(
        name="ab_mcts_a",
        plan=plan,
        sampling=(sampling,),
        aggregation=_LAST,
        keep=keep,
        answer=answer_rule(vote),
        init_memory=_init_memory,
        num_steps=lambda num_candidates, max_depth: -(-num_candidates // batch_size),
        needs_step_scores=False,
        rewriting=rewriting,
    )


def observe(
    seen: AnswerStatistics,
    parent: Int[Array, " M"],
    is_new: Bool[Array, " M"],
    scores: Float[Array, " M"],
) -> AnswerStatistics:
    """Add the scores of new nodes to the statistics of all nodes above them.

    Args:
        parent: parent of each node; 0 is the root.
        is_new: nodes to add; none is an ancestor of another one.
        scores: score of each node, in [0, 1].
    """
    score = jnp.where(is_new, scores, 0.0)
    new = jnp.stack([is_new.astype(jnp.float32), score, score * score], axis=-1)

    def climb(carry: tuple[AnswerStatistics, jax.Array]) -> tuple[AnswerStatistics, jax.Array]:
        seen, node = carry
        below = jnp.where((node != 0)[:, None], new, 0.0)
        seen = seen.replace(
            own=seen.own.at[node].add(below), deeper=seen.deeper.at[parent[node]].add(below)
        )
        return seen, parent[node]

    seen = seen.replace(own=seen.own + new, wider=seen.wider.at[parent].add(new))
    above = jnp.where(is_new, parent, 0)
    return lax.while_loop(lambda carry: jnp.any(carry[1] != 0), climb, (seen, above))[0]


def descend(
    children: Bool[Array, "M M"],
    wider: Float[Array, " M"],
    deeper: Float[Array, " M"],
    own: Float[Array, " M"],
) -> Int[Array, ""]:
    """The node that gets a child, by values drawn for every node.

    Args:
        children: whether node j is a child of node i, at [i, j].
        wider, deeper: values of GEN and CONT at each node.
        own: value of each node among its siblings.
    """
    goes_down = jnp.any(children, axis=1) & (wider < deeper)

    def down(node: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.argmax(jnp.where(children[node], own, -jnp.inf)).astype(jnp.int32)

    return lax.while_loop(lambda node: goes_down[node], down, jnp.int32(0))


def gaussian_posterior(
    seen: Float[Array, "*B 3"],
) -> tuple[
    Float[Array, "*B"],
    Float[Array, "*B"],
    Float[Array, "*B"],
    Float[Array, "*B"],
]:
    """m, kappa, nu and tau^2 after n scores of mean x and summed squared deviation v.

    kappa' = kappa + n and nu' = nu + n; m' = (kappa m + n x) / kappa';
    tau'^2 = (nu tau^2 + v + n kappa (m - x)^2 / kappa') / nu'.
    """
    m, kappa, nu, tau_square = GAUSSIAN_PRIOR
    n, total, squares = seen[..., 0], seen[..., 1], seen[..., 2]
    average = total / jnp.maximum(n, 1.0)
    # Rounding may make the deviation of equal scores negative.
    deviation = jnp.maximum(squares - total * average, 0.0)
    shift = n * kappa * (m - average) ** 2 / (kappa + n)
    return (
        (kappa * m + total) / (kappa + n),
        kappa + n,
        nu + n,
        (nu * tau_square + deviation + shift) / (nu + n),
    )


def _draw_gaussian(key: Key[Array, ""], seen: Float[Array, "*B 3"]) -> Float[Array, "*B"]:
    """A mean from N(m, sigma^2 / kappa), where sigma^2 is nu tau^2 over a chi-squared value."""
    m, kappa, nu, tau_square = gaussian_posterior(seen)
    for_variance, for_mean = jax.random.split(key)
    sigma_square = nu * tau_square / 2.0 / jax.random.gamma(for_variance, nu / 2.0)
    return m + jnp.sqrt(sigma_square / kappa) * jax.random.normal(for_mean, m.shape)


def _draw_beta(key: Key[Array, ""], seen: Float[Array, "*B 3"]) -> Float[Array, "*B"]:
    n, total = seen[..., 0], seen[..., 1]
    return jax.random.beta(key, BETA_PRIOR + total, BETA_PRIOR + jnp.maximum(n - total, 0.0))


Draw = Callable[[Key[Array, ""], Float[Array, "3 3"]], Float[Array, " 3"]]
"""`(key, statistics) -> values` of GEN, CONT and the node itself, of one node."""

_DRAWS: dict[str, Draw] = {"gaussian": _draw_gaussian, "beta": _draw_beta}


def _places(
    key: Key[Array, ""],
    seen: AnswerStatistics,
    children: Bool[Array, "M M"],
    draw: Draw,
    number: int,
) -> Int[Array, " B"]:
    """The nodes that get the next `number` children; a node may occur twice."""

    def place(key: Key[Array, ""]) -> Int[Array, ""]:
        return descend(children, *values_of_nodes(key, seen, draw))

    return jax.vmap(place)(jax.random.split(key, number))


def values_of_nodes(key: Key[Array, ""], seen: AnswerStatistics, draw: Draw) -> Float[Array, "3 M"]:
    """Values of GEN, of CONT and of the node itself, drawn for every node.

    A descent visits each node at most once, so that all are drawn together. Each node has a key of
    its own: its values do not depend on the number of rows, which includes padding.
    """
    stacked = jnp.stack([seen.wider, seen.deeper, seen.own])
    nodes = jnp.arange(stacked.shape[1], dtype=jnp.int32)
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(nodes)
    return jax.vmap(draw, in_axes=(0, 1), out_axes=1)(keys, stacked)


def _init_memory(state: SearchState) -> SampledAnswers:
    paths = plant_question(state)
    nothing = jnp.zeros((paths.valid.shape[0], 3), jnp.float32)
    slots = jnp.zeros(state.frontier.valid.shape, jnp.int32)
    return SampledAnswers(
        paths=paths,
        seen=AnswerStatistics(own=nothing, wider=nothing, deeper=nothing),
        key=jax.random.key_data(jax.random.key(0)),
        node_of_slot=slots,
        count_of_slot=slots,
    )
