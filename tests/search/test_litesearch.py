"""LiteSearch: the published number of children, and what ends a search.

The oracle's search by the same rule is compared in `test_loop`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import search
from search.strategy.litesearch import num_children

CAPACITY, DEPTH = 16, 4


def published(value, greedy, depth, expected, max_budget):
    """Counts up to the first number of children of which one is right often enough."""
    value = (value + greedy / depth) / (1 + 1 / depth)
    number = 1
    while number < max_budget and 1 - (1 - value) ** number <= expected:
        number += 1
    return min(max(round(number / depth), 2), max_budget)


@pytest.mark.parametrize(("expected", "max_budget"), [(0.9, 10), (0.6, 40), (0.95, 1)])
def test_the_number_of_children_is_the_published_one(expected, max_budget):
    values = np.linspace(0.0, 1.0, 14)
    for greedy in (0.0, 0.3, 0.97):
        for depth in range(1, 7):
            found = num_children(
                jnp.asarray(values, jnp.float32),
                jnp.float32(greedy),
                jnp.full(values.shape, depth, jnp.int32),
                expected,
                max_budget,
            )
            wanted = [published(value, greedy, depth, expected, max_budget) for value in values]
            assert found.tolist() == wanted


@functools.cache
def _compiled(strategy):
    def expand(params, key, request):
        """Children that all have the score of their depth; those at the depth `ends` end."""
        del key
        parent, granted = search.children.children_of(request.num_samples, CAPACITY)
        depth = request.depth[parent] + 1
        is_greedy = request.temperature[parent] == 0.0
        done = granted & (depth >= params["ends"])
        zeros = jnp.zeros((CAPACITY,), jnp.int32)
        return search.Expansion(
            valid=granted,
            parent=parent,
            score=jnp.where(is_greedy, params["greedy"][depth], params["others"][depth]),
            done=done,
            answer=jnp.where(done, 1, -1),
            text=zeros,
            log_prob=jnp.zeros((CAPACITY,), jnp.float32),
            num_tokens=zeros + 1,
            embedding=zeros,
        )

    def run(params, num_candidates):
        state = search.init(
            jnp.int32(0),
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=DEPTH,
            capacity=CAPACITY,
        )
        key = jax.random.key(0)
        return search.rollout((), params, key, state, strategy=strategy, expand_fn=expand)

    return jax.jit(run)


def _asked(greedy, others, ends=3, num_candidates=16, **options):
    """Candidates of each step, by phase, and the final state."""
    strategy = search.methods.litesearch(**options)
    scores = {"greedy": greedy, "others": others}
    params = {name: jnp.asarray([0, *row], jnp.float32) for name, row in scores.items()}
    run = _compiled(strategy)
    final, outputs = jax.device_get(run({**params, "ends": jnp.int32(ends)}, num_candidates))
    asked = outputs.num_samples.sum(-1).reshape(-1, 2).tolist()
    return [step for step in asked if sum(step)], final


LOW = (0.5, 0.5, 0.5, 0.5)


def test_the_greedy_path_comes_first_and_sets_the_number_of_children():
    asked, final = _asked((0.5, 0.6, 0.75, 0.5), (0.5, 0.6, 0.9, 0.5))
    # .75 at its end: of two children one is right with the expected probability. Then one node at
    # a time gets its children, until a path of the value .9 has ended.
    assert asked == [[1, 0]] * 3 + [[1, 1]] * 3
    assert final.finished.valid.sum() == 3
    assert final.finished.step_scores[0].tolist() == pytest.approx([0.5, 0.6, 0.75, 0.0])
    assert int(final.memory.num_grown) == 3


def test_a_bad_greedy_path_buys_the_root_all_children():
    asked, _ = _asked((0.5, 0.5, 0.0, 0.0), LOW)
    assert asked[3] == [1, 9]
    asked, _ = _asked((0.5, 0.5, 0.0, 0.0), LOW, num_candidates=4)
    assert asked[3] == [1, 3]


def test_what_ends_a_search():
    """Three nodes lead to the first solutions; a better node is left, so that only rules end it."""
    greedy = (0.6, 0.65, 0.5, 0.5)

    def grown(end, **options):
        options = {"min_value": 1.0, "end_leaf_num": 100} | options
        return int(_asked(greedy, (0.6, 0.7, end, 0.5), **options)[1].memory.num_grown)

    assert grown(0.55) > 3
    assert grown(0.72) == 3  # the best node is a solution
    assert grown(0.55, min_value=0.56) > 3
    assert grown(0.55, min_value=0.54) == 3  # a solution is good enough
    assert grown(0.4, min_value=0.1) == 3  # as good as the greedy solution, .5
    assert grown(0.55, end_leaf_num=3) > 3
    assert grown(0.55, end_leaf_num=2) == 3
    assert grown(0.55, limit=2) == 2


def test_a_search_without_a_hopeful_node_ends_with_the_greedy_path():
    nothing = (0.005, 0.005, 0.005, 0.005)
    asked, final = _asked(nothing, nothing)
    assert asked == [[1, 0]] * 3 + [[1, 9]]
    assert final.finished.valid.sum() == 1
    asked, _ = _asked((0.02, 0.005, 0.005, 0.005), nothing)
    assert len(asked) == 5  # one child of the root is worth .02


def test_one_candidate_is_greedy_decoding():
    asked, final = _asked(LOW, LOW, num_candidates=1)
    assert asked == [[1, 0]] * 3
    assert final.finished.valid.sum() == 1
