"""Tree search with a global choice of leaves: which leaf grows.

The oracle's literal search by the same rule, its tree included, is compared in `test_loop`.
"""

import math

import jax
import jax.numpy as jnp
import pytest

import search
from search.state import empty_paths
from search.strategy.global_mcts import choose
from search.strategy.types import SimulatedTree

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


@pytest.mark.parametrize(("max_nodes", "children"), [(2, 1), (3, 2), (5, 4), (6, 4)])
def test_the_question_gets_as_many_children_as_the_tree_can_hold(max_nodes, children):
    strategy = search.methods.global_mcts(branching=4, max_nodes=max_nodes)
    state = search.init(jnp.int32(0), strategy=strategy, num_candidates=8, max_depth=2, capacity=8)
    request, _ = strategy.plan((), jax.random.key(0), state)
    assert int(request.num_samples[0]) == children
