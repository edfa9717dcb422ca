"""The integer program of ETS, and its solver on the host.

With leaves i, branch nodes j (all nodes above a leaf, the question included) and clusters k,

    max  sum_i O_i x_i - lambdac / (M + N) (sum_i x_i + sum_j y_j) + lambdas / K sum_k c_k,

where O_i is the leaf's share of the places in REBASE, y_j = 1 if a leaf below j is kept, c_k = 1
only if a leaf of the cluster is, and at least one leaf is kept. The clusters of the newest steps
are those of average linkage on the cosine distances of their vectors.

The constraints between nodes and leaves are written edge by edge of the tree, and only x has to be
an integer. Both leave the solutions as they are: the other variables then are integers, too.

Everything here is NumPy and SciPy: the solver runs on the host, between two compiled programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_SOLVER_NODES = 100
"""Linear programs that the branch and bound solves at most. The first one usually is enough."""

MAX_SOLVER_SECONDS = 10.0
"""Seconds of one program at most: a second limit, beyond what the first one takes."""

_KEEPS_ALL = 1e-4
"""Reward of a node at lambdac 0, in the authors' code."""

_SMALLEST_NORM = 1e-12


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
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number >= 0, got {value}")
        if not 0 <= self.cluster_distance <= 2:
            raise ValueError(f"cluster_distance must be in [0, 2], got {self.cluster_distance}")


def kept_leaves(
    program: Program, numbers: Any, ancestors: Any, vectors: Any, leaves: Any
) -> np.ndarray:
    """The leaves that an optimal solution keeps, for one search or a batch of them.

    If a limit of the solver is reached, the best solution found so far counts; all leaves are kept
    if there is none.

    Args:
        program: constants.
        numbers: i32[*B, N], places of each leaf in REBASE.
        ancestors: i32[*B, N, T], number of the ancestor at each depth among the nodes of its depth,
            -1 beyond the leaf's own depth. All leaves of a search have one depth.
        vectors: f32[*B, N, D], of the newest steps; not read at lambdas 0.
        leaves: bool[*B, N], rows that are leaves; the others are not kept.

    Returns:
        bool[*B, N].
    """
    marked = np.asarray(leaves)
    kept = np.zeros(marked.shape, bool)
    counts, lines, directions = np.asarray(numbers), np.asarray(ancestors), np.asarray(vectors)
    for batch in np.ndindex(marked.shape[:-1]):
        rows = np.flatnonzero(marked[batch])
        chosen = np.ones(len(rows), bool)
        if len(rows) > 1:
            clusters = np.zeros(0, np.int64)
            if program.lambdas > 0:
                clusters = cluster(directions[batch][rows], program.cluster_distance)
            chosen = solve(program, counts[batch][rows], lines[batch][rows], clusters)
        kept[batch][rows] = chosen
    return kept


def cluster(vectors: np.ndarray, distance: float) -> np.ndarray:
    """Number of each row's cluster, from 0: average linkage, cut at a cosine distance.

    Args:
        vectors: f32[n, D], n >= 2. A row of zeros has the distance 1 to all others.
        distance: clusters at most this far apart are joined.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    wide = vectors.astype(np.float64)
    units = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), _SMALLEST_NORM)
    first, second = np.triu_indices(len(units), 1)
    apart = np.clip(1.0 - (units @ units.T)[first, second], 0.0, 2.0)
    return fcluster(linkage(apart, method="average"), distance, criterion="distance") - 1


def solve(
    program: Program, numbers: np.ndarray, ancestors: np.ndarray, clusters: np.ndarray
) -> np.ndarray:
    """The leaves that are kept, bool[n].

    Args:
        program: constants.
        numbers: i32[n], places in REBASE; one is positive.
        ancestors: i32[n, T], as in `kept_leaves`.
        clusters: i64[n], number of each leaf's cluster; empty without clusters.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    count = len(numbers)
    edges, num_branches = tree_edges(ancestors)
    num_clusters = int(clusters.max(initial=-1)) + 1
    covers = np.stack([clusters, np.arange(len(clusters))], axis=1)
    size = count + num_branches + num_clusters
    matrix: Any = csr_array(_constraints(edges, covers, count, num_branches, num_clusters))
    cost = -program.lambdac if program.lambdac > 0 else _KEEPS_ALL
    gain = np.concatenate(
        [
            numbers / numbers.sum() + cost / (count + num_branches),
            np.full(num_branches, cost / (count + num_branches)),
            np.full(num_clusters, program.lambdas / max(num_clusters, 1)),
        ]
    )
    least: Any = np.zeros(matrix.shape[0])
    least[-1] = 1.0
    found = milp(
        -gain,
        integrality=(np.arange(size) < count).astype(np.int8),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, least, np.inf),
        options={
            "node_limit": MAX_SOLVER_NODES,
            "time_limit": MAX_SOLVER_SECONDS,
            "mip_rel_gap": 0.0,
        },
    )
    return np.ones(count, bool) if found.x is None else found.x[:count] > 0.5


def tree_edges(ancestors: np.ndarray) -> tuple[np.ndarray, int]:
    """Edges of the tree above n leaves, i64[E, 2], and the number M of its branch nodes.

    An edge is (branch, child): numbers from n on are branches, below n leaves. No edge repeats.
    """
    count = len(ancestors)
    # The nodes on each leaf's line, from the question down; the leaf itself comes last.
    line, first = np.zeros((count, 0), np.int64), count
    for column in ancestors.T[: int((ancestors[0] >= 0).sum())]:
        names, place = np.unique(column, return_inverse=True)
        line, first = np.column_stack([line, first + place]), first + len(names)
    line = np.column_stack([line, np.arange(count)])
    pairs = np.stack([line[:, :-1], line[:, 1:]], axis=-1).reshape(-1, 2)
    return np.unique(pairs, axis=0), first - count


def _constraints(
    edges: np.ndarray, covers: np.ndarray, count: int, num_branches: int, num_clusters: int
) -> Any:
    """Rows that are >= 0, and a last one, the number of kept leaves, that is >= 1.

    branch - child for each edge; the children's sum - branch; a cluster's leaves - the cluster.
    """
    from scipy.sparse import coo_array

    above, below = edges.T
    clusters, members = covers.T
    of_edge = np.arange(len(edges))
    first_sum = len(edges)
    first_cluster = first_sum + num_branches
    last = first_cluster + num_clusters
    branches, groups, leaves = (np.arange(n) for n in (num_branches, num_clusters, count))
    parts = [
        (of_edge, above, 1.0),
        (of_edge, below, -1.0),
        (first_sum + above - count, below, 1.0),
        (first_sum + branches, count + branches, -1.0),
        (first_cluster + clusters, members, 1.0),
        (first_cluster + groups, count + num_branches + groups, -1.0),
        (np.full(count, last), leaves, 1.0),
    ]
    rows = np.concatenate([row for row, _, _ in parts])
    columns = np.concatenate([column for _, column, _ in parts])
    values = np.concatenate([np.full(len(row), value) for row, _, value in parts])
    return coo_array(
        (values, (rows, columns)), shape=(last + 1, count + num_branches + num_clusters)
    )
