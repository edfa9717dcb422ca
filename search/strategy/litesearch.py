"""LiteSearch: best-first search in which a node's value sets its number of children.

Wang et al.: "LiteSearch: Efficacious Tree Search for LLM" (2024), arXiv:2407.00320, and batch
expansion in the authors' code, DeepLearnXMU/LiteSearch at 4d30b40. The search samples a greedy
solution first; its value is v_g. Then the node with the highest value gets all its children at
once, the first at temperature 0. A node of value v at depth d (1 at the root) gets b children:

    b = min(max(round(C / d), 2), max_budget),    C = min {c : 1 - (1 - v')^c > expected},

where v' = (v + v_g / d) / (1 + 1 / d), and C is at most `max_budget`. The search ends once the best
node is a solution, once the value of the best solution exceeds max(min_value, v_g - .01), or once
there are `end_leaf_num` solutions besides the greedy one. The best solution gives the answer.

Differences from the authors' code:

- The value is a PRM's path score, and that of the root is v_g. The authors have a value network.
- N, K and the budget limit the children of a node, the finished paths and the search. The budget
  includes the greedy solution, whose value is 0 if it has not ended its answer.
- A step that repeats its parent's text, or is longer than 1024 characters, keeps its value. The
  authors' code sets that value to 0.
- The root always gets children. In the authors' code it gets none if its value is 0.
- If the greedy solution and another one are equally good, the greedy solution gives the answer.
- The authors' second variant, which samples one child at a time, is left out.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import Aggregation, aggregation, path_keys, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, all_earlier_draws, check_count, request
from ..ranking import prune
from ..state import compact, count, growing, join
from ..types import Paths, Request, SearchState
from .trees import MOST_NODES, plant
from .types import OpenNodes

_HOPELESS = 0.01
"""Smallest value of a node other than the root that gets children."""

_SLACK = 0.01
"""Largest lead of the greedy solution's value over a solution that ends the search."""


@functools.cache
def litesearch(
    *,
    expected: float = 0.9,
    max_budget: int = 10,
    min_value: float = 0.8,
    end_leaf_num: int = 5,
    limit: int = 100,
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Best-first search; K = N. A step has two phases: the child at temperature 0, then the others.

    Args:
        expected: epsilon, the wanted probability that a child of a node is right, in (0, 1).
        max_budget: most children of a node, >= 1; N if that is less; times `limit` at most 16384.
        min_value: value that a solution must exceed to end the search, >= 0; none exceeds 1.
        end_leaf_num: number of solutions, without the greedy one, that ends the search, at least 1.
        limit: largest number of nodes that get children, at least 1.
        path_score: path score that is the value of a node; as published, the newest step's score.
        vote: how the finished paths give the answer; as published, the best path.
        sampling: parameters of all children but each node's first; the authors' temperature is .6.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    if not 0.0 < expected < 1.0:
        raise ValueError(f"expected must be in (0, 1), got {expected}")
    if not min_value >= 0.0:
        raise ValueError(f"min_value must be a path score >= 0, got {min_value}")
    check_count("max_budget", max_budget, 1)
    check_count("end_leaf_num", end_leaf_num, 1)
    check_count("limit", limit, 1)
    if limit * max_budget > MOST_NODES:
        raise ValueError(
            f"limit * max_budget = {limit} * {max_budget} nodes, of which a search holds at most "
            f"{MOST_NODES}: lower limit or max_budget"
        )
    aggregated, greedy = aggregation(path_score), Sampling(temperature=0.0)

    def base(state: SearchState) -> tuple[Request, OpenNodes]:
        return request(state, 1, greedy), state.memory

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, OpenNodes]:
        memory = state.memory
        children = _wanted_children(state, aggregated, expected, max_budget)
        more = jnp.minimum(children, state.num_candidates) - 1
        return request(state, jnp.where(memory.greedy_grows, 0, more), sampling), memory

    return Strategy(
        name="litesearch",
        plan=plan,
        base=base,
        num_phases=2,
        sampling=tuple(dict.fromkeys((greedy, sampling))),
        aggregation=aggregated,
        keep=functools.partial(
            _keep,
            path_score=aggregated,
            min_value=min_value,
            end_leaf_num=end_leaf_num,
            limit=limit,
        ),
        answer=answer_rule(vote),
        init_memory=functools.partial(_plant, max_nodes=1 + limit * max_budget),
        num_steps=functools.partial(_num_steps, limit=limit),
        earlier_draws=all_earlier_draws,
    )


def _wanted_children(
    state: SearchState, path_score: Aggregation, expected: float, max_budget: int
) -> Int[Array, " N"]:
    """b of each frontier node."""
    frontier, greedy_value = state.frontier, state.memory.greedy_value
    values = jnp.where(frontier.depth == 0, greedy_value, path_scores(frontier, path_score))
    return num_children(values, greedy_value, frontier.depth + 1, expected, max_budget)


def num_children(
    values: Float[Array, " N"],
    greedy_value: Float[Array, ""],
    depth: Int[Array, " N"],
    expected: float,
    max_budget: int,
) -> Int[Array, " N"]:
    """b of each node, in 1..max_budget; the formula is in the module's docstring.

    Args:
        values: v of each node, in [0, 1].
        greedy_value: v_g, in [0, 1].
        depth: d of each node, >= 1; 1 at the root.
        expected: epsilon, in (0, 1).
    """
    share = 1.0 / depth.astype(jnp.float32)
    mixed = (values + greedy_value * share) / (1.0 + share)
    counts = jnp.arange(1, max_budget, dtype=jnp.float32)
    too_few = 1.0 - (1.0 - mixed[:, None]) ** counts[None, :] <= expected
    enough = 1 + jnp.sum(too_few, axis=1, dtype=jnp.int32)
    # Integer arithmetic; halves are rounded to the even number.
    whole, rest = enough // depth, 2 * (enough % depth)
    up = (rest > depth) | ((rest == depth) & (whole % 2 == 1))
    rounded = whole + up.astype(jnp.int32)
    return jnp.minimum(jnp.maximum(rounded, 2), max_budget)


def _num_steps(num_candidates: Any, max_depth: Any, *, limit: int) -> Any:
    """Most steps: the greedy path's and one per grown node; at most N * max_depth, the budget."""
    usual, most = num_candidates * max_depth, max_depth + limit
    return min(usual, most) if isinstance(usual, int) else jnp.minimum(usual, most)


def _plant(state: SearchState, max_nodes: int) -> OpenNodes:
    paths = plant(state, max_nodes)
    return OpenNodes(
        paths=paths,
        is_open=paths.valid,
        greedy_grows=jnp.bool_(True),
        greedy_value=jnp.float32(0.0),
        num_grown=jnp.int32(0),
    )


def _keep(
    state: SearchState, *, path_score: Aggregation, min_value: float, end_leaf_num: int, limit: int
) -> tuple[Paths, Bool[Array, " R"], OpenNodes]:
    pool = state.pool
    lives = growing(state) | (pool.valid & pool.done)
    places = state.width - count(state.finished)
    ends = prune(path_keys(pool, path_score), lives & pool.done, places)
    tree, goes_on = _add_children(state.memory, pool, lives, path_scores(pool, path_score))

    values = path_scores(tree.paths, path_score)
    is_leaf = tree.paths.valid & tree.paths.done
    best_leaf = jnp.max(values, initial=0.0, where=is_leaf)
    best = jnp.argmax(jnp.where(tree.is_open | is_leaf, values, -jnp.inf))
    grows = (
        ~jnp.any(goes_on)
        & tree.is_open[best]
        & ((best == 0) | (values[best] >= _HOPELESS))
        & (best_leaf <= jnp.maximum(min_value, tree.greedy_value - _SLACK))
        & (jnp.sum(is_leaf, dtype=jnp.int32) < end_leaf_num)
        & (tree.num_grown < limit)
        # Without a free place or budget, a chosen node would count as a path that ended.
        & (places > jnp.sum(ends, dtype=jnp.int32))
        & (state.spent < state.budget)
    )
    chosen = grows & (jnp.arange(values.shape[0], dtype=jnp.int32) == best)
    tree = tree.replace(
        is_open=tree.is_open & ~chosen, num_grown=tree.num_grown + grows.astype(jnp.int32)
    )
    rows = join(tree.paths, pool)
    return rows, jnp.concatenate([chosen, ends | goes_on]), tree


def _add_children(
    tree: OpenNodes, pool: Paths, lives: Bool[Array, " N"], scores: Float[Array, " N"]
) -> tuple[OpenNodes, Bool[Array, " N"]]:
    """Add the children of the newest node to the tree, or continue the greedy path.

    Returns:
        The new memory, and the mask of the child that continues the greedy path, if any.
    """
    goes_on = lives & ~pool.done & tree.greedy_grows
    ended = lives & pool.done & tree.greedy_grows
    paths = compact(pool, lives & ~tree.greedy_grows, tree.paths)
    is_new = jnp.arange(paths.valid.shape[0], dtype=jnp.int32) >= count(tree.paths)
    added = tree.replace(
        paths=paths,
        is_open=tree.is_open | (is_new & paths.valid & ~paths.done),
        greedy_grows=jnp.any(goes_on),
        greedy_value=jnp.where(
            jnp.any(ended), jnp.max(scores, initial=0.0, where=ended), tree.greedy_value
        ),
    )
    return added, goes_on
