"""The integer program of ETS, and its solution in the graph.

With N leaves i, M branch nodes j (all nodes above a leaf, the question included) and K clusters k,

    max  sum_i O_i x_i - lambdac / (M + N) (sum_i x_i + sum_j y_j) + lambdas / K sum_k c_k,

where O_i is the leaf's share of the places in REBASE, y_j = 1 if a leaf below j is kept, c_k = 1
only if a leaf of the cluster is kept, and at least one leaf is kept. Average linkage on the cosine
distances of the newest steps' vectors makes the clusters.

A branch and bound solves the program. Each visit decides all leaves that gain, or lose, whatever
becomes of the open leaves. If this decides no leaf, one is kept on trial. The bound is that of a
Lagrangian relaxation: a cluster pays each of its leaves a part of its gain, however many are kept.
The best leaves then follow from the tree alone. A cluster with several of them pays less next time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..vectors import cosines

MAX_VISITS = 5000
"""Most visits of the branch and bound. 256 leaves with a large lambdac can need more."""

_MOST_WEIGHT = 1e4
"""Beyond it float32 loses the shares of the leaves beside the weights."""

_PRECISION = 1e-6
"""Largest loss of the objective, up to rounding, unless the visits reach `MAX_VISITS`."""


@dataclass(frozen=True)
class Program:
    """The constants of the program; see `ets`.

    Raises:
        ValueError: a constant is out of range.
    """

    lambdac: float
    lambdas: float
    cluster_distance: float

    def __post_init__(self) -> None:
        for name in ("lambdac", "lambdas"):
            value = getattr(self, name)
            if not 0 <= value <= _MOST_WEIGHT:
                raise ValueError(f"{name} must be a number from 0 to {_MOST_WEIGHT:g}, got {value}")
        if not 0 <= self.cluster_distance <= 2:
            raise ValueError(f"cluster_distance must be in [0, 2], got {self.cluster_distance}")


class _Tree(NamedTuple):
    """The nodes above the leaves: row i, column t is the ancestor of leaf i at depth t.

    Attributes:
        above: bool[N, T], whether there is one.
        first, end: i32[N, T], the rows below it are first <= row < end; without a node, the leaf's.
        is_first: bool[N, T], marks each node once.
        parent: i32[N], number of the node directly above.
    """

    above: Array
    first: Array
    end: Array
    is_first: Array
    parent: Array

    def below(self, marked: Bool[Array, " N"]) -> Int[Array, "N T"]:
        """Number of marked leaves below each node."""
        sums = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(marked, dtype=jnp.int32)])
        return sums[self.end] - sums[self.first]


class _Terms(NamedTuple):
    """The program of one search.

    Attributes:
        tree: nodes above the leaves.
        clusters: i32[N], a row that names each leaf's cluster.
        own: f32[N], what a leaf adds without its nodes and its cluster.
        cost: f32, of a node.
        gain: f32, of a cluster.
    """

    tree: _Tree
    clusters: Array
    own: Array
    cost: Array
    gain: Array

    def in_clusters(self, values: Array) -> Array:
        """Sum of the values of each cluster's leaves, at the row that names it."""
        return jnp.zeros_like(values).at[self.clusters].add(values)


class _Visit(NamedTuple):
    """State of the branch and bound.

    Attributes:
        kept, is_open: bool[N], leaves that are kept, and those not yet decided.
        level: i32[N], level at which the leaf was decided, -1 if it is open.
        trial: i32[N + 1], leaf that is on trial at each level from 1 on.
        newest: i32, the newest level; -1 at the end.
        pays: f32[N], what each cluster pays a leaf, at the row that names it; at most its gain.
        best, best_value: the best solution so far.
        num_visits: i32, visits so far.
    """

    kept: Array
    is_open: Array
    level: Array
    trial: Array
    newest: Array
    pays: Array
    best: Array
    best_value: Array
    num_visits: Array


def kept_leaves(
    program: Program,
    numbers: Int[Array, " N"],
    ancestors: Int[Array, "N T"],
    vectors: Float[Array, "N D"] | None,
    leaves: Bool[Array, " N"],
) -> tuple[Bool[Array, " N"], Bool[Array, ""]]:
    """The leaves that the best solution keeps, and whether the visits ran out.

    After `MAX_VISITS` visits it is the best one so far. It keeps a leaf, as the program demands.

    Args:
        numbers: places of each leaf in REBASE; one is positive.
        ancestors: number, below N, of the ancestor at each depth among the nodes of its depth; -1
            beyond the leaf's own depth. All leaves have one depth.
        vectors: of the newest steps; not read if lambdac or lambdas is 0.
        leaves: rows that are leaves. They are adjacent, and so are those below one node.
    """
    if program.lambdac == 0:
        # Their code then rewards nodes, so that no leaf is a loss.
        return leaves, jnp.bool_(False)
    clusters = jnp.zeros(leaves.shape[0], jnp.int32)
    if program.lambdas > 0:
        assert vectors is not None
        clusters = cluster(vectors, leaves, program.cluster_distance)
    end = solve(program, numbers, ancestors, clusters, leaves)
    return end.best, end.newest >= 0


def cluster(
    vectors: Float[Array, "N D"], leaves: Bool[Array, " N"], distance: float
) -> Int[Array, " N"]:
    """Smallest row of each leaf's cluster: average linkage, cut at a cosine distance.

    Args:
        vectors: a row of zeros has the distance 1 to all others.
        leaves: rows that have a cluster; the others name themselves.
        distance: clusters at most this far apart are joined.
    """
    rows = _rows(leaves)
    similarities = cosines(jnp.where(leaves[:, None], vectors, 0.0))
    pairs = leaves[:, None] & leaves[None, :] & (rows[:, None] != rows[None, :])
    apart = jnp.where(pairs, 1.0 - similarities, jnp.inf)

    def is_near(carry: tuple[Array, Array, Array]) -> Array:
        return carry[0].min(initial=jnp.inf) <= distance

    def merge(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        apart, sizes, names = carry
        pair = jnp.stack(jnp.divmod(jnp.argmin(apart).astype(jnp.int32), len(rows)))
        into, gone = pair.min(), pair.max()
        weights = sizes[into] / (sizes[into] + sizes[gone])
        mean = weights * apart[into] + (1.0 - weights) * apart[gone]
        is_into, is_gone = rows == into, rows == gone
        mean = jnp.where(is_into | is_gone, jnp.inf, mean)
        apart = jnp.where(is_into[:, None], mean[None, :], apart)
        apart = jnp.where(is_into[None, :], mean[:, None], apart)
        apart = jnp.where(is_gone[:, None] | is_gone[None, :], jnp.inf, apart)
        sizes = jnp.where(is_into, sizes[into] + sizes[gone], sizes)
        return apart, sizes, jnp.where(names == gone, into, names)

    return jax.lax.while_loop(is_near, merge, (apart, jnp.ones(len(rows), jnp.float32), rows))[2]


def solve(
    program: Program,
    numbers: Int[Array, " N"],
    ancestors: Int[Array, "N T"],
    clusters: Int[Array, " N"],
    leaves: Bool[Array, " N"],
) -> _Visit:
    """The end of the branch and bound: `best` is kept, and `newest` >= 0 if the visits ran out.

    Args:
        program: constants, with lambdac > 0.
        numbers, ancestors, leaves: as in `kept_leaves`.
        clusters: a row that names each leaf's cluster; not read at lambdas 0.
    """
    terms = _terms(program, numbers, ancestors, clusters, leaves)
    rows = _rows(leaves)
    alone = terms.own - terms.cost * _float(terms.tree.above.sum(axis=1)) + terms.gain
    alone = jnp.where(leaves, alone, -jnp.inf)
    start = _Visit(
        kept=jnp.zeros_like(leaves),
        is_open=leaves,
        level=jnp.full(len(rows), -1, jnp.int32),
        trial=jnp.zeros(len(rows) + 1, jnp.int32),
        newest=jnp.int32(0),
        pays=jnp.full(len(rows), terms.gain),
        # A leaf that loses in any company may still be best alone.
        best=leaves & (rows == jnp.argmax(alone)),
        best_value=alone.max(),
        num_visits=jnp.int32(0),
    )

    def goes_on(state: _Visit) -> Array:
        return (state.newest >= 0) & (state.num_visits < MAX_VISITS)

    return jax.lax.while_loop(goes_on, functools.partial(_visit, terms), start)


def _terms(
    program: Program,
    numbers: Int[Array, " N"],
    ancestors: Int[Array, "N T"],
    clusters: Int[Array, " N"],
    leaves: Bool[Array, " N"],
) -> _Terms:
    tree = _tree(ancestors, leaves)
    num_nodes = leaves.sum() + tree.is_first.sum()
    num_clusters = (leaves & (clusters == _rows(leaves))).sum()
    cost = program.lambdac / jnp.maximum(_float(num_nodes), 1.0)
    places = _float(jnp.where(leaves, numbers, 0))
    return _Terms(
        tree=tree,
        clusters=clusters,
        own=places / jnp.maximum(places.sum(), 1.0) - cost,
        cost=cost,
        gain=program.lambdas / jnp.maximum(_float(num_clusters), 1.0),
    )


def _visit(terms: _Terms, state: _Visit) -> _Visit:
    """Decide leaves, try one, or go back to the last trial."""
    tree, kept, is_open = terms.tree, state.kept, state.is_open
    has_kept = tree.below(kept) > 0
    is_covered = terms.in_clusters(_float(kept)) > 0.0
    value = jnp.where(kept, terms.own, 0.0).sum() + terms.gain * _float(is_covered.sum())
    value -= terms.cost * _float((tree.is_first & has_kept).sum())
    is_better = kept.any() & (value > state.best_value)
    best_value = jnp.where(is_better, value, state.best_value)

    missing = tree.above & ~has_kept
    keep, drop = _sure(terms, is_open, missing, is_covered)
    bound, pays, chances = _bound(terms, state, missing, is_covered, value, best_value)
    goes_back = (bound <= best_value + _PRECISION) | ~is_open.any()
    tries = ~goes_back & ~(keep | drop).any()
    newest = state.newest + jnp.where(goes_back, -1, jnp.where(tries, 1, 0))

    trial = jnp.argmax(jnp.where(is_open, chances, -jnp.inf)).astype(jnp.int32)
    keep = jnp.where(tries, jnp.arange(len(kept)) == trial, keep)
    undone = goes_back & (state.level >= state.newest)
    replaced = (is_open | undone) & _replaceable(terms, state.trial[jnp.maximum(state.newest, 0)])
    decided = jnp.where(goes_back, replaced, keep | (drop & ~tries))
    return _Visit(
        kept=jnp.where(goes_back, kept & ~undone, kept | keep),
        is_open=(is_open | undone) & ~decided,
        level=jnp.where(decided, newest, jnp.where(undone, -1, state.level)),
        trial=jnp.where(tries & (jnp.arange(len(kept) + 1) == newest), trial, state.trial),
        newest=newest,
        pays=pays,
        best=jnp.where(is_better, kept, state.best),
        best_value=best_value,
        num_visits=state.num_visits + 1,
    )


def _sure(
    terms: _Terms, is_open: Array, missing: Array, is_covered: Array
) -> tuple[Bool[Array, " N"], Bool[Array, " N"]]:
    """Open leaves that gain, and those that lose, whatever becomes of the other open leaves."""
    bonus = jnp.where(is_covered, 0.0, terms.gain)[terms.clusters]
    is_last = (terms.in_clusters(_float(is_open)) == 1.0)[terms.clusters]
    least = terms.own - terms.cost * _float(missing.sum(axis=1)) + jnp.where(is_last, bonus, 0.0)
    its_own = missing & (terms.tree.below(is_open) == 1)
    most = terms.own - terms.cost * _float(its_own.sum(axis=1)) + bonus
    keep = is_open & (least >= 0.0)
    return keep, is_open & ~keep & (most < 0.0)


def _bound(
    terms: _Terms,
    state: _Visit,
    missing: Array,
    is_covered: Array,
    value: Array,
    best_value: Array,
) -> tuple[Float[Array, ""], Float[Array, " N"], Float[Array, " N"]]:
    """Upper bound on the solutions that extend the kept leaves, the next payments, and chances.

    Args:
        missing: bool[N, T], nodes above leaves that no kept leaf has.
        is_covered: bool[N], clusters with a kept leaf.
    """
    can_cover = (terms.in_clusters(_float(state.is_open)) > 0.0) & ~is_covered
    pays = jnp.where(can_cover, state.pays, 0.0)
    chances = terms.own + pays[terms.clusters]
    open_chances = jnp.where(state.is_open, chances, 0.0)
    added, taken = _best_leaves(terms.tree, open_chances, terms.cost * _float(missing))
    bound = value + added + jnp.where(can_cover, terms.gain - pays, 0.0).sum()
    excess = jnp.where(can_cover, terms.in_clusters(_float(taken)) - 1.0, 0.0)
    # A branch that ends here has no gap: the payments stay for the next one.
    size = jnp.maximum(bound - best_value, 0.0) / jnp.maximum((excess**2).sum(), 1.0)
    following = jnp.clip(pays - size * excess, 0.0, terms.gain)
    return bound, jnp.where(can_cover, following, state.pays), chances + _float(taken)


def _best_leaves(
    tree: _Tree, gains: Float[Array, " N"], costs: Float[Array, "N T"]
) -> tuple[Float[Array, ""], Bool[Array, " N"]]:
    """The largest sum of leaves' gains minus the costs of their nodes above, and its leaves."""

    def up(values: Array, column: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        first, end, is_name, cost = column
        sums = jnp.concatenate([jnp.zeros(1, jnp.float32), jnp.cumsum(jnp.maximum(values, 0.0))])
        found = sums[end] - sums[first] - cost
        # Every leaf below a node gets the node's value; the first one passes it on.
        return jnp.where(is_name, found, 0.0), found > 0.0

    is_name = tree.is_first | ~tree.above
    columns = (tree.first.T, tree.end.T, is_name.T, costs.T)
    top, gain = jax.lax.scan(up, gains, columns, reverse=True)
    return jnp.maximum(top, 0.0).sum(), gain.all(axis=0) & (gains > 0.0)


def _replaceable(terms: _Terms, leaf: Array) -> Bool[Array, " N"]:
    """The leaves that the given leaf, itself one of them, replaces without loss."""
    return (
        (terms.tree.parent == terms.tree.parent[leaf])
        & (terms.clusters == terms.clusters[leaf])
        & (terms.own <= terms.own[leaf])
    )


def _tree(ancestors: Int[Array, "N T"], leaves: Bool[Array, " N"]) -> _Tree:
    rows = _rows(leaves)[:, None]
    above = leaves[:, None] & (ancestors >= 0)
    before = jnp.roll(ancestors, 1, axis=0)
    continues = above & jnp.roll(leaves, 1)[:, None] & (ancestors == before) & (rows > 0)
    first = jax.lax.cummax(jnp.where(continues, 0, rows), axis=0)
    ends = jnp.roll(~continues, -1, axis=0) | (rows == len(rows) - 1)
    end = jax.lax.cummin(jnp.where(ends, rows + 1, len(rows)), axis=0, reverse=True)
    parent = jnp.take_along_axis(
        ancestors, jnp.maximum(above.sum(axis=1, keepdims=True) - 1, 0), axis=1
    )
    return _Tree(above, first, end, above & ~continues, parent[:, 0])


def _rows(leaves: Array) -> Int[Array, " N"]:
    return jnp.arange(leaves.shape[0], dtype=jnp.int32)


def _float(values: Array) -> Array:
    return values.astype(jnp.float32)
