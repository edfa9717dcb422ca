"""Siblings of a bank: groups and pairs of recorded children, from which calibrations are fitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from search.bank import UNREADABLE

from ..errors import BadInputError
from .layout import LoadedBank

MAX_SIBLINGS = 16
"""Largest number of siblings in a group; groups have 1 to this many, as in a search."""

_GROUPS = 4  # of each node and setting
_AS_GOOD = 0.5  # of the best sibling's share of right completions; see `_trusted`
_TRUSTED = 0.5  # share of right completions; see `_trusted`


@dataclass(frozen=True)
class Candidates:
    """Children of nodes from which a right answer was reached, in groups of siblings.

    Attributes:
        group: i[C]; number of the group; rows of a group are consecutive.
        right: b[C]; whether a right answer was reached from the child too.
        share: f[C]; share of right completions from the child over that of the node's best child,
            in [0, 1].
        trusted: b[C]; whether the node is trusted: every step on its path has at least half of its
            best sibling's share, and at least half of its best child's completions are right.
        log_prob: f[C]; log-probability of the child under the policy at temperature 1, nats.
        same_text: i[C]; m, number of children of the group with this text, the child included.
        num_siblings: i[C]; n, size of the group.
        score: f[C, P]; raw PRM scores.
        weight: f[C]; > 0, equal within a group. The weights of a group sum to the reach of the
            node, which is the probability that a path of the setting reaches it.
    """

    group: np.ndarray
    right: np.ndarray
    share: np.ndarray
    trusted: np.ndarray
    log_prob: np.ndarray
    same_text: np.ndarray
    num_siblings: np.ndarray
    score: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Pairs:
    """Pairs of siblings, of which the first has a right completion and the second a wrong one.

    Attributes:
        first: i[K]; row of the first one among the bank's nodes.
        second: i[K]; row of the second one, another child of the same node.
        weight: f[K]; > 0; the probability of the pair if two draws of the node are completed once
            each, times the reach of the node.
    """

    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray


def sample_candidates(bank: LoadedBank, seed: int = 0) -> Candidates:
    """Groups of 1 to 16 recorded children under every setting that samples at random.

    Children that are invalid, or that one of the PRMs can't read, are left out.

    Raises:
        BadInputError: no right answer was ever reached.
    """
    parent, value = bank.nodes["parent"], bank.nodes["value"].astype(float)
    rng = np.random.default_rng(seed)
    best = _best_child(parent, value)
    rows, same, sizes, weights = [], [], [], []
    for reach, children, draws in _sampled_nodes(bank, (value > 0) & (best > 0)):
        drawn = np.repeat(children, draws)
        if drawn.size == 0:
            continue
        for size in rng.integers(1, MAX_SIBLINGS + 1, _GROUPS):
            group = rng.permutation(drawn)[:size]
            text = bank.nodes["text_class"][group]
            rows.append(group)
            same.append((text[:, None] == text[None, :]).sum(axis=1))
            sizes.append(group.size)
            weights.append(reach / group.size)
    if not rows:
        raise BadInputError("the bank has no node with a right answer: collect more questions")
    row = np.concatenate(rows)
    return Candidates(
        group=np.repeat(np.arange(len(rows)), sizes),
        right=value[row] > 0,
        share=value[row] / best[parent[row]],
        trusted=_trusted(parent, value)[parent[row]],
        log_prob=np.asarray(bank.arrays.log_prob)[row].astype(float),
        same_text=np.concatenate(same),
        num_siblings=np.repeat(sizes, sizes),
        score=np.asarray(bank.arrays.score)[row],
        weight=np.repeat(weights, sizes),
    )


def discordant_pairs(bank: LoadedBank) -> Pairs:
    """Pairs of children of every trusted node, under the settings that sample at random.

    Children that are invalid, or that one of the PRMs can't read, are left out.

    Raises:
        BadInputError: there is no pair.
    """
    value = bank.nodes["value"].astype(float)
    firsts, seconds, weights = [], [], []
    for reach, children, draws in _sampled_nodes(bank, _trusted(bank.nodes["parent"], value)):
        share = draws / max(draws.sum(), 1)
        chance = np.outer(share * value[children], share * (1 - value[children]))
        np.fill_diagonal(chance, 0.0)
        first, second = np.nonzero(chance)
        firsts.append(children[first])
        seconds.append(children[second])
        weights.append(reach * chance[first, second])
    if not any(weight.size for weight in weights):
        raise BadInputError(
            "the bank has no node on a right path with a child that is mostly right and another "
            "one that is not: collect more questions, or fit without the likelihood"
        )
    return Pairs(np.concatenate(firsts), np.concatenate(seconds), np.concatenate(weights))


def _sampled_nodes(
    bank: LoadedBank, chosen: np.ndarray
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Reach, children and children's draws of chosen nodes, under each setting that samples.

    Invalid and unreadable children have no draws here, but count for the reach.
    """
    parent, draws = bank.nodes["parent"], bank.nodes["draws"]
    unscored = bank.nodes["invalid"] | (np.asarray(bank.arrays.score) == UNREADABLE).any(axis=1)
    first_child, num_children = _children(parent)
    for setting in np.flatnonzero(np.asarray(bank.arrays.temperature) > 0).tolist():
        scored = np.where(unscored, 0, draws[:, setting])
        reach = _reach(parent, draws[:, setting])
        for node in np.flatnonzero(chosen & (num_children > 0) & (reach > 0)).tolist():
            children = np.arange(first_child[node], first_child[node] + num_children[node])
            yield float(reach[node]), children, scored[children]


def _trusted(parent: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Whether each node is trusted, see `Candidates.trusted`."""
    best = _best_child(parent, value)
    as_good = (parent < 0) | ((value > 0) & (value >= _AS_GOOD * best[parent]))
    return _all_along(parent, as_good) & (best >= _TRUSTED)


def _best_child(parent: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The largest value among the children of every node; 0 without children."""
    best = np.zeros(parent.size)
    rows = np.flatnonzero(parent >= 0)
    np.maximum.at(best, parent[rows], value[rows])
    return best


def _children(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First child and number of children of every node."""
    rows = np.flatnonzero(parent >= 0)
    count = np.bincount(parent[rows], minlength=parent.size)
    first = np.full(parent.size, -1)
    # From the last row to the first, so that the first one stays.
    first[parent[rows[::-1]]] = rows[::-1]
    return first, count


def _all_along(parent: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Whether a node and all nodes of its path are marked."""
    found = marked.copy()
    for row in np.flatnonzero(parent >= 0).tolist():  # parents come before their children
        found[row] &= found[parent[row]]
    return found


def _reach(parent: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Probability that a path of one setting reaches each node; 1 for roots."""
    rows = np.flatnonzero(parent >= 0)
    total = np.bincount(parent[rows], weights=draws[rows], minlength=parent.size)
    reach = np.ones(parent.size)
    for row in rows.tolist():  # parents come before their children
        reach[row] = reach[parent[row]] * draws[row] / max(total[parent[row]], 1)
    return reach
