"""Monte-Carlo tree search: how it spends a budget, and that it answers.

The oracle's literal search by the same rule, with the counts of its tree, is compared in
`test_loop`.
"""

import numpy as np
import pytest
from simulated_searches import searches

import search

DEPTH = 5
MCTS, SMALL = (search.methods.mcts(max_nodes=max_nodes) for max_nodes in (256, 48))


def _played(num_candidates, budget=None, strategy=MCTS):
    """Final states of 64 searches of a simulated question, and what each tick asked for."""
    world = {"num_steps": (5,), "invalid": 0.0, "lucky": 0.2}
    return searches(strategy, 64, capacity=16, depth=DEPTH, **world)(num_candidates, budget)


@pytest.mark.parametrize("num_candidates", [1, 4, 8, 16])
def test_every_search_ends_with_an_answer(num_candidates):
    final, _ = _played(num_candidates)
    assert (final.finished.valid.sum(-1) == max(1, num_candidates // 4)).all()
    assert (final.finished.depth[final.finished.valid] <= DEPTH).all()


@pytest.mark.parametrize("budget", [5, 8, 21, 79])
def test_any_budget_that_holds_one_path_ends_with_an_answer(budget):
    final, _ = _played(4, budget)
    assert (final.spent <= budget).all()
    assert final.finished.valid.any(-1).all()


@pytest.mark.parametrize(("budget", "paths"), [(4, 0), (5, 1), (9, 1), (14, 2), (19, 3), (20, 4)])
def test_a_budget_without_room_for_a_tree_completes_as_many_paths_as_it_can(budget, paths):
    final, asked = _played(16, budget)
    assert (asked[:, 0].sum(-1) == max(1, paths)).all()
    ended = final.finished.valid.sum(-1)
    assert (ended == paths).all() if paths else (ended <= 1).all()


def test_a_tree_without_room_for_nodes_completes_a_path_for_every_place():
    final, asked = _played(16, strategy=search.methods.mcts(max_nodes=4))
    assert (asked[:, 0].sum(-1) == 4).all()
    assert (final.finished.valid.sum(-1) == 4).all()


def test_more_children_than_candidates_leave_steps_for_the_budget():
    final, _ = _played(4, strategy=search.methods.mcts(branching=16, max_nodes=64))
    # 20 candidates: four leaves get 4 children each, and then the best path is completed.
    assert (final.memory.paths.valid.sum(-1) >= 1 + 12).mean() > 0.5
    assert (final.spent >= 16).mean() > 0.5


def test_the_tree_grows_by_branching_until_paths_are_taken_to_their_ends():
    _, asked = _played(16)
    for samples in asked:
        steps = samples[samples.sum(-1) > 0]
        grows = (steps == 4).any(-1)
        assert set(np.unique(steps[grows])) <= {0, 4}
        assert set(np.unique(steps[~grows])) <= {0, 1}
        assert (np.diff(grows.astype(int)) <= 0).all()  # never again once paths go to their ends
    # More simulations than a path has steps.
    assert np.median((asked == 4).sum((-2, -1))) > 2 * DEPTH


def test_a_full_tree_grows_no_more():
    final, asked = _played(16, strategy=SMALL)
    assert (final.memory.paths.valid.sum(-1) <= 48).all()
    assert ((asked == 4).sum((-2, -1)) <= 11).all()
    assert final.finished.valid.any(-1).all()
