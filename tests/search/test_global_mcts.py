"""Tree search with a global choice of leaves: which leaf grows, its counts, and its arguments.

The oracle's literal search by the same rule is compared in `test_loop`.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from simulated_searches import searches

import search
from search.state import empty_paths
from search.strategy.global_mcts import choose
from search.strategy.types import SimulatedTree

CAPACITY, DEPTH = 16, 5

#      0
#    1   2      rewards: 1: .75, 2: .5; below 2: 3 with .25 and 4 with 1
#       3 4
PARENT = (0, 0, 0, 2, 2)
OWN = (0.0, 0.75, 0.5, 0.25, 1.0)
LEAVES = (1, 3, 4)


def _tree():
    """The example above, its counts by hand: each node adds to itself and to all above it."""
    visits, value = [0.0] * 5, [0.0] * 5
    for node in range(1, 5):
        above = node
        while True:
            visits[above] += 1
            value[above] += OWN[node]
            if above == 0:
                break
            above = PARENT[above]
    paths = empty_paths(8, 3, ()).replace(
        parent=jnp.zeros((8,), jnp.int32).at[:5].set(jnp.asarray(PARENT, jnp.int32))
    )
    return SimulatedTree(
        paths=paths,
        visits=jnp.zeros((8,), jnp.float32).at[:5].set(jnp.asarray(visits, jnp.float32)),
        value_sum=jnp.zeros((8,), jnp.float32).at[:5].set(jnp.asarray(value, jnp.float32)),
        is_leaf=jnp.zeros((8,), bool).at[jnp.asarray(LEAVES)].set(True),
        node_of_slot=jnp.zeros((4,), jnp.int32),
        simulates=jnp.bool_(False),
    )


@pytest.mark.parametrize("exploration", [0.0, 0.5, 5.0, 100.0])
def test_the_leaf_is_the_best_of_the_whole_tree(exploration):
    below = {1: 4, 3: 3, 4: 3}  # simulations below the father of each leaf
    ucb = {leaf: OWN[leaf] + exploration * math.sqrt(math.log(below[leaf])) for leaf in LEAVES}
    assert int(choose(_tree(), exploration)) == max(ucb, key=ucb.__getitem__)
    # UCT from the root would go to node 1, whose mean is above that of node 2.
    assert 0.75 > (0.5 + 0.25 + 1.0) / 3
    assert int(choose(_tree(), 0.0)) == 4
    assert int(choose(_tree(), 100.0)) == 1


GLOBAL_MCTS, SMALL = (search.methods.global_mcts(max_nodes=max_nodes) for max_nodes in (256, 9))


def _played(num_candidates, strategy=GLOBAL_MCTS):
    """Final states of 32 searches of a simulated question, and what each tick asked for."""
    world = {"num_steps": (4,), "invalid": 0.1, "lucky": 0.2}
    return searches(strategy, 32, capacity=CAPACITY, depth=DEPTH, **world)(num_candidates)


@pytest.mark.parametrize("num_candidates", [1, 6, 16])
def test_a_search_simulates_up_to_n_answers(num_candidates):
    final, asked = _played(num_candidates)
    finished = final.finished.valid.sum(-1)
    assert (finished <= num_candidates).all()
    assert finished.max() == num_candidates
    assert (final.spent <= num_candidates * DEPTH).all()
    assert asked.max() <= min(4, num_candidates)


def test_visits_are_the_simulations_below():
    final, _ = _played(16)
    tree = final.memory
    for row in range(32):
        visits, valid = tree.visits[row], tree.paths.valid[row]
        assert not visits[~valid].any()
        below = np.bincount(tree.paths.parent[row][1:][valid[1:]], visits[1:][valid[1:]], 256)
        own = visits - below
        # One simulation of every node but the root; the last ones may be cut by the budget.
        assert set(np.unique(own[1:][valid[1:]])) <= {0.0, 1.0}
        assert own[0] == 0.0
        if final.spent[row] < final.budget[row]:
            assert visits[0] == valid.sum() - 1
        assert tree.value_sum[row][0] <= visits[0]


def test_a_full_tree_grows_no_more():
    final, _ = _played(16, strategy=SMALL)
    assert (final.memory.paths.valid.sum(-1) <= 9).all()
    assert final.finished.valid.any(-1).all()
    assert (final.finished.valid.sum(-1) <= 8).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exploration": -1.0}, "exploration must be a number from 0 to 1e.30, got -1.0"),
        ({"exploration": float("nan")}, "exploration must be a number from 0 to 1e.30, got nan"),
        ({"branching": 0}, "branching must be an integer >= 1, got 0"),
        ({"max_nodes": 1}, "max_nodes must be an integer >= 2, got 1"),
        ({"max_nodes": 1 << 20}, "max_nodes must be at most 16384, got 1048576"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        search.methods.global_mcts(**options)
